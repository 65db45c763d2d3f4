"""``mesh.Executor``: the mesh in the shape of `concurrent.futures`, for code that takes an executor."""

from __future__ import annotations

import concurrent.futures
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .tasks import checked


class Executor(concurrent.futures.Executor):
    """Runs calls on the mesh; its futures are those of `concurrent.futures`, for its `wait` and `as_completed`.

    Futures that it has returned may be arguments of further calls and arrive there as their results, without coming
    here. A future can be cancelled until it is done: what waits does not start, what runs in a capsule is ended.

    Args:
        fields: what each call asks of its node, as in `mesh.task`: ``mesh.Executor(cpu=2, retries=1)``.

    Raises:
        BadRequirement: a field makes no sense; names it.
    """

    def __init__(self, **fields: Any) -> None:
        self._fields = checked(fields)
        self._lock = threading.Lock()
        self._open: dict[concurrent.futures.Future[Any], Any] = {}
        self._closed = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> concurrent.futures.Future[Any]:
        """Run ``fn(*args, **kwargs)`` on the mesh.

        Raises:
            RuntimeError: the executor has been shut down.
            CannotShip: the function or an argument cannot travel; names it.
        """
        from .sending import Call

        with self._lock:
            if self._closed:
                raise RuntimeError("This mesh.Executor has been shut down: make a new one")
            own_args = [self._on_mesh(each) for each in args]
            own_kwargs = {name: self._on_mesh(each) for name, each in kwargs.items()}
        on_mesh = Call.of(fn, self._fields).sent([own_args], {}, [own_kwargs])[0]
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        future.mesh_future = on_mesh  # type: ignore[attr-defined]
        with self._lock:
            self._open[future] = on_mesh
        future.add_done_callback(self._ended)
        on_mesh.add_done_callback(lambda done: _settle(future, done))
        return future

    def map(
        self, fn: Callable[..., Any], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[Any]:
        """Run `fn` for each row of items and yield the results in order.

        Args:
            fn: the function.
            iterables: what it is run over; the shortest ends it.
            timeout: seconds from now until which all results must be there.
            chunksize: rows that one task of the mesh runs; larger is faster for very short calls.

        Raises:
            TimeoutError: from the iterator, when a result is late; the calls that have not ended are cancelled.
        """
        if chunksize < 1:
            raise ValueError(f"chunksize={chunksize!r}: give 1 or more")
        rows = list(zip(*iterables, strict=False))
        chunks = [rows[start : start + chunksize] for start in range(0, len(rows), chunksize)]
        deadline = None if timeout is None else time.monotonic() + timeout
        futures = [self.submit(_run_rows, fn, chunk) for chunk in chunks]
        return itertools.chain.from_iterable(_in_order(futures, deadline))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no further calls; wait for those that run, or cancel them."""
        with self._lock:
            self._closed = True
            waiting = list(self._open)
        if cancel_futures:
            for future in waiting:
                future.cancel()
        if wait:
            concurrent.futures.wait(waiting)

    def _on_mesh(self, value: Any) -> Any:
        """Return the mesh's own future for one of this executor's."""
        if isinstance(value, concurrent.futures.Future):
            return getattr(value, "mesh_future", value)
        return value

    def _ended(self, future: concurrent.futures.Future[Any]) -> None:
        with self._lock:
            on_mesh = self._open.pop(future, None)
        if future.cancelled():
            # Whoever waits for it learns of the cancellation only after this.
            future.set_running_or_notify_cancel()
            if on_mesh is not None:
                # In the client's own loop: this may be called from any thread, and must not wait.
                client = on_mesh.client
                client.loop.add_callback(client.cancel, [on_mesh], force=True, asynchronous=True)


def _settle(future: concurrent.futures.Future[Any], done: Any) -> None:
    try:
        if future.cancelled() or not future.set_running_or_notify_cancel():
            return
    except concurrent.futures.InvalidStateError:
        # Cancelled in this moment.
        return
    try:
        result = done.result()
    except BaseException as error:  # it is raised where the result is asked for
        future.set_exception(error)
    else:
        future.set_result(result)


def _run_rows(fn: Callable[..., Any], rows: list[tuple[Any, ...]]) -> list[Any]:
    return [fn(*row) for row in rows]


def _in_order(futures: list[concurrent.futures.Future[list[Any]]], deadline: float | None) -> Iterator[list[Any]]:
    try:
        for future in futures:
            yield future.result(None if deadline is None else deadline - time.monotonic())
    finally:
        for future in futures:
            future.cancel()
