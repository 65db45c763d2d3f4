"""What screens are told: looks at the nodes twice a second while somebody watches, and at nothing otherwise."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from computemesh.audience import Audience, Reader
from computemesh.errors import Refused
from computemesh.feed import NodeRow, Picture, difference, picture_of
from computemesh.gates import Limits, closed_gates
from computemesh.node import Health, Node
from computemesh.protocol import encode

logger = logging.getLogger("computemesh.driver")
LOOK_SECONDS = 0.5
"""Between two looks at the nodes, and so between two messages."""
ASK_SECONDS = 1.0
"""Between two questions to the scheduler."""
ASK_TIMEOUT = 5.0
TENTH = 10**8
"""Free memory is told to a tenth of a gigabyte: its noise is nobody's news."""


@dataclass(frozen=True, slots=True)
class Running:
    """What the scheduler says of its tasks. `waiting` is None while it says nothing."""

    on: Mapping[str, int] = field(default_factory=dict)
    """How many run, by node; a node that runs none may be missing."""
    waiting: int | None = None


def row_of(node: Node, limits: Limits, running: Running) -> NodeRow:
    """Return `node` as a screen shows it."""
    facts, sample, alive = node.facts, node.sample, node.health is not Health.DEAD
    # What a node that is not there said last is no news of it.
    said = sample if alive else None
    return NodeRow(
        name=facts.name,
        site=facts.site,
        pools=facts.pools,
        health=node.health,
        harvest=node.harvest,
        cordoned=node.cordoned,
        draining=node.draining,
        worker=bool(node.worker),
        reasons=closed_gates(node, limits),
        cores=facts.cores,
        ram=facts.ram,
        ram_free=None if said is None else round(said.ram_free / TENTH) * TENTH,
        gpus=tuple(gpu.name for gpu in facts.gpus),
        load=None if said is None else round(said.cpu),
        gpu_load=None if said is None or not said.gpus else round(max(gpu.load for gpu in said.gpus)),
        tasks=None if running.waiting is None or not alive else running.on.get(facts.name, 0),
    )


def picture(nodes: Iterable[Node], limits: Limits, running: Running) -> Picture:
    """Return the mesh as a screen shows it."""
    return picture_of((row_of(node, limits, running) for node in nodes), running.waiting)


class Feed:
    """The driver's picture of the mesh and who watches it.

    `nodes` returns all nodes as they are now; `ask` asks the scheduler child a question.
    """

    def __init__(
        self,
        nodes: Callable[[], Iterable[Node]],
        limits: Limits,
        ask: Callable[[str, str, float], Awaitable[dict[str, Any]]],
    ) -> None:
        self._nodes, self._limits, self._ask = nodes, limits, ask
        self._audience = Audience(self._whole)
        self._picture = Picture()
        self._running = Running()
        self._work: list[asyncio.Task[None]] = []

    def join(self, send: Callable[[bytes], Awaitable[None]]) -> Reader:
        """Begin to tell a watcher: all of it at once, then what changes."""
        if not self._work:
            self._running = Running()
            self._picture = picture(self._nodes(), self._limits, self._running)
            self._work = [asyncio.create_task(self._look()), asyncio.create_task(self._count())]
        return self._audience.join(send)

    def leave(self, reader: Reader) -> None:
        """Tell a watcher nothing more; after the last one all work stops."""
        self._audience.leave(reader)
        if not self._audience:
            self.stop()

    def stop(self) -> None:
        """Stop the work."""
        for task in self._work:
            task.cancel()
        self._work = []

    @property
    def watched(self) -> bool:
        """Whether anything is computed: somebody watches."""
        return bool(self._work)

    def _whole(self) -> bytes:
        return encode(self._picture.snapshot())

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            now = picture(self._nodes(), self._limits, self._running)
            change = difference(self._picture, now)
            self._picture = now
            if change:
                self._audience.tell(encode(change))

    async def _count(self) -> None:
        while True:
            try:
                said = await self._ask("running", "", ASK_TIMEOUT)
                self._running = Running(said["running"], said["waiting"])
            except Refused:
                # Being restarted or too busy to answer: the screen shows that nobody knows.
                self._running = Running()
            await asyncio.sleep(ASK_SECONDS)
