"""The Dask worker of a node, in a process of its own under its agent.

``python -m computemesh.node_agent.worker``: the first line on stdin holds `WorkerSettings`, each further one a
`protocol.ToWorker`; `protocol.FromWorker` goes out on stdout, one a line. It ends with its agent, and with the
scheduler: the agent knows better when and where to start again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from computemesh import protocol

from .handing_back import go_on, hand_back, sent
from .processes import die_with_parent, step_back

if TYPE_CHECKING:
    pass

logger = logging.getLogger("computemesh.node_agent")

RETIRED = 0
CANNOT_START = 3
SCHEDULER_LOST = 4
"""Exit codes; any other means that something went wrong inside."""

START_SECONDS = 60.0
FINISH_SECONDS = 5.0
"""How long running tasks may take to end after `Retire`."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What a worker is told at its start."""

    agent: int
    """The agent's process id."""
    name: str
    scheduler: str
    identity: str
    """Folder of the node's identity."""
    nthreads: int
    memory_limit: int
    """Bytes."""
    local_directory: str
    host: str
    """Address to listen on; it is also what peers are told."""
    dedicated: bool = False


def main() -> None:
    """Serve until told to retire, or until the agent or the scheduler is gone."""
    told = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    settings = msgspec.json.decode(sys.stdin.buffer.readline(), type=WorkerSettings)
    die_with_parent(settings.agent)
    step_back(settings.dedicated)
    logging.basicConfig(format="%(asctime)s %(name)s %(levelname)s %(message)s", level=logging.INFO)
    asyncio.run(_serve_and_end(_Serving(settings, told)))


async def _serve_and_end(serving: _Serving) -> None:
    """End the process from within the loop: closing the loop would wait for threads that may still be in a task."""
    code = await serving.run()
    logging.shutdown()
    os._exit(code)


class _Serving:
    def __init__(self, settings: WorkerSettings, told: BinaryIO) -> None:
        self._settings = settings
        self._told = told
        self._telling = threading.Lock()
        self._retire = asyncio.Event()
        self._closing = asyncio.Event()

    async def run(self) -> int:
        # Dask is imported here, after the process has stepped back.
        import dask.config
        from distributed import Worker
        from distributed.core import Status

        from computemesh.dask_security import MeshSecurity
        from computemesh.guard import Guard
        from computemesh.identity import HOME_VARIABLE, load_identity

        from .capsules import CapsulePlugin

        settings = self._settings
        # Whatever runs here runs for others: it must not find the identity of this machine's owner.
        os.environ[HOME_VARIABLE] = str(Path(settings.local_directory, "nobodys-home"))
        # The memory monitor would otherwise undo a pause that the agent or scheduler ordered.
        dask.config.set({"distributed.worker.memory.pause": False})
        security = MeshSecurity(load_identity(Path(settings.identity)))
        guard = Guard("worker", self._refused)
        try:
            worker = Worker(
                settings.scheduler,
                name=settings.name,
                nthreads=settings.nthreads,
                memory_limit=settings.memory_limit,
                local_directory=settings.local_directory,
                host=settings.host,
                protocol="tls://",
                security=security,
                dashboard=False,
                death_timeout=START_SECONDS,
                plugins=[plugin := CapsulePlugin()],
            )
            # Dask opens a plain HTTP port even when its dashboard is off.
            worker.start_http_server = lambda *_, **__: None
            guard.install(worker)
            self._notice_closing(worker)
            self._listen_to_agent(guard, worker)
            await worker
        except Exception as error:
            logger.exception("the worker cannot start")
            self._tell(protocol.WorkerFailed(text=f"{type(error).__name__}: {error}"))
            return CANNOT_START
        self._tell(protocol.WorkerReady(address=worker.address))
        closing = asyncio.ensure_future(self._closing.wait())
        watching = asyncio.ensure_future(self._say_when_busy(worker))
        retire = asyncio.ensure_future(self._retire.wait())
        await asyncio.wait({closing, retire}, return_when=asyncio.FIRST_COMPLETED)
        watching.cancel()
        if closing.done():
            logger.warning("the connection to the scheduler at %s has ended", settings.scheduler)
            if plugin.executor is not None:
                await asyncio.to_thread(plugin.executor.spares.close)
            return SCHEDULER_LOST
        worker.status = Status.closing_gracefully  # the scheduler sends nothing new and lets others take the queue
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FINISH_SECONDS):
                while worker.state.executing or worker.state.long_running:  # noqa: ASYNC110 - Dask has no event
                    await asyncio.sleep(0.05)
        await worker.close(reason="retired by its agent", executor_wait=False)
        return RETIRED

    def _notice_closing(self, worker: Any) -> None:
        """Hear that the worker begins to close, which Dask does when the scheduler has gone.

        Its own end comes up to 30 s later: it waits for running threads, whose results nobody can take any more.
        """
        stock = worker.close

        async def close(*args: Any, **kwargs: Any) -> Any:
            self._closing.set()
            return await stock(*args, **kwargs)

        worker.close = close

    def _tell(self, message: protocol.Message) -> None:
        with self._telling, contextlib.suppress(OSError):
            self._told.write(protocol.encode(message) + b"\n")
            self._told.flush()

    def _refused(self, kind: str, peer: str, text: str) -> None:
        logger.warning("%s: %s: %s", kind, peer, text)
        self._tell(protocol.Report(kind=kind, text=f"{peer}: {text}", data={"peer": peer}))

    def _listen_to_agent(self, guard: Any, worker: Any) -> None:
        loop = asyncio.get_running_loop()

        def obey(line: bytes) -> None:
            match protocol.decode(line, protocol.ToWorker):
                case protocol.DeniedToWorker(serials=serials):
                    guard.deny(frozenset(serials))
                case protocol.Hold():
                    # At once: a worker that could not answer in time finds the next order right behind this one.
                    count = hand_back(worker)
                    self._handing = loop.create_task(self._say_held(worker, count))
                case protocol.GoOn():
                    go_on(worker)
                case protocol.Retire():
                    self._retire.set()

        thread = threading.Thread(target=_read_orders, args=(loop, obey), name="agent", daemon=True)
        thread.start()

    async def _say_held(self, worker: Any, count: int) -> None:
        await sent(worker)
        self._tell(protocol.Held(handed_back=count))

    async def _say_when_busy(self, worker: Any) -> None:
        said = -1
        while True:
            tasks = len(worker.state.executing) + len(worker.state.long_running)
            if tasks != said:
                said = tasks
                self._tell(protocol.WorkerBusy(tasks=tasks))
            await asyncio.sleep(1)


def _read_orders(loop: asyncio.AbstractEventLoop, obey: Callable[[bytes], None]) -> None:
    """Read what the agent says; the end of it is the agent's end, and ours."""
    for line in sys.stdin.buffer:
        loop.call_soon_threadsafe(obey, line)
    os._exit(1)


if __name__ == "__main__":
    main()
