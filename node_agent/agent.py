"""The daemon behind `mesh join`: watches the machine, beats to the driver, and owns the worker and all below it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from computemesh import protocol
from computemesh.driver_client import host_and_port, renew
from computemesh.errors import DriverError, DriverUnreachable, NotTrusted, Refused
from computemesh.identity import Identity, write_private
from computemesh.node import Harvest, Network, NodeFacts, Sample

from .accounting import Accounting
from .activity import find_sources, has_desktop, least_age
from .backoff import BackOff
from .control import Control
from .gpu import Gpus
from .lending import Lending, Surface, clock
from .lent import Lent, held_to
from .link import Link, hello_of, measure_throughput, smoothed
from .log_files import OutputLog
from .owners_desk import OwnersDesk
from .processes import KILL, adopt_orphans, children_of, end_children
from .sampler import Sampler
from .share import Share
from .signs_of_use import Signs, find_signs
from .status_line import View
from .supervisor import Supervisor, WorkerPlan
from .waking import Wakefulness

logger = logging.getLogger("computemesh.node_agent")

SAMPLES_KEPT = 600
"""Samples that wait for a driver that is away."""
SAMPLES_PER_BEAT = 120
REPORTS_KEPT = 200
RENEWAL_SECONDS = 60.0
"""How often the certificate's age is looked at."""
FIRST_DELAY = 0.5
LONGEST_DELAY = 15.0
GLANCE_SECONDS = 0.05
"""How often the owner's input is looked at while tasks run."""
GLANCE_AGE = 1.0
"""Input younger than that may be new since the last sample."""
TOLD_SECONDS = 0.5
"""How long an eviction, or a goodbye, waits for the driver to know of it."""
SWEEP_SECONDS = 5.0
"""How long the end of everything below may take when the agent ends."""


@dataclass(frozen=True, slots=True)
class AgentPlan:
    """What an agent was told at its start."""

    home: Path
    identity: Identity
    facts: NodeFacts
    share: Share
    memory: int
    total_memory: int
    dedicated: bool
    sample_seconds: float
    idle_after: float
    """Seconds without input before an owner's machine is lent."""


class Agent:
    """One agent. `run` returns when it is told to stop, and raises when the mesh wants nothing of it."""

    def __init__(self, plan: AgentPlan, gpus: Gpus, random: Random, show: Callable[[View], None]) -> None:
        self._plan = plan
        self._show = show
        self._random = random
        self._stop = asyncio.Event()
        self._accounting = Accounting()
        self._sources = find_sources()
        self._signs = Signs([] if plan.dedicated else find_signs())
        self._sampler = Sampler(self._accounting, gpus, self._sources, plan.home)
        self._samples: deque[Sample] = deque(maxlen=SAMPLES_KEPT)
        self._unkept: deque[tuple[int, list[Sample]]] = deque(maxlen=SAMPLES_KEPT)
        self._reports: deque[protocol.Report] = deque(maxlen=REPORTS_KEPT)
        self._lending = Lending(
            Surface(plan.home / "node", plan.dedicated, has_desktop(), {"idle": plan.idle_after}), clock, self._note
        )
        self._harvest = self._lending.state
        self._turned = asyncio.Event()
        self._awake = asyncio.Event()
        self._leave_for_good = False
        desk = OwnersDesk(self._lending, self._decide_now, self._take_back, self._about)
        self._control = Control(plan.home / "node", desk.answer)
        self._network = Network()
        self._newest: Sample | None = None
        self._connected = False
        self._welcomed = False
        self._output = OutputLog(plan.home / "logs" / "worker.log")
        worker = WorkerPlan(
            name=plan.identity.name,
            identity=str(plan.identity.folder),
            share=plan.share,
            memory=plan.memory,
            local_directory=str(plan.home / "work"),
            dedicated=plan.dedicated,
        )
        self._supervisor = Supervisor(worker, self._accounting, self._output, self._reports.append, own_address, random)
        lent = self._lent()
        hello = hello_of(lent.facts, next_incarnation(plan.identity.folder / "incarnation"))
        self._link = Link(plan.identity, hello, self._next_beat, self._obey, self._note_round_trip, self._samples_kept)

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT.

        Raises:
            DriverError: the driver turned this node away for good.
        """
        adopt_orphans()
        self._catch_signals()
        await self._control.start()
        speaking = asyncio.create_task(self._stay_connected(), name="driver")
        serving = [
            speaking,
            asyncio.create_task(self._supervisor.run(), name="worker"),
            asyncio.create_task(self._watch(), name="watch"),
            asyncio.create_task(self._glance(), name="glance"),
            asyncio.create_task(self._follow(), name="reins"),
            asyncio.create_task(self._stay_certified(), name="certificate"),
        ]
        stopped = asyncio.create_task(self._stop.wait(), name="stop")
        try:
            done, _ = await asyncio.wait({*serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if stopped in done:
                logger.info("leaves by plan")
                await self._link.told(TOLD_SECONDS)
                await self._link.leave("its owner took it back" if self._leave_for_good else "the agent was stopped")
                speaking.cancel()
            await self._supervisor.stop()
        finally:
            for task in (*serving, stopped):
                task.cancel()
            await asyncio.gather(*serving, stopped, return_exceptions=True)
            await self._control.stop()
            if sys.platform != "win32":
                end_children(SWEEP_SECONDS)
            self._output.close()
        for task in done:
            if not task.cancelled():
                task.result()

    def _catch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            if sys.platform == "win32":
                signal.signal(number, lambda *_: loop.call_soon_threadsafe(self._stop.set))
            else:
                loop.add_signal_handler(number, self._stop.set)

    # ------------------------------------------------------------ the machine

    async def _watch(self) -> None:
        """Take a sample each second, and decide from it."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        wakefulness = Wakefulness(self._plan.sample_seconds)
        while True:
            if asleep := wakefulness.look():
                self._woke(asleep)
            sample = self._newest = self._as_lent(self._sampler.sample())
            self._samples.append(sample)
            self._supervisor.guard_memory(self._sampler.members)
            self._end_strangers()
            self._enter(self._decided(sample))
            self._show(self._view(sample))
            due = max(due + self._plan.sample_seconds, loop.time())
            await asyncio.sleep(due - loop.time())

    def _as_lent(self, sample: Sample) -> Sample:
        """Note in a sample whether the machine was lent while it was taken."""
        return replace(sample, lent=self._harvest is Harvest.LENDING and bool(self._supervisor.address))

    def _decided(self, sample: Sample) -> Harvest:
        return self._lending.decide(sample, self._signs(), self._supervisor.pid is None)

    async def _glance(self) -> None:
        """Between two samples, see whether the owner has come back while tasks run."""
        while True:
            await asyncio.sleep(GLANCE_SECONDS)
            if self._harvest is Harvest.LENDING and not self._plan.dedicated:
                age = least_age(self._sources)
                if age is not None and age < GLANCE_AGE:
                    self._enter(self._lending.glance(age, self._signs.seen, self._supervisor.pid is None))

    def _enter(self, state: Harvest) -> None:
        """Act on what was decided: what the owner would feel at once, all else in `_follow`."""
        if state is self._harvest:
            return
        before, self._harvest = self._harvest, state
        if state in (Harvest.SUSPENDED, Harvest.EVICTING) and not self._lending.standing.grace:
            self._supervisor.freeze()
        elif state is Harvest.LENDING and before is Harvest.SUSPENDED:
            self._supervisor.go_on()
        logger.info("harvest state: %s. %s", state, self._lending.explain())
        self._turned.set()
        self._link.beat_now()

    async def _follow(self) -> None:
        """Bring the worker to where the state wants it."""
        while True:
            await self._turned.wait()
            self._turned.clear()
            if self._harvest is Harvest.LENDING:
                self._hold_to_policy()
                self._supervisor.lend()
            elif self._harvest is Harvest.SUSPENDED:
                await self._supervisor.finish_freezing()
            elif self._supervisor.pid is not None:
                await self._give_back()

    def _hold_to_policy(self) -> None:
        """Let the next worker have what the policy lends now, and tell the mesh so."""
        lent = self._lent()
        some = lent.gpus < len(self._plan.facts.gpus)
        self._supervisor.lends(lent.share, lent.memory, lent.gpus if some else None)
        self._link.says(lent.facts)

    def _lent(self) -> Lent:
        plan = self._plan
        return held_to(Lent(plan.share, plan.memory, plan.facts), self._lending.policy, plan.total_memory)

    async def _give_back(self) -> None:
        """Let what runs end within its grace, tell the driver, and end all of it."""
        while self._supervisor.tasks and self._grace_left() > 0:  # noqa: ASYNC110 - it may be taken back meanwhile
            await asyncio.sleep(0.1)
        self._supervisor.freeze()
        self._supervisor.address = ""
        await self._link.told(TOLD_SECONDS)
        await self._supervisor.evict()
        logger.info("all is given back")

    def _grace_left(self) -> float:
        standing = self._lending.standing
        return standing.since + standing.grace - time.monotonic() if self._harvest is Harvest.EVICTING else 0.0

    # ------------------------------------------------------------ the owner

    def _decide_now(self) -> None:
        if self._newest is not None:
            self._enter(self._decided(self._newest))

    def _take_back(self) -> None:
        self._leave_for_good = True
        self._stop.set()

    def _about(self) -> dict[str, object]:
        """Return what the owner is told beside the policy."""
        return {
            "name": self._plan.identity.name,
            "driver": self._plan.identity.driver,
            "connected": self._connected,
            "tasks": self._supervisor.tasks,
            "pid": os.getpid(),
        }

    def _note(self, kind: str, text: str) -> None:
        """Report something to the journal, now or when the driver is there again."""
        self._reports.append(protocol.Report(kind=kind, text=text))

    def _woke(self, asleep: float) -> None:
        """Trust no connection after a sleep: speak with the driver anew, and look at the worker's own address."""
        logger.info("slept for %.0f s; connects anew", asleep)
        self._link.hang_up()
        self._awake.set()
        self._supervisor.look_at_address()

    def _view(self, sample: Sample) -> View:
        return View(
            name=self._plan.identity.name,
            driver=self._plan.identity.driver,
            connected=self._connected,
            ready=bool(self._supervisor.address),
            harvest=self._harvest,
            tasks=self._supervisor.tasks,
            cpu_ours=sample.cpu_ours,
            round_trip=self._network.round_trip,
            gates=self._link.gates,
        )

    def _end_strangers(self) -> None:
        """End what a task left behind when all its parents had ended: it has become our child."""
        if sys.platform == "win32":
            return
        for process in children_of(os.getpid()):
            if process != self._supervisor.pid:
                with contextlib.suppress(OSError):
                    os.kill(process, KILL)
                    os.waitpid(process, os.WNOHANG)

    # ------------------------------------------------------------ the driver

    async def _stay_connected(self) -> None:
        """Speak with the driver, for ever; the worker runs on while it is away."""
        backoff = BackOff(FIRST_DELAY, LONGEST_DELAY, self._random)
        while True:
            try:
                await self._link.converse()
            except Refused:
                raise
            except NotTrusted as error:
                # At the first try it is for a person to mend; later it may be a captive portal on another network.
                if not self._welcomed:
                    raise
                logger.warning("%s", error)
            except DriverUnreachable as error:
                logger.warning("%s", error)
            self._keep_for_later()
            if self._connected:
                backoff.reset()
            self._connected = False
            delay = backoff.next()
            logger.info("tries the driver again in %.1f s", delay)
            self._awake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._awake.wait()
                    backoff.reset()

    def _next_beat(self, sequence: int) -> protocol.Beat:
        while self._reports and self._link.say(self._reports[0]):
            self._reports.popleft()
        samples = [self._samples.popleft() for _ in range(min(len(self._samples), SAMPLES_PER_BEAT))]
        self._unkept.append((sequence, samples))
        return protocol.Beat(
            sequence=sequence,
            samples=tuple(samples),
            harvest=self._harvest,
            reason=self._lending.explain(),
            network=self._network,
            worker=self._supervisor.address,
        )

    def _samples_kept(self, sequence: int) -> None:
        """The driver has what was said up to a beat on disk."""
        while self._unkept and self._unkept[0][0] <= sequence:
            self._unkept.popleft()

    def _keep_for_later(self) -> None:
        """Say again to the next connection what this one's driver may not have kept."""
        while self._unkept:
            _, samples = self._unkept.pop()
            self._samples.extendleft(reversed(samples))

    def _obey(self, order: protocol.Message) -> None:
        if isinstance(order, protocol.Welcome):
            if not self._connected:
                logger.info("connected to the driver at %s", self._plan.identity.driver)
            self._connected = True
            if not self._welcomed:
                self._welcomed = True
                self._probing = asyncio.create_task(self._probe_network(), name="throughput")
            self._supervisor.scheduler_is(order.scheduler)
            self._supervisor.deny(order.denied)
            self._lending.rules_are(order.rules)
        elif isinstance(order, protocol.Rules):
            self._lending.rules_are(order.rules)
        elif isinstance(order, protocol.Denied):
            self._supervisor.deny(order.serials)

    def _note_round_trip(self, seconds: float) -> None:
        mean = smoothed(self._network.round_trip, seconds)
        self._network = replace(self._network, round_trip=mean)

    async def _probe_network(self) -> None:
        try:
            found = await asyncio.to_thread(measure_throughput, self._plan.identity)
        except DriverError as error:
            logger.warning("%s", error)
            return
        self._network = replace(self._network, throughput=found)
        logger.info("throughput to the driver: %.0f Mbit/s", found / 1e6)

    async def _stay_certified(self) -> None:
        """Renew the certificate at half of its life; the worker notices the new file by itself."""
        while True:
            if self._plan.identity.renewal_due(time.time()):
                try:
                    await asyncio.to_thread(renew, self._plan.identity)
                    logger.info("renewed the certificate")
                except DriverError as error:
                    logger.warning("the certificate could not be renewed: %s", error)
            await asyncio.sleep(RENEWAL_SECONDS)


def own_address(scheduler: str) -> str:
    """Return this machine's address as the scheduler at ``tls://host:port`` sees it; nothing is sent for it."""
    host, port = host_and_port(scheduler.removeprefix("tls://"))
    family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, number) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])


def next_incarnation(file: Path) -> int:
    """Return a number higher than at every earlier start of this node's agent."""
    try:
        last = int(file.read_text("ascii"))
    except (OSError, ValueError):
        last = 0
    write_private(file, str(last + 1).encode())
    return last + 1
