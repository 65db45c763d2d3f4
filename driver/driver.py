"""The driver itself: books, journal, registry and scheduler child put together, with one method an action.

No HTTP here: `http` and `agent_socket` call these methods, and so do the tests.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from computemesh import config, scores
from computemesh.certificates import Peer, Role
from computemesh.driver_client import Status, own_versions
from computemesh.errors import Refused
from computemesh.gates import Limits, closed_gates
from computemesh.identity import Identity
from computemesh.node import Health, Node, NodeFacts
from computemesh.protocol import Beat, SchedulerEvent, WorkerSeen, plain

from .authority import Granted
from .books import Books, Record
from .enrolment import mismatch
from .health import Patience
from .journal import Journal
from .ledger import Ledger
from .owner_rules import OwnerRules
from .pools import pool_rows, pools_of, rules_of
from .registry import HealthChange, Registry
from .rights import LOCAL_ADMIN, Rights, RightsSettings
from .savings import prices_of, summary
from .scheduler_child import ChildSettings, SchedulerChild
from .worker_probe import answers

logger = logging.getLogger("computemesh.driver")
CHECK_SECONDS = 0.5
"""How often health is judged and changed nodes are told to the scheduler."""
RENEWAL_SECONDS = 3600.0
"""How often the age of the driver's own certificates is looked at."""


@dataclass(frozen=True)
class DriverSettings:
    """What a driver is made of."""

    identity: Identity
    rights: RightsSettings
    child: ChildSettings
    patience: Patience
    history: int
    """Samples kept per node."""
    ledger: Path
    owner_rules: Path
    """The administrator's policy file."""


class Driver:
    """One control plane.

    `renew_own` signs the driver's own certificates anew where due or denied; `wall` gives seconds since the epoch,
    `clock` monotonic seconds.
    """

    def __init__(
        self,
        settings: DriverSettings,
        journal: Journal,
        renew_own: Callable[[datetime.datetime, frozenset[int]], list[tuple[Granted, Role, str]]],
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self._journal = journal
        self._wall, self._clock = wall, clock
        self._term = journal.lead()
        self.books = Books()
        self.rights = Rights(settings.rights, self.books, self.record, renew_own, wall, clock)
        self.registry = Registry(settings.patience, settings.history)
        self.ledger = Ledger(settings.ledger)
        self._ledger_kept = config.seconds("savings.kept")
        self.prices = prices_of(config.value("savings"))
        self.owner_rules = OwnerRules(settings.owner_rules, self.record)
        self._versions = own_versions()
        self._listeners: set[Callable[[Record], None]] = set()
        self._agents: dict[str, Callable[[str], None]] = {}
        self.child = SchedulerChild(
            settings.child,
            self._on_scheduler_event,
            self._on_worker,
            self._on_child_started,
            self._on_child_died,
            self.rights.delegate,
        )
        self._scheduler_starts = 0
        self._scheduler_started = 0.0
        self._changed = True
        self._rounds: asyncio.Task[None] | None = None
        self._probes: set[asyncio.Task[None]] = set()
        self.limits = Limits(**config.section("gates"))
        self.pool_rules = rules_of(config.value("pools"))
        self.weights = scores.Weights(**config.section("scores"))
        self._read_journal()

    def _read_journal(self) -> None:
        snapshot = self._journal.load_snapshot()
        since = 0
        if snapshot is not None:
            since, books = snapshot
            self.books.restore(books)
        for record in self._journal.read(since):
            self.books.apply(record)
        for name in self.books.nodes:
            self.registry.live(name)

    # ------------------------------------------------------------ life

    async def start(self) -> None:
        """Start the scheduler child and the health rounds."""
        self.record("driver-started", f"The driver started, version {self._versions.computemesh}, term {self._term}")
        self.rights.renew_own()
        self.owner_rules.look()
        await self.child.start()
        self._rounds = asyncio.create_task(self._go_round())

    async def stop(self) -> None:
        """Stop in order; the journal is whole at any moment."""
        if self._rounds is not None:
            self._rounds.cancel()
        for probe in self._probes:
            probe.cancel()
        await self.child.stop()
        self.record("driver-stopped", "The driver was stopped")
        self._journal.close()
        self.ledger.close()

    async def _go_round(self) -> None:
        renewal = self._clock() + RENEWAL_SECONDS
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            if self._clock() > renewal:
                renewal = self._clock() + RENEWAL_SECONDS
                self.ledger.forget(self._wall() - self._ledger_kept)
                self.rights.renew_own()
            self.ledger.flush()
            self.owner_rules.look()
            for change in self.registry.check(self._clock(), CHECK_SECONDS):
                self._on_health(change)
            if self._changed:
                self._changed = False
                self.child.send_nodes(self.nodes())
            if self._journal.snapshot_due():
                newest = self._journal.newest(1)
                self._journal.save_snapshot(newest[0].sequence if newest else 0, self.books.snapshot())

    def record(self, kind: str, text: str, node: str = "", **data: Any) -> Record:
        """Write one record, take it into the books, and tell whoever follows the events."""
        record = self._journal.append(self._term, self._wall(), kind, text, node, data)
        self.books.apply(record)
        for listener in tuple(self._listeners):
            listener(record)
        return record

    def follow(self, listener: Callable[[Record], None]) -> Callable[[], None]:
        """Call `listener` with each new record; returns what ends that."""
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)

    def events(self, count: int, node: str = "") -> list[Record]:
        """Return the newest `count` events, oldest first."""
        return self._journal.newest(count, node)

    # ------------------------------------------------------------ enrolment and rights

    def revoke(self, name: str, by: str) -> dict[str, Any]:
        """Turn all certificates of a node or person away from now on, and cut its connections.

        The administrator of the driver's own machine gets a new certificate there at once: only its copies are lost.

        Raises:
            Refused: nobody of that name holds a certificate that counts, or it is the caller's own.
        """
        if name == by and name != LOCAL_ADMIN:
            raise Refused(f"You are {name}: revoking yourself would lock you out; ask another administrator", 409)
        serials = self.rights.deny(name, by)
        self.child.send_denied(self.books.denied)
        if name in self.books.nodes:
            self._end_loan(name, kept=True)
            self.record("node-removed", f"{name} was removed from the mesh", name)
            self.registry.forget(name)
        self._changed = True
        if name in self._agents:
            self._agents[name]("it was revoked by an administrator")
        return {"revoked": name, "certificates": len(serials)}

    # ------------------------------------------------------------ nodes

    def nodes(self) -> list[Node]:
        """Return all nodes as they are now, by name."""
        return [self._node(name) for name in sorted(self.books.nodes)]

    def _node(self, name: str) -> Node:
        enrolled = self.books.nodes[name]
        now = datetime.datetime.fromtimestamp(self._wall(), datetime.UTC)
        by_rule = pools_of(self.pool_rules, enrolled.facts, now) if self.pool_rules and enrolled.facts else frozenset()
        return self.registry.node(enrolled, by_rule)

    def pools(self) -> list[dict[str, Any]]:
        """Return a row a pool."""
        return pool_rows(self.pool_rules, self.nodes())

    def described(self) -> list[dict[str, Any]]:
        """Return all nodes as plain data with score parts and closed gates."""
        nodes = self.nodes()
        largest = scores.largest_of(node for node in nodes if node.health is not Health.DEAD)
        described = []
        for node in nodes:
            about = plain(node)
            about["score"] = plain(scores.score(node, largest, self.weights))
            about["gates"] = list(closed_gates(node, self.limits))
            # The package list is long and asked for alone (`mesh node NAME`).
            about["facts"]["packages"] = None
            described.append(about)
        return described

    def node(self, name: str) -> dict[str, Any]:
        """Return one node whole, with an hour of samples and its last events.

        Raises:
            Refused: no such node.
        """
        enrolled = self.books.nodes.get(name)
        if enrolled is None:
            raise Refused(f"No node is named {name!r}: `mesh nodes` shows them", 404)
        about = next(node for node in self.described() if node["facts"]["name"] == name)
        about["facts"]["packages"] = plain(enrolled.facts.packages) if enrolled.facts else None
        about["history"] = [plain(sample) for sample in self.registry.live(name).history]
        about["events"] = [plain(record) for record in self.events(20, name)]
        return about

    def gates(self, name: str) -> tuple[str, ...]:
        """Return why the node gets no tasks now; empty when it gets some."""
        return closed_gates(self._node(name), self.limits)

    def cordon(self, name: str) -> None:
        """Give a node no more tasks; what runs there ends there."""
        self._known(name)
        self.record("node-cordoned", f"{name} was cordoned", name)
        self._changed = True

    def uncordon(self, name: str) -> None:
        """Undo `cordon` and `drain`."""
        self._known(name)
        self.record("node-uncordoned", f"{name} was uncordoned", name)
        self._changed = True

    async def drain(self, name: str, timeout: float) -> dict[str, Any]:
        """Empty a node: no more tasks, queued ones go elsewhere, results are copied; returns when it is empty."""
        self._known(name)
        self.record("node-draining", f"{name} is being drained", name)
        self.child.send_nodes(self.nodes())
        answer = await self.child.ask("drain", name, timeout)
        left = answer.get("left", 0)
        kept = f"but for {left} results that no other node could take" if left else "and holds no result alone"
        self.record("node-drained", f"{name} runs nothing {kept}", name, left=left)
        return answer

    def savings(self, since: float, by: str) -> dict[str, Any]:
        """Return what was harvested and saved since a time (seconds since the epoch), by node, pool, site or day."""
        return summary(self.ledger.rows(since, hourly=by == "day"), by, self.prices)

    def metrics(self) -> bytes:
        """Return the mesh as Prometheus reads it."""
        from .metrics import Metrics, exposition

        return exposition(Metrics(self.nodes(), self.ledger.total, self._scheduler_starts))

    def _known(self, name: str) -> None:
        if name not in self.books.nodes:
            raise Refused(f"No node is named {name!r}: `mesh nodes` shows them", 404)

    # ------------------------------------------------------------ what agents say

    def agent_hello(self, peer: Peer, facts: NodeFacts, incarnation: int, leave: Callable[[str], None]) -> None:
        """Admit an agent's connection; `leave` is called with a reason when the node is revoked.

        Raises:
            Refused: not in the books, another version, or an older incarnation than the one that is connected.
        """
        name = peer.name
        if name not in self.books.nodes:
            raise Refused(f"{name} is not in this mesh any more: join again with a new token", 403)
        if facts.name != name:
            raise Refused(f"The certificate is {name}'s and may not speak for {facts.name}", 403)
        theirs = type(self._versions)(facts.computemesh, facts.distributed, facts.python)
        differs = mismatch(theirs, self._versions)
        if differs:
            raise Refused(differs, 426)
        live = self.registry.live(name)
        if live.connected and incarnation < live.incarnation:
            raise Refused(f"A newer agent of {name} is connected: stop one of the two", 409)
        if self.books.nodes[name].facts != facts:
            self.record("node-facts", f"{name} said what it is", name, facts=plain(facts))
        self._agents[name] = leave
        self.ledger.connected(name)
        self.registry.connected(name, incarnation, self._clock())
        self._changed = True

    def agent_beat(self, name: str, beat: Beat) -> None:
        """Take one beat in."""
        live = self.registry.live(name)
        if beat.worker != live.worker:
            live.refused = ""
        self.registry.beat(name, self._clock(), beat)
        facts = self._node(name).facts
        self.ledger.take(facts, live.incarnation, beat.sequence, beat.samples, self._wall())
        self._changed = True

    def agent_gone(self, name: str, incarnation: int, reason: str | None) -> None:
        """Take note that an agent's connection ended: by plan with a `reason`, else cut (None)."""
        if name not in self.books.nodes or self.registry.live(name).incarnation != incarnation:
            return
        self._agents.pop(name, None)
        self._changed = True
        if reason is None:
            change = self.registry.cut(name, incarnation)
            if change is not None:
                self._on_health(change)
            return
        self.registry.left(name)
        self._end_loan(name, kept=True)
        self.record("node-left", f"{name} left: {reason}", name)

    def _on_health(self, change: HealthChange) -> None:
        self._changed = True
        node = change.node
        if change.after is Health.ALIVE:
            back = " again" if change.before is Health.SUSPECTED else ""
            self.record("node-alive", f"{node} is alive{back}", node)
            self.registry.live(node).on_loan = True
            return
        silent = f"after {change.silence:.1f} s of silence" if change.silence else "its connection was cut"
        self.record(f"node-{change.after}", f"{node} is {change.after}, {silent}", node)
        if change.after is Health.DEAD:
            self._end_loan(node, kept=False)

    def _end_loan(self, name: str, kept: bool) -> None:
        live = self.registry.live(name)
        if live.on_loan:
            live.on_loan = False
            self.record(
                "loan-ended", f"The loan of {name} ended {'by plan' if kept else 'without notice'}", name, kept=kept
            )

    # ------------------------------------------------------------ what the scheduler child says

    def status(self, host: str) -> Status:
        """Return where the scheduler is, as seen by somebody who reached the driver as `host`."""
        port = self.child.address.rpartition(":")[2]
        address = f"tls://{f'[{host}]' if ':' in host else host}:{port}" if self.child.started.is_set() else ""
        return Status(
            self.settings.rights.authority.pin, address, self._versions, self._scheduler_started, self._scheduler_starts
        )

    def _on_child_started(self) -> None:
        self._scheduler_starts += 1
        self._scheduler_started = self._wall()
        self.child.send_denied(self.books.denied)
        self.child.send_nodes(self.nodes())
        self.record("scheduler-started", f"The scheduler listens at {self.child.address}")

    def _on_child_died(self, how: str) -> None:
        self.record("scheduler-died", f"The scheduler ended with {how}; it is started again")

    def _on_scheduler_event(self, event: SchedulerEvent) -> None:
        self.record(event.kind, event.text, event.node, **event.data)

    def _on_worker(self, seen: WorkerSeen) -> None:
        if seen.node not in self.books.nodes:
            return
        live = self.registry.live(seen.node)
        live.speed = seen.speed or live.speed
        address = "" if seen.gone else seen.address
        if address == live.registered:
            return
        live.registered = address
        self._changed = True
        if seen.gone:
            self.record("worker-left", f"The worker of {seen.node} left", seen.node)
            return
        self.record("worker-joined", f"The worker of {seen.node} registered as {seen.address}", seen.node)
        probe = asyncio.create_task(self._probe(seen.node, seen.address))
        self._probes.add(probe)
        probe.add_done_callback(self._probes.discard)

    async def _probe(self, name: str, address: str) -> None:
        """Admit a node only when its worker can be reached: half-reachable laptops make Dask hang."""
        fault = await answers(self.settings.identity, address)
        live = self.registry.live(name)
        live.refused = f"cannot be reached: {fault}" if fault else ""
        self._changed = True
        if fault:
            self.record(
                "node-refused", f"{name} gets no tasks: its worker at {address} does not answer ({fault})", name
            )
