"""The SDK: ``@mesh.task`` says what a function asks of a node; ``submit``, ``map`` and their kin send it there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from computemesh.errors import BadRequirement
from computemesh.requirement import FIELDS
from computemesh.task_spec import OPTIONS, task_spec_from

Function = TypeVar("Function", bound=Callable[..., Any])

LATER = ("replicas", "quorum", "checkpoint")
KNOWN = frozenset({*FIELDS, *OPTIONS, "priority"})
ATTRIBUTE = "__mesh__"
"""Where a decorated function carries what it asks; the scheduler plugin reads it there."""
PRIORITY = "__mesh_priority__"
"""Where it carries its priority, which is Dask's business and not the plugin's."""


def task(function: Any = None, /, **asked: Any) -> Any:
    """Say what a function asks of the node that runs it. The function stays an ordinary function.

    It can be called as before, and works in `mesh.submit`, `mesh.map`, `dask.delayed`, `map_blocks` and
    `client.submit` alike; wherever it runs as a task of the mesh, its requirements count.

    Args:
        function: the function, when the decorator is used without arguments.
        cpu: cores, such as ``4`` or ``0.5``.
        ram: memory, such as ``"64GB"`` or ``"24GiB"``.
        gpu: GPUs; half of one is a counted share.
        vram: memory of one GPU, such as ``"16GB"``.
        cuda: the oldest CUDA version that will do, such as ``"12.2"``.
        network: throughput to the driver, such as ``"1Gbps"``.
        battery: least charge in percent of a node on battery.
        pool: the name of a pool that the node must be in.
        packages: Python packages, such as ``["torch>=2.4"]``.
        retries: how often to run it again after it raised.
        timeout: seconds after which it is ended; it then runs in a capsule.
        priority: higher goes first among this user's tasks.
        executor: ``"capsule"`` for a process of its own, ``"thread"`` for the worker's threads.

    Raises:
        BadRequirement: a value makes no sense, or nothing can be decorated with it; names the value.
    """
    spec = _checked(asked)

    def decorate(target: Function) -> Function:
        bare: Any = target.__func__ if isinstance(target, staticmethod | classmethod) else target
        if isinstance(bare, type) or not callable(bare):
            raise BadRequirement(f"@mesh.task decorates functions and methods, not {_named(target)}")
        try:
            setattr(bare, ATTRIBUTE, {name: value for name, value in spec.items() if name != "priority"})
            if "priority" in spec:
                setattr(bare, PRIORITY, spec["priority"])
        except AttributeError:
            raise BadRequirement(
                f"@mesh.task cannot mark {_named(target)}: wrap it in a function of your own"
            ) from None
        return target

    return decorate if function is None else decorate(function)


def submit(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Run ``function(*args, **kwargs)`` on the mesh and return a `MeshFuture` of its result.

    Keywords that `task` knows (``cpu=4``, ``ram="8GB"``, ``retries=2`` …) are for the mesh, unless the function has
    a parameter of that name; they count over those of its ``@mesh.task``. Futures among the arguments arrive as
    their values.

    Raises:
        BadRequirement: a value makes no sense; names it.
        DriverError: the mesh cannot be reached.
    """
    from .connection import current
    from .futures import mesh_future

    spec, passed, options = _asked_of(function, kwargs)
    client = current().client
    with _annotated(spec):
        return mesh_future(client.submit(_as_task(function), *args, **passed, **options))


def map(function: Callable[..., Any], /, *iterables: Iterable[Any], **kwargs: Any) -> list[Any]:  # noqa: A001
    """Run `function` once for each item (for each row of items with several iterables); return the futures in order.

    Keywords as in `submit`.
    """
    from .connection import current
    from .futures import mesh_future

    if not iterables:
        raise TypeError("mesh.map needs something to go over: mesh.map(function, items)")
    spec, passed, options = _asked_of(function, kwargs)
    client = current().client
    with _annotated(spec):
        futures = client.map(_as_task(function), *[list(items) for items in iterables], **passed, **options)
    return [mesh_future(future) for future in futures]


def gather(futures: Any, errors: str = "raise") -> Any:
    """Wait for futures, nested as you like, and return their results in the same shape.

    Args:
        futures: a future, or lists, tuples, sets and dicts of futures.
        errors: ``"raise"``, or ``"skip"`` to leave failed ones out.
    """
    from .connection import current
    from .futures import flat, gather_all

    found = flat(futures)
    # Their own client knows why they are lost, even while a new one is being opened.
    return gather_all(found[0].client if found else current().client, futures, errors)


def as_completed(futures: Iterable[Any], *, with_results: bool = False) -> Iterator[Any]:
    """Yield futures as they finish, or ``(future, result)`` pairs."""
    import distributed

    from .futures import MeshFuture

    given = list(futures)
    by_key = {future.key: future for future in given}
    loop = given[0].client.loop if given else None
    for future in distributed.as_completed(given, loop=loop) if given else ():
        own = by_key.get(future.key, future)
        yield (own, own.result()) if with_results and isinstance(own, MeshFuture) else own


def cancel(futures: Any) -> None:
    """Cancel futures: what waits does not start, what runs in a capsule is ended, what runs in a thread is dropped."""
    from .connection import current
    from .futures import flat

    current().client.cancel(list(flat(futures)) or [futures], force=True)


def nodes() -> Any:
    """Return the mesh's nodes, as a list that shows itself as a table."""
    from .connection import current

    return current().nodes()


def why(task: Any) -> Any:
    """Explain where the task of a future or key runs and why there, or why it does not run."""
    from .connection import current

    return current().why(task)


# ---------------------------------------------------------------- what is asked


def spec_of(function: Any) -> dict[str, Any]:
    """Return what ``@mesh.task`` wrote on `function`, through partials and bound methods."""
    while hasattr(function, "func") and not hasattr(function, ATTRIBUTE):
        function = function.func
    found = dict(getattr(function, ATTRIBUTE, None) or {})
    if hasattr(function, PRIORITY):
        found["priority"] = getattr(function, PRIORITY)
    return found


def split_keywords(function: Any, kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the keywords that are for the mesh, and those that are for `function`."""
    own = _parameters(function)
    known = {*KNOWN, *LATER}
    asked = {name: value for name, value in kwargs.items() if name in known and name not in own}
    passed = {name: value for name, value in kwargs.items() if name not in asked}
    return asked, passed


def _asked_of(function: Any, kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return what a call asks of the mesh, the keywords for `function`, and those for Dask's `submit` or `map`."""
    asked, passed = split_keywords(function, kwargs)
    spec = {**spec_of(function), **_checked(asked)}
    # Dask has its own words for these two.
    options = {"retries": spec.get("retries"), "priority": spec.get("priority", 0), "pure": False}
    return spec, passed, options


def _parameters(function: Any) -> frozenset[str]:
    import inspect

    try:
        return frozenset(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return frozenset()


def _checked(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was asked as plain data, in the units that `Requirement` uses; `priority` stays beside it."""
    asked = {name: value for name, value in asked.items() if value is not None}
    for name in LATER:
        if name in asked:
            raise BadRequirement(f"{name}={asked[name]!r}: {name} comes with a later release; leave it out for now")
    if "priority" in asked:
        _check_priority(asked["priority"])
    unknown = sorted(set(asked) - KNOWN)
    if unknown:
        raise BadRequirement(f"Unknown option {unknown[0]!r}: a task can ask for {', '.join(sorted(KNOWN))}")
    spec = task_spec_from({name: value for name, value in asked.items() if name != "priority"})
    if spec.timeout and spec.executor == "thread":
        raise BadRequirement(f"timeout={asked['timeout']!r} needs executor='capsule': a thread cannot be ended")
    found = spec.to_spec()
    if spec.timeout:
        # Only a process of its own can be ended in time.
        found["executor"] = "capsule"
    return found | ({"priority": asked["priority"]} if "priority" in asked else {})


def _check_priority(value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadRequirement(f"priority={value!r} is not usable: give a whole number; higher goes first")


def _named(target: Any) -> str:
    return getattr(target, "__qualname__", None) or repr(target)


@contextmanager
def _annotated(spec: Mapping[str, Any]) -> Iterator[None]:
    import dask

    # Dask has its own words for these two; the plugin reads the rest.
    rest = {name: value for name, value in spec.items() if name not in {"retries", "priority"}}
    if not rest:
        yield
        return
    with dask.annotate(mesh=rest):
        yield


def _as_task(function: Any) -> Any:
    """Return `function` in a form that a task can be: coroutines are run, a generator's items become a list."""
    import inspect

    if inspect.isasyncgenfunction(function):
        raise BadRequirement(f"{_named(function)} is an async generator, which cannot run as a task: return a list")
    if inspect.isgeneratorfunction(function):
        return _Listed(function)
    if inspect.iscoroutinefunction(function):
        return _Awaited(function)
    return function


class _Wrapped:
    """A function in another form, under its own name."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.__name__ = getattr(function, "__name__", "task")


class _Listed(_Wrapped):
    """A generator function that returns its items as a list."""

    def __call__(self, *args: Any, **kwargs: Any) -> list[Any]:
        return list(self.function(*args, **kwargs))


class _Awaited(_Wrapped):
    """A coroutine function that runs in a loop of its own, so that it does not hold up the worker's."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        import asyncio

        return asyncio.run(self.function(*args, **kwargs))
