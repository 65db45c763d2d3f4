"""Runs one call on a node: what `mesh.submit`, `mesh.map`, the executor and joblib's backend send there.

Function and arguments come as opaque bytes, so that a scheduler that lacks the notebook's modules never reads them.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from computemesh.errors import BadRequirement, CannotShip

from .run_files import FILES, in_working_directory
from .ship_once import Shipment
from .shipping import Packed, Packer, unpack
from .traceback_text import first_line
from .uploads import Uploads, with_files

FUNCTION = "__mesh_function__"
"""The name under which the function travels among the keywords of its call."""


def run_call(function: bytes, values: Sequence[Any], arguments: bytes, argument_values: Sequence[Any]) -> Any:
    """Unpack a call and run it: coroutines are awaited, a generator's items become a list.

    Args:
        function: the packed function, the keywords that all its calls share, and its files.
        values: what the futures in `function` came to.
        arguments: this call's packed arguments.
        argument_values: what the futures in `arguments` came to.
    """
    keywords = unpack(function, {"__name__": "__main__"}, values)
    args, kwargs = unpack(arguments, {"__name__": "__main__"}, argument_values)
    called = keywords.pop(FUNCTION)
    with in_working_directory(keywords.pop(FILES, None)):
        return finished(called(*args, **keywords, **kwargs))


def finished(result: Any) -> Any:
    """Return what a call came to, once a coroutine has been awaited and a generator run to its end."""
    if inspect.iscoroutine(result):
        # A loop of its own, so that it does not hold up the worker's.
        return asyncio.run(result)
    if inspect.isgenerator(result):
        return list(result)
    return result


def packed_function(
    function: Callable[..., Any], keywords: Mapping[str, Any], shipment: Shipment, uploads: Uploads
) -> Packed:
    """Pack what all calls of one submission share.

    Raises:
        BadRequirement: the function cannot run as a task.
        CannotShip: it, or a keyword, cannot travel; named.
    """
    if inspect.isasyncgenfunction(function):
        raise BadRequirement(f"{named(function)} is an async generator, which cannot run as a task: return a list")
    packer = Packer({}, local_modules=True)
    _add(packer, FUNCTION, function, f"the function `{named(function)}`")
    for name, value in keywords.items():
        _add(packer, name, value, f"the argument `{name}` of `{named(function)}`")
    return shipment.shipped(with_files(packer.packed(named=True), uploads))


def packed_arguments(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], shipment: Shipment
) -> Packed:
    """Pack one call's own arguments.

    Raises:
        CannotShip: one cannot travel; named.
    """
    return shipment.shipped(_row(function, args, kwargs))


def _row(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Packed:
    packer = Packer({}, local_modules=True)
    try:
        packer.add("", (tuple(args), dict(kwargs)))
    except Exception as error:  # pickling runs the user's own code
        raise _culprit(function, args, kwargs, error) from None
    return packer.packed(named=False)


def named(target: Any) -> str:
    """Return what a function is called, for a sentence."""
    while hasattr(target, "func"):
        target = target.func
    return getattr(target, "__qualname__", None) or repr(target)


def _add(packer: Packer, name: str, value: Any, what: str) -> None:
    try:
        packer.add(name, value)
    except Exception as error:  # pickling runs the user's own code
        raise CannotShip(f"Cannot send {what} to the mesh: {first_line(error)}") from None


def _culprit(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], error: Exception
) -> CannotShip:
    for name, value in [*((f"number {place + 1}", each) for place, each in enumerate(args)), *kwargs.items()]:
        try:
            Packer({}, local_modules=True).add("", value)
        except Exception as own:  # pickling runs the user's own code
            kind = type(value).__qualname__
            return CannotShip(
                f"Cannot send argument {name} of `{named(function)}`, a {kind}, to the mesh: {first_line(own)}. Make "
                "it inside the function, or send what it is made from"
            )
    return CannotShip(f"Cannot send the arguments of `{named(function)}` to the mesh: {first_line(error)}")


def run_here(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Run a call in this process as a node would: on copies, and with a copy of the result.

    Raises:
        CannotShip: the function, an argument or the result cannot travel.
    """
    home: dict[str, Any] = {"__name__": "__main__"}
    packer = Packer({}, local_modules=True)
    _add(packer, FUNCTION, function, f"the function `{named(function)}`")
    called = unpack(packer.packed(named=True).data, home)[FUNCTION]
    packed = _row(function, args, kwargs)
    own_args, own_kwargs = unpack(packed.data, home, [future.result() for future in packed.futures])
    result = finished(called(*own_args, **own_kwargs))
    back = Packer({}, local_modules=True)
    _add(back, "", result, f"the result of `{named(function)}`, a {type(result).__qualname__},")
    return unpack(back.packed(named=False).data, home)
