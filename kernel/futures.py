"""The mesh's future: Dask's, with one clear error when the scheduler that knew it is gone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distributed import CancelledError, Future

from computemesh.errors import Interrupted


class MeshFuture(Future):
    """A result to come. It is a Dask future and can be passed to other tasks, to Dask and to `%%mesh` cells."""

    async def _result(self, raiseit: bool = True) -> Any:
        try:
            return await super()._result(raiseit)
        except CancelledError as error:
            raise _clear(error, getattr(self.client, "lost_at", None)) from None
        except FileNotFoundError as error:
            note_file(error)
            raise

    def __reduce__(self) -> tuple[Any, ...]:
        # On the nodes it is Dask's own: they need not know this class.
        return Future, (self.key,)

    def __repr__(self) -> str:
        return f"<MeshFuture: {self.status}, key: {self.key}>"


def mesh_future(future: Any) -> MeshFuture:
    """Return a `MeshFuture` for the same result."""
    return MeshFuture(future.key, future.client)


def scheduler_gone(error: BaseException, lost_at: float | None) -> Interrupted | None:
    """Return the one error for a result that was lost with its scheduler; None when `error` says something else."""
    # A single future's error names its reason, the one for several only in its text.
    reasons = f"{getattr(error, 'reason', '')} {error}"
    if not isinstance(error, CancelledError) or "scheduler-connection-lost" not in reasons:
        return None
    when = time.strftime("%H:%M:%S", time.localtime(lost_at)) if lost_at else "a moment ago"
    return Interrupted(
        f"The mesh's scheduler was restarted at {when} (or the connection to it was lost), and what was running "
        "there is lost: submit again"
    )


def _clear(error: CancelledError, lost_at: float | None) -> BaseException:
    return scheduler_gone(error, lost_at) or Interrupted(f"The task {getattr(error, 'key', '')} was cancelled")


def note_file(error: FileNotFoundError) -> None:
    """Note on an error from a node what to do when the file exists here."""
    name = error.filename
    if isinstance(name, str) and Path(name).exists() and not getattr(error, "__notes__", None):
        error.add_note(f"The file exists here, not on the node: `mesh.upload({name!r})` sends it along with all runs")


def gather_all(client: Any, futures: Any, errors: str = "raise") -> Any:
    """Return the results of nested futures, as Dask's `gather`, with our error for a lost scheduler."""
    try:
        return client.gather(futures, errors=errors)
    except CancelledError as error:
        raise _clear(error, getattr(client, "lost_at", None)) from None
    except FileNotFoundError as error:
        note_file(error)
        raise


def flat(futures: Any) -> Sequence[Any]:
    """Return the futures in a nested list, tuple, set or dict."""
    from distributed.client import futures_of

    found: Sequence[Any] = futures_of(futures)
    return found
