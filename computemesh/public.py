"""The types of the public face: what ``import computemesh as mesh`` offers, whichever room brings it.

Nothing here runs: the names are found by entry point (see `rooms`), and this module tells type checkers and readers
what they are.
"""

from __future__ import annotations

import concurrent.futures
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ParamSpec, Protocol, TypeVar, overload

Parameters = ParamSpec("Parameters")
Result_co = TypeVar("Result_co", covariant=True)


class MeshFuture(Protocol):
    """A result to come; it is a Dask future too."""

    key: Any

    @property
    def status(self) -> str | None:
        """``pending``, ``finished``, ``error``, ``cancelled`` or ``lost``."""

    def result(self, timeout: float | str | None = None) -> Any:
        """Wait and return the result, or raise what the task raised."""

    def exception(self, timeout: float | str | None = None) -> BaseException | None:
        """Wait and return what the task raised, None if it finished."""

    def done(self) -> bool:
        """Return whether it has ended."""

    def cancel(self) -> None:
        """Ask that it be ended."""


class NodeRow(Protocol):
    """One node as a person sees it; None means that nobody knows."""

    @property
    def name(self) -> str:
        """The node's name in the mesh."""

    @property
    def state(self) -> str:
        """In words: ``takes tasks``, or why it does not."""

    @property
    def available(self) -> bool:
        """Whether it takes tasks now."""

    @property
    def cores(self) -> float:
        """Cores lent to the mesh."""

    @property
    def ram(self) -> int:
        """Bytes lent to the mesh."""

    @property
    def load(self) -> float | None:
        """CPU in percent of the machine."""

    @property
    def score(self) -> float | None:
        """NodeScore, 0…1."""


class Placement(Protocol):
    """Why a task runs where it does."""

    @property
    def sentence(self) -> str:
        """The explanation in a sentence."""

    @property
    def chosen(self) -> str:
        """The node that got the task; empty while none has."""

    @property
    def excluded(self) -> Mapping[str, tuple[str, ...]]:
        """The nodes that could not get it, and why."""


class Mesh(Protocol):
    """A connection to a mesh, to any Dask cluster, or to threads of this process."""

    @property
    def client(self) -> Any:
        """The Dask client behind it."""

    @property
    def local(self) -> bool:
        """Whether there is no mesh and work runs on threads of this process."""

    def nodes(self) -> Sequence[NodeRow]:
        """Return the nodes, as a list that shows itself as a table."""

    def why(self, task: Any) -> Placement:
        """Explain the placement of a future or key."""

    def close(self) -> None:
        """Close the connection."""


def connect(
    address: str | None = None,
    *,
    home: str | os.PathLike[str] | None = None,
    client: Any = None,
    timeout: float | None = None,
) -> Mesh:
    """Connect this process to a mesh and make it the default."""
    raise NotImplementedError


class Task(Protocol[Parameters, Result_co]):
    """A function that says what it asks of a node: an ordinary function that can do a little more."""

    __name__: str

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result_co:
        """Run it here, as ever."""

    def submit(self, *args: Any, **kwargs: Any) -> MeshFuture:
        """Run it on the mesh; as `mesh.submit`."""

    def map(self, *iterables: Iterable[Any], **kwargs: Any) -> list[MeshFuture]:
        """Run it once for each item; as `mesh.map`."""

    def local(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Any:
        """Run it here as a node would, on copies, so that what cannot travel is refused here already."""

    def options(
        self,
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
    ) -> Task[Parameters, Result_co]:
        """Return a variant that asks for something else; None takes a field away."""


@overload
def task(function: Callable[Parameters, Result_co], /) -> Task[Parameters, Result_co]: ...
@overload
def task(
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
) -> Callable[[Callable[Parameters, Result_co]], Task[Parameters, Result_co]]: ...
def task(*args: Any, **kwargs: Any) -> Any:
    """Say what a function asks of the node that runs it; it stays an ordinary function."""
    raise NotImplementedError


def submit(
    function: Callable[..., Any], /, *args: Any, job: str | None = None, ttl: float | str | None = None, **kwargs: Any
) -> MeshFuture:
    """Run one call on the mesh."""
    raise NotImplementedError


def map(  # noqa: A001
    function: Callable[..., Any],
    /,
    *iterables: Iterable[Any],
    progress: bool = False,
    job: str | None = None,
    ttl: float | str | None = None,
    **kwargs: Any,
) -> list[MeshFuture]:
    """Run one call for each item."""
    raise NotImplementedError


class Job(Protocol):
    """Some work on the mesh: its futures, how far it is, and how to end it."""

    id: str
    kind: str
    title: str
    kept: float | None

    @property
    def futures(self) -> list[MeshFuture]:
        """Its futures, in order."""

    @property
    def counts(self) -> Mapping[str, int]:
        """How many of its tasks are finished, failed, running, waiting or gone."""

    @property
    def status(self) -> str:
        """One word for all of them."""

    def result(self, timeout: float | None = None) -> Any:
        """Wait and return the result, of a map the list of results."""

    def cancel(self) -> None:
        """End it."""

    def forget(self) -> None:
        """Keep it no longer."""


def jobs() -> Sequence[Job]:
    """Return this user's jobs, as a list that shows itself as a table."""
    raise NotImplementedError


def job(id: str | int) -> Job:  # noqa: A002 - what users call it
    """Pick up a job by its number, or by the name that it is kept under."""
    raise NotImplementedError


def keep(futures: Any, name: str, *, ttl: float | str | None = None, kind: str = "map", title: str = "") -> Job:
    """Keep futures on the mesh under a name after this process has ended."""
    raise NotImplementedError


class Uploads(Protocol):
    """Files that go with runs."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Where they lie on a node, relative to a run's working directory."""

    @property
    def size(self) -> int:
        """Bytes in all."""

    def forget(self) -> None:
        """Let runs that start from now on do without them."""


def upload(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    to: str | None = None,
    *,
    limit: int | str | None = None,
) -> Uploads:
    """Send files and folders along with everything that runs on the mesh from now on."""
    raise NotImplementedError


class Executor(concurrent.futures.Executor):
    """The mesh in the shape of `concurrent.futures`; its fields are those of `task`."""

    def __init__(self, **fields: Any) -> None: ...


def preset(name: str) -> AbstractContextManager[Any]:
    """Apply settings for ``"many-small"``, ``"few-large"`` or ``"io"`` work."""
    raise NotImplementedError


def register_joblib() -> None:
    """Make ``joblib.parallel_config(backend="mesh")`` work."""
    raise NotImplementedError


def gather(futures: Any, errors: str = "raise") -> Any:
    """Wait for futures and return their results in the same shape."""
    raise NotImplementedError


def as_completed(futures: Iterable[MeshFuture], *, with_results: bool = False) -> Iterator[Any]:
    """Yield futures as they finish."""
    raise NotImplementedError


def cancel(futures: Any) -> None:
    """Cancel futures."""
    raise NotImplementedError


def nodes() -> Sequence[NodeRow]:
    """Return the mesh's nodes."""
    raise NotImplementedError


def why(task: Any) -> Placement:
    """Explain where a task runs and why there."""
    raise NotImplementedError


def run(source: str, options: str = "") -> Any:
    """Run code on the mesh as ``%%mesh`` runs a cell."""
    raise NotImplementedError
