"""Finds what a task asks for: on its functions as ``__mesh__``, wherever Dask has put them, and in its annotations.

An attribute on the function survives fusion, where annotations of collections are lost; an annotation overrides it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from dask._task_spec import Alias, DataNode, NestedContainer, Task, TaskRef
from dask._task_spec import GraphNode as _GraphNode

from computemesh.errors import BadRequirement
from computemesh.task_spec import PLAIN, TaskSpec, fused, task_spec_from

ATTRIBUTE = "__mesh__"
ANNOTATION = "mesh"
DEEPEST = 12
"""Levels of nested tasks and partials that are looked into."""

_LEAVES = frozenset(
    {
        int,
        float,
        str,
        bytes,
        bool,
        type(None),
        complex,
        TaskRef,
        Alias,
        DataNode,
        slice,
        range,
        type,
        list,
        set,
    }
)
"""Types that hold no function: a list with a task in it has become a `NestedContainer`."""


class Reader:
    """Reads specs, each distinct one once."""

    def __init__(self) -> None:
        self._known: dict[Any, TaskSpec] = {}
        self._plain: Any = None
        """The function of the last task that asked for nothing: most tasks of a graph share one."""

    def spec_of(self, run_spec: Any, annotations: Mapping[str, Any] | None) -> TaskSpec:
        """Return what a task asks for.

        Raises:
            BadRequirement: what was written makes no sense.
        """
        if (
            not annotations
            and type(run_spec) is Task
            and run_spec.func is self._plain
            and not run_spec.kwargs
            and _LEAVES.issuperset(map(type, run_spec.args))
        ):
            return PLAIN
        found: list[Any] = []
        _collect(run_spec, found, 0)
        annotated = annotations.get(ANNOTATION) if annotations else None
        if not found and annotated is None:
            self._plain = getattr(run_spec, "func", None)
            return PLAIN
        spec = PLAIN
        for attribute in found:
            spec = fused(spec, self._checked(attribute)) if spec else self._checked(attribute)
        if annotated is None:
            return spec
        if not isinstance(annotated, Mapping):
            return self._checked(annotated)
        return self._checked({**spec.to_spec(), **annotated})

    def _checked(self, written: Any) -> TaskSpec:
        try:
            identity = tuple(sorted((name, _hashable(value)) for name, value in written.items()))
            known = self._known.get(identity)
        except (TypeError, AttributeError):
            return task_spec_from(written)
        if known is None:
            known = task_spec_from(written)
            if len(self._known) >= 10_000:
                self._known.clear()
            self._known[identity] = known
        return known


def _hashable(value: Any) -> Any:
    # A type goes along, so that True and 1 are told apart.
    return (type(value), tuple(value) if isinstance(value, list) else value)


def _collect(item: Any, found: list[Any], depth: int) -> None:
    kind = type(item)
    if kind in _LEAVES or depth > DEEPEST:
        return
    if kind is Task or isinstance(item, Task):
        if kind is Task or not isinstance(item, NestedContainer):
            _collect(item.func, found, depth + 1)
        for argument in item.args:
            if type(argument) not in _LEAVES:
                _collect(argument, found, depth + 1)
        if item.kwargs:
            for argument in item.kwargs.values():
                if type(argument) not in _LEAVES:
                    _collect(argument, found, depth + 1)
    elif kind is partial:
        _collect(item.func, found, depth + 1)
        for argument in (*item.args, *item.keywords.values()):
            _collect(argument, found, depth + 1)
    elif kind is dict:
        # The inner tasks of a fused one; other dicts are data, however large.
        if item and isinstance(next(iter(item.values())), _GraphNode):
            for inner in item.values():
                _collect(inner, found, depth + 1)
    elif kind is tuple:
        if len(item) <= 4:
            for inner in item:
                _collect(inner, found, depth + 1)
    elif callable(item):
        spec = getattr(item, ATTRIBUTE, None)
        if spec is not None and not isinstance(item, type):
            found.append(spec)


__all__ = ["ANNOTATION", "ATTRIBUTE", "BadRequirement", "Reader"]
