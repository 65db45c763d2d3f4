"""The SDK's verbs: ``submit``, ``map`` and their kin send functions to the mesh and wait for what they come to."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .tasks import checked, parameters_of, spec_of, split_keywords

OWN_WORDS = frozenset({"job", "ttl", "progress"})
"""Keywords of `submit` and `map` that ask nothing of a node."""


def submit(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Run ``function(*args, **kwargs)`` on the mesh and return a `MeshFuture` of its result.

    Keywords that `task` knows (``cpu=4``, ``ram="8GB"``, ``retries=2`` …) are for the mesh, unless the function has
    a parameter of that name; they count over those of its ``@mesh.task``. Futures among the arguments arrive as
    their values; large arguments are sent once.

    ``job="name"`` keeps the result on the mesh after this notebook has ended, for ``ttl`` (``"7 days"``): pick it up
    with ``mesh.job("name")``.

    Raises:
        BadRequirement: a value makes no sense; names it.
        CannotShip: the function or an argument cannot travel; names it.
        DriverError: the mesh cannot be reached.
    """
    own, kwargs = _own_words(function, kwargs, progress=False)
    asked, passed = split_keywords(function, kwargs)
    call = Call.of(function, asked)
    return own.kept(function, call.sent([args], {}, [passed]))[0]


def map(function: Callable[..., Any], /, *iterables: Iterable[Any], **kwargs: Any) -> list[Any]:  # noqa: A001
    """Run `function` once for each item (for each row of items with several iterables); return the futures in order.

    Keywords as in `submit`; those for the function are the same for all items, and sent once. ``progress=True`` shows
    a live bar and waits until all have ended; failures stay in their futures.
    """
    if not iterables:
        raise TypeError("mesh.map needs something to go over: mesh.map(function, items)")
    own, kwargs = _own_words(function, kwargs, progress=True)
    asked, passed = split_keywords(function, kwargs)
    call = Call.of(function, asked)
    futures = own.kept(function, call.sent(list(zip(*iterables, strict=False)), passed, None))
    if own.progress and futures:
        from .map_progress import show_progress

        show_progress(futures, call.name)
    return futures


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


# ---------------------------------------------------------------- how a call is sent


@dataclass(frozen=True)
class _OwnWords:
    """The keywords that are about the submission itself."""

    job: str | None
    ttl: Any
    progress: bool

    def kept(self, function: Any, futures: list[Any]) -> list[Any]:
        """Keep the futures under the job's name, if there is one, and make them known to `mesh.jobs`."""
        from .calls import named
        from .jobs import keep, register

        title = named(function)
        if self.job is not None:
            keep(futures, self.job, ttl=self.ttl, kind="map" if len(futures) > 1 else "submit", title=title)
        elif futures:
            register("map" if len(futures) > 1 else "submit", title, futures)
        return futures


def _own_words(function: Any, kwargs: Mapping[str, Any], *, progress: bool) -> tuple[_OwnWords, dict[str, Any]]:
    words = OWN_WORDS if progress else OWN_WORDS - {"progress"}
    mine = words - parameters_of(function)
    rest = {name: value for name, value in kwargs.items() if name not in mine}
    found = {name: value for name, value in kwargs.items() if name in mine}
    job = found.get("job")
    if job is not None or "ttl" in found:
        from .jobs import check_name, seconds_of

        check_name(job)
        seconds_of(found.get("ttl"))
    return _OwnWords(job, found.get("ttl"), bool(found.get("progress", False))), rest


@dataclass
class Call:
    """A function that is about to be sent, with what it asks."""

    function: Callable[..., Any]
    name: str
    spec: dict[str, Any]
    shipment: Any
    client: Any
    uploads: Any

    @classmethod
    def of(cls, function: Callable[..., Any], asked: Mapping[str, Any]) -> Call:
        """Check what is asked, then connect."""
        from computemesh import config

        from .connection import current
        from .ship_once import Shipment

        usual = {name: value for name, value in config.section("tasks").items() if value}
        spec = checked({**usual, **spec_of(function), **asked})
        mesh = current()
        return cls(function, _key_name(function), spec, Shipment(mesh), mesh.client, mesh.uploads)

    def sent(
        self, rows: Sequence[Sequence[Any]], shared: Mapping[str, Any], own: Sequence[Mapping[str, Any]] | None
    ) -> list[Any]:
        """Send one call for each row of arguments; `own` are each call's own keywords."""
        from .calls import packed_arguments, packed_function, run_call
        from .futures import mesh_future
        from .local_modules import by_value

        if not rows:
            return []
        keywords = own or [{}] * len(rows)
        with by_value():
            function = packed_function(self.function, shared, self.shipment, self.uploads)
            calls = [
                packed_arguments(self.function, row, each, self.shipment)
                for row, each in zip(rows, keywords, strict=True)
            ]
        run = uuid.uuid4().hex[:16]
        keys = [
            f"{self.name}-{run}-{number}" if len(calls) > 1 else f"{self.name}-{run}" for number in range(len(calls))
        ]
        # Dask has its own words for these two; the plugin reads the rest.
        options = {"retries": self.spec.get("retries"), "priority": self.spec.get("priority", 0), "pure": False}
        data = self._function_data(function, run, len(calls))
        with _annotated(self.spec):
            if len(calls) == 1:
                futures = [
                    self.client.submit(
                        run_call, data, list(function.futures), calls[0].data, list(calls[0].futures),
                        key=keys[0], **options,
                    )
                ]  # fmt: skip
            else:
                futures = self.client.map(
                    run_call,
                    [data] * len(calls),
                    [list(function.futures)] * len(calls),
                    [call.data for call in calls],
                    [list(call.futures) for call in calls],
                    key=keys,
                    **options,
                )
        return [mesh_future(future) for future in futures]

    def _function_data(self, function: Any, run: str, calls: int) -> Any:
        """Return the packed function, or for many calls of a large one a task whose result it is."""
        from .blobs import SHARED_BYTES, once_a_node

        data = function.data
        if calls == 1 or len(data) < SHARED_BYTES:
            return data
        return once_a_node(self.client, data, f"{self.name}_function-{run}")


def _key_name(function: Any) -> str:
    """Return how Dask and its dashboard call the tasks of `function`."""
    from dask.utils import funcname

    name = str(funcname(function))
    # Dask takes what stands before the first hyphen for the tasks' common name.
    return name.replace("-", "_") if name.isprintable() and len(name) < 80 else "task"


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
