"""Turns notebook values into opaque bytes and back, so that neither Dask nor the scheduler ever unpickles them.

Both ends have a *home*: the dictionary of globals in which a cell's functions live, the notebook's own namespace on
one side and the running cell's on the other. A function that lives in the sender's home comes to live in the
receiver's, so that it sees and changes the same globals as the code around it, in both directions. Dask futures
become numbered places that the receiver fills with values.

Large buffers (arrays, columns of a frame) stay out of the pickle, unread and uncopied, until somebody asks for
`Packed.data`, or puts futures in their place (`ship_once`).
"""

from __future__ import annotations

import io
import marshal
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

import cloudpickle

from .blobs import LARGE, Blob
from .cell_names import globals_of

_home: ContextVar[dict[str, Any] | None] = ContextVar("computemesh_home", default=None)
_values: ContextVar[Sequence[Any]] = ContextVar("computemesh_values", default=())


@dataclass(frozen=True, slots=True)
class Part:
    """One value of several that were packed together: its pickle and the large buffers that it leaves out.

    A number in place of either is the place of a future whose value is that content, as a `Blob`.
    """

    name: str
    stream: bytes | int
    buffers: tuple[Any, ...] = ()
    alone: bool = False
    """Another packer wrote it: it shares nothing with the parts beside it."""

    @property
    def size(self) -> int:
        """Bytes that are still in it, rather than behind futures."""
        stream = 0 if isinstance(self.stream, int) else len(self.stream)
        sizes: list[int] = [each.raw().nbytes for each in self.buffers if not isinstance(each, int)]
        return stream + sum(sizes)


@dataclass(frozen=True, slots=True)
class Packed:
    """Values that can travel, with what they need from elsewhere."""

    parts: tuple[Part, ...]
    needs: frozenset[str]
    """Globals of the sender's home that functions among the values use."""
    futures: tuple[Any, ...] = ()
    """Dask futures among the values, in the order of their places."""
    variables: bool = False
    """Whether the parts' names are the notebook's variables, whose former contents the mesh may let go."""
    named: bool = False
    """Whether they come out as a dictionary of their names, rather than as the one value."""
    imports: frozenset[str] = frozenset()
    """Top-level modules that code among the values imports."""
    modules: Any = None
    """The sources of local modules that go along (`module_sources`)."""

    @property
    def data(self) -> bytes:
        """All of it as bytes that `unpack` reads."""
        return pickle.dumps(_Outer(self), protocol=5)

    @property
    def size(self) -> int:
        """Bytes that are still in it, rather than behind futures."""
        return sum(part.size for part in self.parts)


class Packer:
    """Packs values one after another, so that what they share stays shared though each has bytes of its own."""

    def __init__(self, home: dict[str, Any], *, local_modules: bool = False) -> None:
        self._file = io.BytesIO()
        self._buffers: list[pickle.PickleBuffer] = []
        self._pickler = _HomePickler(self._file, home, self._kept_in_band)
        self._by_value = _modules_by_value if local_modules else nullcontext
        self._parts: list[Part] = []

    def add(self, name: str, value: Any) -> Part:
        """Pack one more value.

        Raises:
            Exception: whatever pickling raises; the value cannot travel, and the packer is of no further use.
        """
        start = self._file.tell()
        self._buffers.clear()
        with self._by_value():
            self._pickler.dump(value)
        part = Part(name, self._file.getbuffer()[start:].tobytes(), tuple(self._buffers))
        self._parts.append(part)
        return part

    @property
    def needs(self) -> frozenset[str]:
        """Globals of the home that functions among the values so far use."""
        return frozenset(self._pickler.needs)

    def packed(self, *, named: bool) -> Packed:
        """Return what was added."""
        pickler = self._pickler
        imports = frozenset(pickler.imports)
        return Packed(tuple(self._parts), self.needs, tuple(pickler.futures), named=named, imports=imports)

    def _kept_in_band(self, buffer: pickle.PickleBuffer) -> bool:
        try:
            large = buffer.raw().nbytes >= LARGE
        except BufferError:
            return True
        if large:
            self._buffers.append(buffer)
        return not large


def pack(value: Any, home: dict[str, Any], *, local_modules: bool = False) -> Packed:
    """Pickle `value`, whose functions live in `home`.

    `local_modules` sends what comes from modules beside the notebook by value, since the nodes do not have them.

    Raises:
        Exception: whatever pickling raises; `value` holds something that cannot travel.
    """
    packer = Packer(home, local_modules=local_modules)
    packer.add("", value)
    return packer.packed(named=False)


def _modules_by_value() -> AbstractContextManager[None]:
    from .local_modules import by_value

    return by_value()


def unpack(data: bytes, home: dict[str, Any], values: Sequence[Any] = ()) -> Any:
    """Unpickle what `pack` made; functions come to live in `home`, futures become `values`."""
    home_token, values_token = _home.set(home), _values.set(values)
    try:
        return pickle.loads(data)  # noqa: S301 - ours, and sent by the job's own user
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


class _Outer:
    """The whole of a `Packed`; comes back as its values."""

    def __init__(self, packed: Packed) -> None:
        self.packed = packed

    def __reduce__(self) -> tuple[Any, ...]:
        packed = self.packed
        streams = [(part.stream, part.alone) for part in packed.parts]
        buffers = [buffer for part in packed.parts for buffer in part.buffers]
        names = [part.name for part in packed.parts] if packed.named else None
        return _unpacked, (names, streams, buffers, packed.modules)


def _unpacked(names: list[str] | None, streams: list[tuple[Any, bool]], buffers: list[Any], modules: Any) -> Any:
    if modules is not None:
        from .module_sources import activate

        activate(_content(modules) if isinstance(modules, int) else modules)
    file = io.BytesIO(b"".join(_content(stream) for stream, alone in streams if not alone))
    own = _own_buffers(buffers)
    # One unpickler reads these streams, as one pickler wrote them: values share what they shared.
    together = pickle.Unpickler(file, buffers=own)  # noqa: S301 - as in `unpack`
    values = [
        pickle.loads(_content(stream), buffers=own) if alone else together.load()  # noqa: S301
        for stream, alone in streams
    ]
    return values[0] if names is None else dict(zip(names, values, strict=True))


def _own_buffers(buffers: list[Any]) -> Iterator[Any]:
    for each in buffers:
        yield _values.get()[each].own_copy() if isinstance(each, int) else each


def _content(stream: Any) -> Any:
    if not isinstance(stream, int):
        return stream
    blob: Blob = _values.get()[stream]
    return blob.content


class _HomePickler(cloudpickle.Pickler):
    """A cloudpickler that moves functions from home to home and sets Dask futures aside."""

    def __init__(
        self, file: io.BytesIO, home: dict[str, Any], buffer_callback: Callable[[pickle.PickleBuffer], bool]
    ) -> None:
        super().__init__(file, protocol=5, buffer_callback=buffer_callback)
        self._own_home = home
        self.needs: set[str] = set()
        self.imports: set[str] = set()
        self.futures: list[Any] = []

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is FunctionType and _may_import(obj.__code__):
            # A relative import inside it needs the package that it comes from; an installed one is left out later.
            self.imports.add(str(obj.__module__))
        if type(obj) is FunctionType and obj.__globals__ is self._own_home:
            self.needs |= globals_of(obj.__code__)
            return _reduced_function(obj)
        if type(obj) is CodeType:
            self.imports |= imported_by(obj)
            # Cloudpickle would drop the file's name, and tracebacks could not show the cell's lines.
            return marshal.loads, (marshal.dumps(obj),)
        client_module = sys.modules.get("distributed.client")
        if client_module is not None and isinstance(obj, client_module.Future):
            self.futures.append(obj)
            return _filled_place, (len(self.futures) - 1,)
        return super().reducer_override(obj)


def imported_by(code: CodeType) -> frozenset[str]:
    """Return the full names of the modules that `code`, and the code inside it, imports absolutely."""
    import dis

    found: set[str] = set()
    waiting = [code]
    while waiting:
        each = waiting.pop()
        waiting += [inner for inner in each.co_consts if isinstance(inner, CodeType)]
        if not _may_import(each):
            continue
        steps = list(dis.get_instructions(each))
        for number, step in enumerate(steps):
            if step.opname == "IMPORT_NAME" and not _is_relative(steps[:number]):
                found.add(str(step.argval))
    return frozenset(found)


def _may_import(code: CodeType) -> bool:
    import opcode

    # Reading instructions is slow, and few functions import; the code's bytes say at once that one does not.
    return opcode.opmap["IMPORT_NAME"] in code.co_code[::2]


def _is_relative(before: Sequence[Any]) -> bool:
    """Return whether the import's level, the constant loaded before its list of names, is above 0."""
    constants = [step.argval for step in before[-2:] if step.opname in {"LOAD_CONST", "LOAD_SMALL_INT"}]
    return bool(constants) and isinstance(constants[0], int) and constants[0] > 0


def _filled_place(number: int) -> Any:
    return _values.get()[number]


def _reduced_function(function: FunctionType) -> tuple[Any, ...]:
    """Reduce `function` to its parts without its globals; the parts follow once it exists, so it may hold itself."""
    cells = [_cell_content(cell) for cell in function.__closure__ or ()]
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


def _cell_content(cell: CellType) -> tuple[Any, ...]:
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
