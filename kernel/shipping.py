"""Turns notebook values into opaque bytes and back, so that neither Dask nor the scheduler ever unpickles them.

Both ends have a *home*: the dictionary of globals in which a cell's functions live, the notebook's own namespace on
one side and the running cell's on the other. A function that lives in the sender's home comes to live in the
receiver's, so that it sees and changes the same globals as the code around it, in both directions. Dask futures
become numbered places that the receiver fills with values.
"""

from __future__ import annotations

import io
import marshal
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

import cloudpickle

from .cell_names import globals_of

_home: ContextVar[dict[str, Any] | None] = ContextVar("computemesh_home", default=None)
_values: ContextVar[Sequence[Any]] = ContextVar("computemesh_values", default=())


@dataclass(frozen=True, slots=True)
class Packed:
    """Values as bytes, with what they need from elsewhere."""

    data: bytes
    needs: frozenset[str]
    """Globals of the sender's home that functions among the values use."""
    futures: tuple[Any, ...] = ()
    """Dask futures among the values, in the order of their places."""


def pack(value: Any, home: dict[str, Any], *, local_modules: bool = False) -> Packed:
    """Pickle `value`, whose functions live in `home`.

    `local_modules` sends what comes from modules beside the notebook by value, since the nodes do not have them.

    Raises:
        Exception: whatever pickling raises; `value` holds something that cannot travel.
    """
    with io.BytesIO() as file, _modules_by_value(local_modules):
        pickler = _HomePickler(file, home)
        pickler.dump(value)
        return Packed(file.getvalue(), frozenset(pickler.needs), tuple(pickler.futures))


def _modules_by_value(local_modules: bool) -> AbstractContextManager[None]:
    if not local_modules:
        return nullcontext()
    from .local_modules import by_value

    return by_value()


def unpack(data: bytes, home: dict[str, Any], values: Sequence[Any] = ()) -> Any:
    """Unpickle what `pack` made; functions come to live in `home`, futures become `values`."""
    home_token, values_token = _home.set(home), _values.set(values)
    try:
        return cloudpickle.loads(data)
    finally:
        _home.reset(home_token)
        _values.reset(values_token)


def module_names(values: Mapping[str, Any]) -> dict[str, str]:
    """Return which of `values` are importable modules, by the module's full name.

    They travel as names and are imported anew, so that a module that one side lacks spoils nothing else.
    """
    return {
        name: value.__name__
        for name, value in values.items()
        if isinstance(value, ModuleType) and sys.modules.get(value.__name__) is value
    }


class _HomePickler(cloudpickle.Pickler):
    """A cloudpickler that moves functions from home to home and sets Dask futures aside."""

    def __init__(self, file: io.BytesIO, home: dict[str, Any]) -> None:
        super().__init__(file, protocol=5)
        self._own_home = home
        self.needs: set[str] = set()
        self.futures: list[Any] = []

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is FunctionType and obj.__globals__ is self._own_home:
            self.needs |= globals_of(obj.__code__)
            return _reduced_function(obj)
        if type(obj) is CodeType:
            # Cloudpickle would drop the file's name, and tracebacks could not show the cell's lines.
            return marshal.loads, (marshal.dumps(obj),)
        client_module = sys.modules.get("distributed.client")
        if client_module is not None and isinstance(obj, client_module.Future):
            self.futures.append(obj)
            return _filled_place, (len(self.futures) - 1,)
        return super().reducer_override(obj)


def _filled_place(number: int) -> Any:
    return _values.get()[number]


def _reduced_function(function: FunctionType) -> tuple[Any, ...]:
    """Reduce `function` to its parts without its globals; the parts follow once it exists, so it may hold itself."""
    cells = [_content(cell) for cell in function.__closure__ or ()]
    state = {
        "cells": cells,
        "__defaults__": function.__defaults__,
        "__kwdefaults__": function.__kwdefaults__,
        "__dict__": function.__dict__,
        "__qualname__": function.__qualname__,
        "__doc__": function.__doc__,
        "__module__": function.__module__,
        "__annotations__": _annotations(function),
    }
    parts = (function.__code__, function.__name__, len(cells))
    return _new_function, parts, state, None, None, _fill_function


def _content(cell: CellType) -> tuple[Any, ...]:
    try:
        return (cell.cell_contents,)
    except ValueError:
        return ()


def _annotations(function: FunctionType) -> dict[str, Any]:
    try:
        return dict(function.__annotations__)
    except NameError:
        # Python 3.14 evaluates annotations when asked; one that names nothing is no reason not to run.
        return {}


def _new_function(code: CodeType, name: str, cells: int) -> FunctionType:
    home = _home.get()
    if home is None:
        home = {"__name__": "__main__"}
    closure = tuple(CellType() for _ in range(cells)) if cells else None
    return FunctionType(code, home, name, None, closure)


def _fill_function(function: FunctionType, state: dict[str, Any]) -> None:
    for cell, content in zip(function.__closure__ or (), state.pop("cells"), strict=True):
        if content:
            cell.cell_contents = content[0]
    function.__dict__.update(state.pop("__dict__"))
    for name, value in state.items():
        setattr(function, name, value)
