"""joblib's backend ``"mesh"``: ``with joblib.parallel_config(backend="mesh"):`` runs scikit-learn's search on the mesh.

An array that many calls share is hashed once for a `Parallel` call and sent to each node once. Parallel calls inside
a call run one after the other in its own slot: the mesh already runs as many calls as it has slots.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from joblib._parallel_backends import AutoBatchingMixin, ParallelBackendBase, SequentialBackend

from .tasks import checked


class MeshBackend(AutoBatchingMixin, ParallelBackendBase):
    """Runs joblib's batches on the mesh; options are what each asks of its node, as in `mesh.task`."""

    supports_retrieve_callback = True
    default_n_jobs = -1
    # joblib sizes its batches for these times; a message to a node takes longer than one to a process here.
    MIN_IDEAL_BATCH_DURATION = 0.2
    MAX_IDEAL_BATCH_DURATION = 2.0

    def __init__(
        self, nesting_level: int | None = None, inner_max_num_threads: int | None = None, **fields: Any
    ) -> None:
        super().__init__(nesting_level=nesting_level or 0, inner_max_num_threads=inner_max_num_threads)
        self._fields = checked(fields)
        self._futures: set[Any] = set()

    def __reduce__(self) -> tuple[Any, ...]:
        # Inside a call on a node there is nothing to submit to.
        return SequentialBackend, ()

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Return how many calls run at once: the mesh's slots, or fewer when fewer were asked for."""
        from .connection import current

        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        slots: int = max(1, sum(current().client.nthreads().values()))
        if n_jobs is None or n_jobs == 1:
            return 1
        return slots if n_jobs < 0 else min(n_jobs, slots)

    def configure(self, n_jobs: int = 1, parallel: Any = None, **_settings: Any) -> int:
        """Called by `Parallel` before each use."""
        self.parallel = parallel
        return self.effective_n_jobs(n_jobs)

    def submit(self, func: Callable[[], Any], callback: Callable[[Any], None] | None = None) -> Any:
        """Run one batch on the mesh."""
        from .sending import Call

        # Hashed anew for each batch: joblib's generators may refill an array between two of them.
        call = Call.of(_batch, self._fields)
        future = call.sent([[func]], {}, None)[0]
        self._futures.add(future)

        def ended(done: Any) -> None:
            self._futures.discard(done)
            if callback is not None:
                callback(future)

        future.add_done_callback(ended)
        return future

    def retrieve_result_callback(self, out: Any) -> Any:
        """Return a batch's results, or raise what it raised."""
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancel what has not ended; called when one call failed."""
        futures, self._futures = list(self._futures), set()
        if futures:
            # A scheduler that is gone has cancelled them already.
            with suppress(OSError):
                futures[0].client.cancel(futures, force=True)

    def get_nested_backend(self) -> tuple[Any, int | None]:
        """Return what parallel calls inside a call use."""
        return SequentialBackend(nesting_level=(self.nesting_level or 0) + 1), None


def _batch(calls: Callable[[], Any]) -> Any:
    return calls()
