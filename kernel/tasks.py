"""``@mesh.task``: says what a function asks of the node that runs it, and leaves an ordinary function behind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import FunctionType
from typing import Any

from computemesh.errors import BadRequirement
from computemesh.requirement import FIELDS
from computemesh.task_spec import OPTIONS, task_spec_from

LATER = {"replicas": 1, "quorum": 1, "checkpoint": False}
"""Fields whose engines come with a later release, and the value that asks nothing, which is accepted."""
KNOWN = frozenset({*FIELDS, *OPTIONS, "priority", *LATER})
ATTRIBUTE = "__mesh__"
"""Where a decorated function carries what it asks; the scheduler plugin reads it there."""
PRIORITY = "__mesh_priority__"
"""Where it carries its priority, which is Dask's business and not the plugin's."""


def task(
    function: Any = None,
    /,
    *,
    cpu: float | str | None = None,
    ram: int | str | None = None,
    gpu: float | str | None = None,
    vram: int | str | None = None,
    cuda: float | str | None = None,
    network: int | str | None = None,
    battery: float | str | None = None,
    pool: str | None = None,
    packages: str | Iterable[str] | None = None,
    replicas: int | None = None,
    quorum: int | None = None,
    checkpoint: bool | float | str | None = None,
    retries: int | None = None,
    timeout: float | str | None = None,
    priority: int | None = None,
    executor: str | None = None,
) -> Any:
    """Say what a function asks of the node that runs it. The function stays an ordinary function.

    It can be called as before, and works in `mesh.submit`, `mesh.map`, `dask.delayed`, `map_blocks` and
    `client.submit` alike; wherever it runs as a task of the mesh, its requirements count. It gains ``.submit(…)`` and
    ``.map(…)``, as `mesh.submit` and `mesh.map`; ``.local(…)``, which runs it here as a node would, so that what
    cannot travel is refused here already; and ``.options(…)``, a variant that asks for something else.

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
        replicas: how many nodes run it at once, the first to finish counts. Only 1 so far.
        quorum: how many nodes must agree on the result. Only 1 so far.
        checkpoint: save its state, as often as ``"5 min"`` says. Only False so far.
        retries: how often to run it again after it raised.
        timeout: seconds, or ``"10 min"``, after which it is ended; it then runs in a capsule.
        priority: higher goes first among this user's tasks.
        executor: ``"capsule"`` for a process of its own, ``"thread"`` for the worker's threads.

    Raises:
        BadRequirement: a value makes no sense, or nothing can be decorated with it; names the value.
    """
    asked = {name: value for name, value in locals().items() if name != "function"}
    spec = checked(asked)

    def decorate(target: Any) -> Any:
        bare: Any = target.__func__ if isinstance(target, staticmethod | classmethod) else target
        if isinstance(bare, type) or not callable(bare):
            raise BadRequirement(f"@mesh.task decorates functions and methods, not {_named(target)}")
        try:
            _mark(bare, spec)
        except AttributeError:
            raise BadRequirement(
                f"@mesh.task cannot mark {_named(target)}: wrap it in a function of your own"
            ) from None
        return target

    return decorate if function is None else decorate(function)


def _mark(function: Any, spec: Mapping[str, Any]) -> None:
    setattr(function, ATTRIBUTE, {name: value for name, value in spec.items() if name != "priority"})
    if "priority" in spec:
        setattr(function, PRIORITY, spec["priority"])
    elif hasattr(function, PRIORITY):
        delattr(function, PRIORITY)
    for verb in (Submit, Map, Local, Options):
        setattr(function, verb.__name__.lower(), verb(function))


# ---------------------------------------------------------------- what a decorated function can do


class _Verb:
    """Something that a decorated function can do; called like a method of the function."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.function,)

    def __repr__(self) -> str:
        return f"<{_named(self.function)}.{type(self).__name__.lower()}>"

    def _fits(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        import inspect

        try:
            inspect.signature(self.function).bind(*args, **kwargs)
        except TypeError as error:
            name = _named(self.function)
            own = name.rpartition(".")[2]
            hint = f"; for a method use `mesh.submit(object.{own}, …)`" if "." in name.replace("<locals>.", "") else ""
            raise TypeError(f"{name}: {error}{hint}") from None


class Submit(_Verb):
    """Run it on the mesh and return a `MeshFuture`; see `mesh.submit`."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function once, on the mesh."""
        from .sending import OWN_WORDS, submit

        passed = split_keywords(self.function, kwargs)[1]
        self._fits(args, {name: value for name, value in passed.items() if name not in OWN_WORDS})
        return submit(self.function, *args, **kwargs)


class Map(_Verb):
    """Run it once for each item; see `mesh.map`."""

    def __call__(self, *iterables: Iterable[Any], **kwargs: Any) -> Any:
        """Run the function for each item, on the mesh."""
        from .sending import map as map_

        return map_(self.function, *iterables, **kwargs)


class Local(_Verb):
    """Run it here, as a node would."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function on copies of its arguments, as a node does, and return a copy of its result.

        Raises:
            CannotShip: the function, an argument or the result cannot travel; nothing else is caught.
        """
        from .calls import run_here

        self._fits(args, kwargs)
        return run_here(self.function, args, kwargs)


class Options(_Verb):
    """A variant that asks for something else."""

    def __call__(self, **fields: Any) -> Any:
        """Return the same function with these fields changed; None takes one away.

        Raises:
            BadRequirement: a value makes no sense; names it.
        """
        original = self.function
        if not isinstance(original, FunctionType):
            raise BadRequirement(f"{_named(original)} is no Python function: decorate it anew with other fields")
        asked = {**spec_of(original), **fields}
        if fields.get("timeout", 0) is None and "executor" not in fields:
            asked.pop("executor", None)
        spec = checked(asked)
        variant = FunctionType(
            original.__code__, original.__globals__, original.__name__, original.__defaults__, original.__closure__
        )
        variant.__kwdefaults__ = original.__kwdefaults__
        variant.__dict__.update(original.__dict__)
        for name in ("__qualname__", "__doc__", "__module__", "__annotations__"):
            setattr(variant, name, getattr(original, name))
        _mark(variant, spec)
        return variant


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
    own = parameters_of(function)
    asked = {name: value for name, value in kwargs.items() if name in KNOWN and name not in own}
    passed = {name: value for name, value in kwargs.items() if name not in asked}
    return asked, passed


def parameters_of(function: Any) -> frozenset[str]:
    """Return the names of what `function` takes; none for one that does not say."""
    import inspect

    try:
        return frozenset(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return frozenset()


def checked(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was asked as plain data, in the units that `Requirement` uses; `priority` stays beside it.

    Raises:
        BadRequirement: a name is unknown or a value makes no sense; names it.
    """
    asked = {name: value for name, value in asked.items() if value is not None}
    for name, neutral in LATER.items():
        if name in asked and (asked[name] != neutral or type(asked[name]) is not type(neutral)):
            raise BadRequirement(f"{name}={asked[name]!r}: {name} comes with a later release; leave it out for now")
        asked.pop(name, None)
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
