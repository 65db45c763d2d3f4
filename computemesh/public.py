"""The types of the public face: what ``import computemesh as mesh`` offers, whichever room brings it.

Nothing here runs: the names are found by entry point (see `rooms`), and this module tells type checkers and readers
what they are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar, overload

Function = TypeVar("Function", bound=Callable[..., Any])


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


@overload
def task(function: Function, /) -> Function: ...
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
    retries: int | None = None,
    timeout: float | str | None = None,
    priority: int | None = None,
    executor: str | None = None,
) -> Callable[[Function], Function]: ...
def task(*args: Any, **kwargs: Any) -> Any:
    """Say what a function asks of the node that runs it; it stays an ordinary function."""
    raise NotImplementedError


def submit(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> MeshFuture:
    """Run one call on the mesh."""
    raise NotImplementedError


def map(function: Callable[..., Any], /, *iterables: Iterable[Any], **kwargs: Any) -> list[MeshFuture]:  # noqa: A001
    """Run one call for each item."""
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
