"""What a cell's outcomes mean in the notebook: names that are bound, the value, or the error that is raised."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from computemesh.errors import MeshError

from .arguments import Line
from .cell_names import CellNames
from .cell_run import Outcome
from .cell_source import VALUE
from .failures import raised_from
from .live_output import Screen
from .shipping import unpack

Kept = Mapping[int, Mapping[str, Any]]
"""Futures of what stayed on the mesh, by run and name."""

_MISSING = object()


@dataclass(frozen=True, slots=True)
class Notebook:
    """Where a cell comes from and where its names and its output go."""

    home: dict[str, Any]
    """The globals that it reads and binds."""
    screen: Screen
    title_of: Callable[[str], str]
    """What tracebacks call a file: ``Cell In[3]`` for a cell, else the file's name."""
    local: dict[str, Any] | None = None
    """The local variables of the function that called; they are read before the globals, and nothing is bound."""
    interactive: bool = True
    """Whether `home` is a notebook's, which has ``_mesh``."""

    @contextmanager
    def with_locals(self) -> Iterator[None]:
        """Let the function's local variables be found among the globals while what goes in is packed.

        Functions travel with the globals that they live in, so both must be one dictionary at that moment.
        """
        hidden = {name: self.home.get(name, _MISSING) for name in self.local or ()}
        self.home.update(self.local or {})
        try:
            yield
        finally:
            for name, value in hidden.items():
                if value is _MISSING:
                    self.home.pop(name, None)
                else:
                    self.home[name] = value


def settled(
    found: Sequence[Outcome | BaseException],
    names: CellNames,
    said: Line,
    notebook: Notebook,
    kept: Kept,
    bound: dict[str, Any] | None = None,
) -> Any:
    """Bind the names that came back and return the value, or the list of values.

    `bound` is told the names too.

    Raises:
        Exception: what the cell raised; `MeshError` when several runs did.
    """
    bound = {} if bound is None else bound
    failed = [
        (number, each) for number, each in enumerate(found) if not isinstance(each, Outcome) or each.failure is not None
    ]
    whole = [each for each in found if isinstance(each, Outcome)]
    if failed:
        if said.single and whole:
            # As here, what the cell had bound before it raised stays bound.
            _bind(_names_of(whole, notebook, kept)[0], whole, said, notebook, bound)
        raise raised_from(failed, len(found), notebook.title_of, notebook.home, said.timeout)
    by_run = _names_of(whole, notebook, kept)
    values = [_value(outcome, notebook, kept) for outcome in whole]
    # A last line such as print(...) gives None in every run, which is no result, as it is none here.
    has_value = any(value is not None for value in values)
    result: Any
    if said.single:
        _bind(by_run[0], whole, said, notebook, bound)
        _say_missing(said, by_run[0], whole[0], notebook)
        result = values[0]
    else:
        _bind(_lists(by_run, whole, names), whole, said, notebook, bound)
        result = values if has_value else None
    if said.output and not said.no_wait:
        notebook.home[said.output] = result if said.single or has_value else []
        return None
    return result


def _lists(by_run: list[dict[str, Any]], outcomes: Sequence[Outcome], names: CellNames) -> dict[str, Any]:
    """Return each name's values as a list in order of the items."""
    bound = sorted({name for found in by_run for name in found} if outcomes else names.binds)
    modules = {name for outcome in outcomes for name in outcome.modules}
    lists: dict[str, Any] = {name: [found.get(name) for found in by_run] for name in bound if name not in modules}
    # Each run imports the same module; a list of it would help nobody.
    return lists | {name: next(found[name] for found in by_run if name in found) for name in modules & set(bound)}


def _names_of(outcomes: Sequence[Outcome], notebook: Notebook, kept: Kept) -> list[dict[str, Any]]:
    """Return what each run bound, and say what stayed behind: once for each name, however many runs."""
    by_run, left = [], dict[str, tuple[str, str, int]]()
    for outcome in outcomes:
        found, stayed = _names_of_one(outcome, notebook)
        found |= {name: future for name, future in kept.get(outcome.index, {}).items() if name != VALUE}
        by_run.append(found)
        for name, why in stayed.items():
            node, first_why, count = left.get(name, (outcome.node, why, 0))
            left[name] = node, first_why, count + 1
    for name, (node, why, count) in left.items():
        shown = name if " " in name else f"`{name}`"
        more = f" (and so in {count - 1} other run{'s' * (count > 2)})" if count > 1 else ""
        notebook.screen.text("stderr", f"{shown} stayed on node {node}{more}: {why}\n")
    return by_run


def _names_of_one(outcome: Outcome, notebook: Notebook) -> tuple[dict[str, Any], dict[str, str]]:
    modules: dict[str, Any] = {}
    left = dict(outcome.left)
    for name, module in outcome.modules.items():
        try:
            modules[name] = import_module(module)
        except ImportError as error:
            left[name] = str(error)
    if notebook.local is None:
        # Before the rest is unpacked: the cell's classes may use their modules while their objects are made.
        notebook.home.update(modules)
    found: dict[str, Any] = {}
    if outcome.names:
        try:
            found = unpack(outcome.names, notebook.home)
        except Exception as error:
            raise MeshError(
                f"What the cell bound on node {outcome.node} cannot be read here: {type(error).__name__}: {error}. "
                "Install here what is missing, or convert it on the node",
                [error],
            ) from None
    return {**found, **modules}, left


def _bind(
    found: Mapping[str, Any], outcomes: Sequence[Outcome], said: Line, notebook: Notebook, bound: dict[str, Any]
) -> None:
    bound.update(found)
    if notebook.local is not None:
        return
    notebook.home.update(found)
    if said.single:
        for name in outcomes[0].deleted:
            notebook.home.pop(name, None)


def _say_missing(said: Line, found: Mapping[str, Any], outcome: Outcome, notebook: Notebook) -> None:
    for name in said.returns or ():
        if name not in found and name not in outcome.left:
            notebook.screen.text("stderr", f"`{name}` did not come back: the cell had no such name at its end\n")


def _value(outcome: Outcome, notebook: Notebook, kept: Kept) -> Any:
    if VALUE in kept.get(outcome.index, {}):
        return kept[outcome.index][VALUE]
    if outcome.value_shown is not None:
        notebook.screen.display(outcome.value_shown, {}, None, False)
        return None
    return None if outcome.value is None else unpack(outcome.value, notebook.home)
