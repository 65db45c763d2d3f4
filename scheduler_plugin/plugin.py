"""The scheduler plugin: puts the mesh's decisions into a Dask scheduler, keeps the books, takes itself off again."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from typing import Any

import distributed
import distributed.scheduler as scheduler_module
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.stealing import WorkStealing

from computemesh import config
from computemesh.gates import Limits
from computemesh.node import Node
from computemesh.scores import Weights

from .answers import Answers
from .constrained import Constrained, Report
from .decisions import Decisions
from .draining import Draining
from .foreign_feed import ForeignFeed
from .gating import Gating
from .needs import Needs
from .observing import Observing
from .placements import Placements
from .preemption import Preemption
from .roster import Place, Roster
from .shadows import Shadows, check_signatures
from .shuffles import Shuffles
from .slots import Slots
from .speeds import Speeds
from .thieves import Thieves

logger = logging.getLogger("computemesh.scheduler_plugin")

TICK = 1.0
"""Seconds between looks at what no event announces: learned speeds, workers held back in the tail of a run."""


class MeshPlugin(SchedulerPlugin):
    """Makes a Dask scheduler place tasks by node gates, requirements, scores and speeds.

    Works on any scheduler of the supported distributed version: ``client.register_plugin(MeshPlugin())`` or ``dask
    scheduler --preload computemesh.scheduler_plugin``. While no node is known it changes nothing.

    `foreign_sampling` says whether to sample the workers' machines through a worker plugin; by default as configured
    (``computemesh.placement.foreign-sampling``). `random` picks the nodes that a decision looks at.
    """

    name = "computemesh"
    idempotent = False

    def __init__(
        self,
        nodes: Iterable[Node] = (),
        foreign_sampling: bool | None = None,
        random: Random | None = None,
    ) -> None:
        self._first_nodes = tuple(nodes)
        self._foreign_sampling = foreign_sampling
        self._random = random or Random()
        self._scheduler: Any = None
        self.roster: Roster
        self.reports: list[Report] = []
        """Who hears of what belongs into the journal."""
        self.worker_watchers: list[Callable[[Place, bool], None]] = []
        """Who hears of workers: called with the place and whether the worker has gone."""

    def __reduce__(self) -> tuple[Any, ...]:
        nodes = tuple(self.roster.nodes.values()) if self.attached else self._first_nodes
        return type(self), (nodes, self._foreign_sampling, self._random)

    @property
    def attached(self) -> bool:
        """Whether the plugin is on a scheduler."""
        return self._scheduler is not None

    # ------------------------------------------------------------ on and off

    async def start(self, scheduler: Any) -> None:
        """Called by Dask, possibly twice. Refuses a Dask whose methods are not those that it shadows.

        Raises:
            UnsupportedDask: a method takes other parameters; it is named.
        """
        if self._scheduler is scheduler:
            return
        self._attach(scheduler)
        if self._samples_foreign():
            await self._feed.start()

    def _samples_foreign(self) -> bool:
        if self._foreign_sampling is not None:
            return self._foreign_sampling
        return bool(config.value("placement.foreign-sampling"))

    def _attach(self, scheduler: Any) -> None:
        extensions = [
            scheduler.extensions[name] for name in ("stealing", "amm", "shuffle") if name in scheduler.extensions
        ]
        check_signatures([scheduler, *extensions], distributed.__version__)
        earlier = scheduler.plugins.get(self.name)
        if isinstance(earlier, MeshPlugin) and earlier is not self:
            self._first_nodes = self._first_nodes or tuple(earlier.roster.nodes.values())
            earlier.detach()
            del scheduler.plugins[self.name]
        self._scheduler = scheduler
        self._loop = asyncio.get_running_loop()
        self._pending: set[str] = set()
        self._shadows = Shadows()
        self.speeds = Speeds()
        self.roster = Roster(
            Limits(**config.section("gates")),
            Weights(**config.section("scores")),
            self.speeds,
            self._changed,
        )
        self.needs = Needs(self.roster)
        self._constrained_keys = self.needs.of
        sample = int(config.number("placement.sample"))
        self.decisions = Decisions(scheduler, self.roster, self.needs, sample, self._random)
        self.placements = Placements(int(config.number("placement.remembered")))
        self.observing = Observing(scheduler, self.roster, self.speeds, self.decisions, self.placements)
        self.gating = Gating(scheduler, self.roster, self._on_gate_closed)
        self.draining = Draining(scheduler, self.roster, self.decisions, self._stealing_extension)
        self.preemption = Preemption(scheduler, self.roster)
        self._feed = ForeignFeed(scheduler, self.roster)
        self.answers = Answers(scheduler, self.roster, self.needs, self.placements)
        self.constrained = Constrained(scheduler, self.roster, self.needs, self.report, self._soon)
        self._put_on(scheduler)
        for address in list(scheduler.workers):
            self.add_worker(scheduler, address)
        self.constrained.read(scheduler.tasks)
        if self._first_nodes:
            self.set_nodes(self._first_nodes)

    def _put_on(self, scheduler: Any) -> None:
        shadows = self._shadows
        Slots(scheduler, self.roster).install(shadows)
        shadows.on_removal(self._show_withheld)
        for name in Decisions.SHADOWED:
            shadows.method(scheduler, name, getattr(self.decisions, name))
        shadows.method(
            scheduler,
            "bulk_schedule_unrunnable_after_adding_worker",
            self.constrained.bulk_schedule,
        )
        stock_remove = scheduler.remove_plugin
        shadows.method(
            scheduler,
            "remove_plugin",
            lambda name=None: self._on_remove_plugin(stock_remove, name),
        )
        stock_unregister = scheduler.handlers["unregister_scheduler_plugin"]

        async def unregister(name: str) -> None:
            if name == self.name:
                await self.close()
            await stock_unregister(name=name)

        shadows.entry(scheduler.handlers, "unregister_scheduler_plugin", unregister)
        self._stealing = scheduler.extensions.get("stealing")
        if self._stealing is not None:
            self._thieves().install(shadows)
        amm = scheduler.extensions.get("amm")
        if amm is not None:
            self._find_recipient = amm._find_recipient
            shadows.method(amm, "_find_recipient", self._better_recipient)
        shuffle = scheduler.extensions.get("shuffle")
        if shuffle is not None:
            Shuffles(scheduler, shuffle, self.roster).install(shadows)
        self.gating.install(shadows)
        self.preemption.install(shadows)
        self._feed.install(shadows)
        self.answers.install(shadows)
        tick = scheduler_module.PeriodicCallback(self._tick, TICK * 1000)
        tick.start()
        shadows.on_removal(tick.stop)

    def _thieves(self) -> Thieves:
        freed = partial(self._soon, "waiting")
        return Thieves(
            self._scheduler,
            self._stealing,
            self.roster,
            self.needs,
            self.decisions,
            freed,
        )

    def _stealing_extension(self) -> Any:
        """Return Dask's work stealing, whose requests move tasks safely; where it is off, one that never balances."""
        if self._stealing is None:
            scheduler = self._scheduler
            handlers, before = scheduler.stream_handlers, set(scheduler.plugins)
            self._stealing = WorkStealing(scheduler)
            self._shadows.on_removal(lambda: handlers.pop("steal-response", None))
            for name in set(scheduler.plugins) - before:
                self._shadows.on_removal(partial(scheduler.plugins.pop, name, None))
            self._thieves().install(self._shadows)
        return self._stealing

    def _on_remove_plugin(self, stock_remove: Callable[..., None], name: str | None) -> None:
        if name == self.name and self._scheduler is not None and self._scheduler.plugins.get(name) is self:
            self.detach()
        stock_remove(name)

    def detach(self) -> None:
        """Take everything off the scheduler; sampled workers are told in the background."""
        if self._scheduler is not None:
            if self._feed.sampling:
                self._background = asyncio.ensure_future(self._feed.stop())
            self._shadows.remove()
            self._scheduler = None

    async def close(self) -> None:
        """Called by Dask when the scheduler closes, and when the plugin is unregistered."""
        if self._scheduler is not None:
            if self._feed.sampling and self._scheduler.status == distributed.Status.running:
                await self._feed.stop()
            self._feed.sampling = False
            self.detach()

    def _show_withheld(self) -> None:
        scheduler = self._scheduler
        for ws in self.decisions.withheld:
            if scheduler.workers.get(ws.address) is ws:
                scheduler.check_idle_saturated(ws)

    # ------------------------------------------------------------ nodes

    def set_nodes(self, nodes: Iterable[Node]) -> None:
        """Replace what is known of the mesh's nodes; a worker stands on the node of its name."""
        self.roster.set_nodes(nodes)

    def change_nodes(self, nodes: Iterable[Node], gone: Iterable[str] = ()) -> None:
        """Take in nodes that are new or otherwise, and forget those that are gone."""
        self.roster.change_nodes(nodes, gone)

    def add_worker(self, scheduler: Any, worker: str) -> None:
        """Called by Dask when a worker has come."""
        ws = scheduler.workers[worker]
        place = Place(ws, ws.address, str(ws.name), ws.status.name)
        place.executors = _executors(ws.metrics)
        self._feed.take(ws)
        self.roster.add(place)
        for watcher in self.worker_watchers:
            watcher(place, False)

    def remove_worker(self, scheduler: Any, worker: str, **kwargs: Any) -> None:
        """Called by Dask when a worker has gone."""
        self.draining.notice()
        place = self.roster.remove(worker)
        if place is not None:
            self.decisions.withheld.discard(place.worker)
            self._feed.forget(place)
            for watcher in self.worker_watchers:
                watcher(place, True)
        self._soon("queue")

    def _changed(self, places: list[Place]) -> None:
        self.gating.apply(places)
        self.preemption.look(places)
        self.constrained.look_again()
        self._soon("waiting")
        self._soon("queue")

    def _on_gate_closed(self, place: Place) -> None:
        self.draining.move_queued(place)

    # ------------------------------------------------------------ tasks

    def update_graph(self, scheduler: Any, *, tasks: Iterable[Any], **kwargs: Any) -> None:
        """Called by Dask when a graph has come and nothing of it is placed yet."""
        self.constrained.read(tasks)

    def report(self, kind: str, text: str, node: str, data: dict[str, Any]) -> None:
        """Put an event into Dask's event log, topic ``mesh``, and hand it to whoever listens."""
        self._scheduler.log_event("mesh", {"kind": kind, "text": text, "node": node, **data})
        for listener in self.reports:
            listener(kind, text, node, data)

    def transition(self, key: Any, start: str, finish: str, stimulus_id: str = "", **details: Any) -> None:
        """Called by Dask after each step of a task."""
        if self._scheduler is None:
            return
        if finish == "processing":
            if self.roster.awake:
                self.observing.placement(key)
        elif start == "processing":
            if finish == "memory" and self.roster.awake:
                self.observing.run(key, details)
            if self.draining.going_on:
                self.draining.notice()
            if self.needs.waiting or self.draining.stuck:
                self._soon("waiting")
        if self._constrained_keys and key in self._constrained_keys:
            self.constrained.step(key, start, finish)

    def log_event(self, topic: str, msg: Any) -> None:
        """Called by Dask with every event: the only hook that sees a worker's status change."""
        if self._scheduler is not None:
            self.gating.on_log_event(topic, msg)

    # ------------------------------------------------------------ what follows soon after

    def _soon(self, what: str) -> None:
        """Do `what` in the next turn of the loop, once: hooks are called in the middle of Dask's transitions."""
        if what not in self._pending:
            self._pending.add(what)
            self._loop.call_soon(self._do, what)

    def _do(self, what: str) -> None:
        self._pending.discard(what)
        if self._scheduler is None:
            return
        if what == "waiting":
            self.constrained.start_waiting()
            self.draining.try_again()
        elif what == "refused":
            self.constrained.fail_refused()
        else:
            self._offer_queue()

    def _offer_queue(self) -> None:
        s = self._scheduler
        if self.decisions.withheld:
            self.decisions.reconsider()
        if s.queued:
            s.stimulus_queue_slots_maybe_opened(stimulus_id=f"mesh-queue-{time.time()}")
        if self.needs.waiting:
            self._soon("waiting")

    def _tick(self) -> None:
        self.observing.apply()
        self._feed.flush()
        self.preemption.keep_alive()
        if self.decisions.withheld:
            self._soon("queue")

    def _better_recipient(self, ts: Any, candidates: Any, pending_repl: Any) -> Any:
        """Choose who gets a copy of a result: among those that Dask would take, one of the better half."""
        if not self.roster.awake:
            return self._find_recipient(ts, candidates, pending_repl)
        running = self._scheduler.running
        pool = set(running) if candidates is None else candidates & running
        free = [ws for ws in pool if ws not in (ts.who_has or ()) and ws not in pending_repl]
        if len(free) > 1:
            places = self.roster.places
            free.sort(key=lambda ws: places[ws.address].penalty if ws.address in places else 0.0)
            free = free[: (len(free) + 1) // 2]
        return self._find_recipient(ts, set(free) if free else pool, pending_repl)


def _executors(metrics: Any) -> tuple[str, ...]:
    mesh = metrics.get("mesh") if isinstance(metrics, dict) else None
    found = mesh.get("executors", ()) if isinstance(mesh, dict) else ()
    return tuple(str(name) for name in found)
