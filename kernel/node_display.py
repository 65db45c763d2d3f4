"""IPython's ``display`` for code that runs on a node."""

from __future__ import annotations

import builtins
import os
from typing import Any

from .mime_bundles import WIDGET, WIDGET_NOTE, is_widget, mime_of
from .node_output import current_sink


def display(
    *values: Any,
    include: Any = None,
    exclude: Any = None,
    metadata: dict[str, Any] | None = None,
    transient: dict[str, Any] | None = None,
    display_id: Any = None,
    raw: bool = False,
    clear: bool = False,
    update: bool = False,
    **_: Any,
) -> Any:
    """IPython's ``display`` for code that runs on a node: what it shows appears in the notebook."""
    sink = current_sink()
    if sink is None:
        # In a process that the cell has forked: its prints come home, its pictures do not.
        print(*values)
        return None
    if clear:
        sink.clear(wait=True)
    identity = None
    if display_id is not None:
        identity = os.urandom(8).hex() if display_id is True else str(display_id)
    elif transient:
        identity = transient.get("display_id")
    for value in values:
        data, own = (dict(value), {}) if raw else mime_of(value)
        if data.pop(WIDGET, None) is not None or is_widget(value):
            sink.note(WIDGET_NOTE)
        if include:
            data = {mime: shown for mime, shown in data.items() if mime in include}
        if exclude:
            data = {mime: shown for mime, shown in data.items() if mime not in exclude}
        sink.display(data, {**own, **(metadata or {})}, identity, update)
    return DisplayHandle(identity) if identity and not update else None


class DisplayHandle:
    """What ``display(…, display_id=True)`` returns."""

    def __init__(self, display_id: str) -> None:
        self.display_id = display_id

    def display(self, value: Any, **extra: Any) -> None:
        """Show `value` anew under the same id."""
        display(value, display_id=self.display_id, **extra)

    def update(self, value: Any, **extra: Any) -> None:
        """Show `value` in place of what was shown."""
        display(value, display_id=self.display_id, update=True, **extra)


def builtins_for_cell() -> dict[str, Any]:
    """Return the builtins that a cell sees: Python's, `display` as in a notebook, and nothing that waits for keys."""
    return {**vars(builtins), "display": display, "input": _no_input, "breakpoint": _no_breakpoint}


def _no_input(*_: Any) -> str:
    raise RuntimeError("input() cannot ask on a node: ask in a cell of its own, and use the answer in the mesh cell")


def _no_breakpoint(*_: Any, **__: Any) -> None:
    raise RuntimeError("breakpoint() cannot stop on a node: run the cell without %%mesh to step through it")
