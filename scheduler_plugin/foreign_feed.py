"""Reads what workers say of their machines in Dask's heartbeat, and on a foreign cluster makes them say it."""

from __future__ import annotations

import logging
from typing import Any

from computemesh.errors import DriverError
from computemesh.node import Node, NodeFacts, Sample
from computemesh.protocol import typed

from . import foreign
from .roster import Place, Roster
from .shadows import Shadows

logger = logging.getLogger("computemesh.scheduler_plugin")


class ForeignFeed:
    """Node data from heartbeats. Where a driver gives the nodes, only the workers' executors are read."""

    def __init__(self, scheduler: Any, roster: Roster) -> None:
        self._scheduler, self._roster = scheduler, roster
        self._heartbeat = scheduler.handlers["heartbeat_worker"]
        self._found: dict[str, Node] = {}
        self._dirty = False
        self.sampling = False

    def install(self, shadows: Shadows) -> None:
        """Look at each heartbeat after Dask has."""
        shadows.entry(self._scheduler.handlers, "heartbeat_worker", self._on_heartbeat)

    async def start(self) -> None:
        """Send the sampler to all workers, by value, so that they need nothing of ours."""
        import cloudpickle

        self.sampling = True
        cloudpickle.register_pickle_by_value(foreign)
        try:
            plugin = cloudpickle.dumps(foreign.Sampler())
        finally:
            cloudpickle.unregister_pickle_by_value(foreign)
        await self._scheduler.register_worker_plugin(None, plugin, foreign.NAME, idempotent=True)

    async def stop(self) -> None:
        """Take the sampler off the workers."""
        self.sampling = False
        if foreign.NAME in self._scheduler.worker_plugins:
            await self._scheduler.unregister_worker_plugin(None, foreign.NAME)

    def _on_heartbeat(self, **message: Any) -> Any:
        reply = self._heartbeat(**message)
        ws = self._scheduler.workers.get(message.get("address"))
        if ws is not None and "mesh" in ws.metrics:
            self.take(ws)
        return reply

    def take(self, ws: Any) -> None:
        """Read the newest heartbeat of one worker."""
        said = ws.metrics.get("mesh")
        if not isinstance(said, dict):
            return
        place = self._roster.places.get(ws.address)
        if place is not None:
            self._roster.set_executors(place, tuple(str(name) for name in said.get("executors", ())))
        if self.sampling and "node" in said:
            self._take_node(str(ws.name), said["node"])

    def _take_node(self, name: str, said: Any) -> None:
        try:
            facts = typed({**said["facts"], "name": name}, NodeFacts)
            node = Node(facts=facts, sample=typed(said["sample"], Sample))
        except (DriverError, KeyError, TypeError) as error:
            logger.warning("What worker %s says of its machine cannot be read: %s", name, error)
            return
        new = name not in self._found
        self._found[name] = node
        self._dirty = True
        if new:
            self.flush()

    def flush(self) -> None:
        """Let newly sampled data count; called once a second, since each call compares all nodes."""
        if self._dirty:
            self._dirty = False
            self._roster.set_nodes(self._found.values())

    def forget(self, place: Place) -> None:
        """A worker has gone."""
        if self._found.pop(place.name, None) is not None:
            self._dirty = True
