"""Keeps the node's worker process running: starts it, feeds it, restarts it, and never leaves anything of it behind."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import cast

import msgspec

from computemesh import protocol
from computemesh.errors import DriverError

from .accounting import Accounting, Member, too_large
from .backoff import BackOff
from .log_files import OutputLog
from .pacing import QuotaGroup, group_name, make_quota_group, take_turns
from .processes import kill_tree
from .reins import freeze, thaw
from .share import Share
from .worker import CANNOT_START, FINISH_SECONDS, RETIRED, SCHEDULER_LOST, WorkerSettings

logger = logging.getLogger("computemesh.node_agent")

HOLD_SECONDS = 0.1
"""How long the worker may take to hand back what it has not begun before it is frozen with it."""
FIRST_DELAY = 0.5
LONGEST_DELAY = 20.0
STEADY_SECONDS = 30.0
"""A worker that lived this long was well; the next restart is prompt again."""
NODE = "COMPUTEMESH_NODE"
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
"""What numerical libraries read, so that they use what is lent and not the whole machine."""


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """What does not change between two starts of the worker."""

    name: str
    identity: str
    share: Share
    memory: int
    local_directory: str
    dedicated: bool
    gpus: int | None = None
    """How many GPUs it may see; None: all."""

    def settings(self, scheduler: str, host: str) -> WorkerSettings:
        """Return what a worker is told that registers with `scheduler` and listens on `host`."""
        return WorkerSettings(
            agent=os.getpid(),
            name=self.name,
            scheduler=scheduler,
            identity=self.identity,
            nthreads=self.share.threads,
            memory_limit=self.memory,
            local_directory=self.local_directory,
            host=host,
            dedicated=self.dedicated,
        )


class Supervisor:
    """Runs one worker at a time."""

    def __init__(
        self,
        plan: WorkerPlan,
        accounting: Accounting,
        output: OutputLog,
        report: Callable[[protocol.Report], None],
        own_address: Callable[[str], str],
        random: Random,
    ) -> None:
        """`own_address` says under which address peers reach this machine, given the scheduler's."""
        self._plan = plan
        self._accounting = accounting
        self._output = output
        self._report = report
        self._own_address = own_address
        self._backoff = BackOff(FIRST_DELAY, LONGEST_DELAY, random)
        self._process: asyncio.subprocess.Process | None = None
        self._quota: QuotaGroup | None = None
        self._scheduler = ""
        self._known = asyncio.Event()
        self._wanted = asyncio.Event()
        self._held_back = asyncio.Event()
        self._pacing: asyncio.Task[None] | None = None
        self._host = ""
        self.held = False
        """Everything of it is frozen, or about to be."""
        self._stopping = False
        self._denied: tuple[int, ...] = ()
        self.address = ""
        """The worker's Dask address; empty while it has none."""
        self.tasks = 0
        """How many tasks it runs."""

    @property
    def pid(self) -> int | None:
        """The worker's process id, while there is one."""
        return self._process.pid if self._process is not None else None

    # ------------------------------------------------------------ what the agent says

    def scheduler_is(self, address: str) -> None:
        """Register with the scheduler at `address` from now on; empty: it is not known for the moment."""
        changed = address != self._scheduler
        self._scheduler = address
        if not address:
            self._known.clear()
            return
        self._known.set()
        self._backoff.reset()
        if changed and self._process is not None:
            logger.info("the scheduler is at %s now; the worker starts anew", address)
            kill_tree(self._process.pid)

    def deny(self, serials: tuple[int, ...]) -> None:
        """Have the worker turn these certificates away."""
        self._denied = serials
        self._say(protocol.DeniedToWorker(serials=serials))

    def look_at_address(self) -> None:
        """Start the worker anew if peers reach this machine under another address than the one it listens on."""
        worker = self.pid
        if worker is None or not self._scheduler:
            return
        try:
            now = self._own_address(self._scheduler)
        except OSError as error:
            logger.info("this machine has no way to the scheduler yet: %s", error)
            return
        if now != self._host:
            logger.info("this machine is %s now, it was %s; the worker starts anew", now, self._host)
            kill_tree(worker)

    # ------------------------------------------------------------ the owner's machine

    def lend(self) -> None:
        """Have a worker running from now on."""
        self._wanted.set()

    def lends(self, share: Share, memory: int, gpus: int | None) -> None:
        """Give workers that start from now on so much; `gpus` None: all there are."""
        self._plan = replace(self._plan, share=share, memory=memory, gpus=gpus)

    def freeze(self) -> None:
        """Stop all of our processes at once, but for the worker's own, which may hand its queue back first."""
        # One that ends meanwhile, or has not begun, starts when all goes on.
        self._wanted.clear()
        worker = self.pid
        if worker is None or self.held:
            return
        self.held = True
        self._stop_pacing()
        self._held_back.clear()
        freeze([worker], frozenset({worker}))
        self._say(protocol.Hold())

    async def finish_freezing(self) -> None:
        """Freeze the worker too once it has handed back its queue, at the latest after `HOLD_SECONDS`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HOLD_SECONDS):
                await self._held_back.wait()
        if self.held and self.pid is not None:
            freeze([self.pid])

    def go_on(self) -> None:
        """Let all of it go on where it was."""
        self._wanted.set()
        worker, self.held = self.pid, False
        if worker is None:
            return
        thaw(worker)
        self._say(protocol.GoOn())
        self._pace(worker)

    async def evict(self) -> None:
        """End the worker and all below it, and start no other until `lend`."""
        self._wanted.clear()
        self.held, self.address = False, ""
        process = self._process
        if process is not None:
            kill_tree(process.pid)
            await process.wait()

    def _pace(self, worker: int) -> None:
        if self._plan.share.paced and self._quota is None:
            self._pacing = asyncio.create_task(take_turns(worker, self._plan.share))

    def _stop_pacing(self) -> None:
        if self._pacing is not None:
            self._pacing.cancel()
            self._pacing = None

    def guard_memory(self, members: list[Member]) -> None:
        """End the largest of our processes when they use more than is lent: a capsule, else the whole worker."""
        worker = self.pid
        found = too_large(members, self._plan.memory) if worker is not None else None
        if found is None or worker is None:
            return
        member, total = found
        apart = member.pid == member.times.group and member.pid != worker
        text = (
            f"our processes used {total / 1e9:.2f} of {self._plan.memory / 1e9:.2f} GB; "
            f"{'the largest task' if apart else 'the worker'} was ended"
        )
        logger.warning("%s", text)
        self._report(protocol.Report(kind="memory-exceeded", text=text, data={"bytes": total}))
        kill_tree(member.pid if apart else worker)

    # ------------------------------------------------------------ the worker's life

    async def run(self) -> None:
        """Keep a worker running until `stop`; cancelling this ends the worker at once."""
        loop = asyncio.get_running_loop()
        while not self._stopping:
            await self._known.wait()
            await self._wanted.wait()
            if self._stopping:
                break
            began = loop.time()
            code = await self._one_worker(self._scheduler)
            if self._stopping:
                break
            if not self._wanted.is_set():
                self._backoff.reset()
                continue
            if loop.time() - began > STEADY_SECONDS:
                self._backoff.reset()
            delay = self._backoff.next()
            logger.warning("the worker %s; another one starts in %.1f s", how_it_ended(code), delay)
            if code not in (SCHEDULER_LOST, CANNOT_START):
                self._report(protocol.Report(kind="worker-died", text=f"the worker {how_it_ended(code)}"))
            await asyncio.sleep(delay)

    async def stop(self) -> None:
        """Let the worker finish in order, then end whatever is left of it."""
        self._stopping = True
        self._known.set()
        self._wanted.set()
        process = self._process
        if self.held:
            # What is frozen finishes nothing, and its owner is there.
            await self.evict()
            return
        if process is None:
            return
        self._say(protocol.Retire())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FINISH_SECONDS + 5):
                await process.wait()
        if process.returncode is None:
            kill_tree(process.pid)
            await process.wait()

    def _visible_gpus(self) -> dict[str, str]:
        """Return what hides the GPUs that are not lent from CUDA."""
        if self._plan.gpus is None:
            return {}
        return {"CUDA_VISIBLE_DEVICES": ",".join(str(index) for index in range(self._plan.gpus))}

    def _make_quota(self) -> None:
        share = self._plan.share
        self._quota = make_quota_group(group_name(os.getpid()), share.lent) if share.paced else None
        if share.paced:
            how = f"a quota in {self._quota.folder}" if self._quota else "turns of running and resting"
            logger.info("held to %.2f cores by %s", share.lent, how)

    async def _one_worker(self, scheduler: str) -> int:
        self._make_quota()
        self._host = self._own_address(scheduler)
        settings = self._plan.settings(scheduler, self._host)
        threads = dict.fromkeys(THREAD_VARIABLES, str(settings.nthreads))
        process = self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "computemesh.node_agent.worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **threads, **self._visible_gpus(), "PYTHONUNBUFFERED": "1", NODE: self._plan.name},
            start_new_session=True,
        )
        self._accounting.follow(process.pid)
        told, printed = cast(asyncio.StreamReader, process.stdout), cast(asyncio.StreamReader, process.stderr)
        listening = [asyncio.create_task(self._hear(told)), asyncio.create_task(self._keep_output(printed))]
        try:
            if self._quota is not None:
                # Before it is told anything: it has started nothing yet, so all of it will be in the group.
                self._quota.add(process.pid)
            else:
                self._pace(process.pid)
            self._write(msgspec.json.encode(settings))
            if self._denied:
                self._say(protocol.DeniedToWorker(serials=self._denied))
            code = await process.wait()
        finally:
            self._stop_pacing()
            if process.returncode is None:
                kill_tree(process.pid)
                await process.wait()
            await asyncio.gather(*listening, return_exceptions=True)
            self._accounting.forget(process.pid)
            if self._quota is not None:
                self._quota.remove()
            self._process, self.address, self.tasks, self.held = None, "", 0, False
        return code

    def _say(self, order: protocol.Message) -> None:
        self._write(protocol.encode(order))

    def _write(self, line: bytes) -> None:
        stdin = self._process.stdin if self._process is not None else None
        if stdin is not None and not stdin.is_closing():
            stdin.write(line + b"\n")

    async def _hear(self, lines: asyncio.StreamReader) -> None:
        async for line in lines:
            try:
                message = protocol.decode(line, protocol.FromWorker)
            except DriverError as error:
                logger.warning("the worker said something unknown: %s", error)
                continue
            if isinstance(message, protocol.WorkerReady):
                self.address = message.address
                logger.info("the worker is ready at %s", message.address)
            elif isinstance(message, protocol.WorkerBusy):
                self.tasks = message.tasks
            elif isinstance(message, protocol.Held):
                self._held_back.set()
            elif isinstance(message, protocol.WorkerFailed):
                logger.warning("the worker cannot start: %s", message.text)
            else:
                self._report(message)

    async def _keep_output(self, stream: asyncio.StreamReader) -> None:
        while data := await stream.read(65536):
            self._output.write(data)


def how_it_ended(code: int) -> str:
    """Return a worker's exit code in words."""
    if code < 0:
        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"was killed by signal {-code}"
    words = {
        RETIRED: "has retired",
        CANNOT_START: "could not start",
        SCHEDULER_LOST: "lost the connection to its scheduler",
    }
    return words.get(code, f"ended with exit code {code}")
