"""Lets a node ask for its running task's right to use the mesh, and makes room for others while the task waits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from computemesh.certificates import Peer, Role, peer_of
from computemesh.errors import ComputeMeshError
from computemesh.protocol import SECEDE

from .shadows import Shadows

LOOKED_AT = 10_000
"""Tasks that are looked through for somebody who wants the one that asks."""

Grant = Callable[[str, str, str, str], Awaitable[dict[str, Any]]]
"""Called with user, node, key and signing request; returns `certificate` and `serial`."""


class Delegating:
    """Scheduler handler ``mesh_delegate``."""

    def __init__(self, scheduler: Any, grant: Grant) -> None:
        self._scheduler, self._grant = scheduler, grant
        self._people: dict[str, Peer] = {}
        """Who is behind each of Dask's clients."""
        self._tasks: dict[int, Any] = {}
        """Keys of running tasks that were granted a certificate, by its serial number."""

    def install(self, shadows: Shadows) -> None:
        """Add the handler."""
        shadows.entry(self._scheduler.handlers, "mesh_delegate", self.delegate)

    def on_client(self, client: str, peer: Peer) -> None:
        """A client is being registered by `peer`; one of a running task gives that task's slot to others."""
        if len(self._people) > 2 * len(self._scheduler.clients) + 100:
            self._people = {key: who for key, who in self._people.items() if key in self._scheduler.clients}
        known = self._people.get(client)
        if known is not None and known.name != peer.name and client in self._scheduler.clients:
            # Whose a client is does not change while it is there.
            return
        self._people[client] = peer
        ts = self._scheduler.tasks.get(self._tasks.get(peer.serial))
        ws = ts.processing_on if ts is not None else None
        if ws is not None:
            self._scheduler.stream_comms[ws.address].send({"op": SECEDE, "key": ts.key})

    async def delegate(self, comm: Any, key: Any, request: str) -> dict[str, Any]:
        """Answer a node: the user's name and a certificate for the key in `request`, or ``error`` in words."""
        try:
            node = peer_of((getattr(comm, "extra_info", None) or {}).get("peercert"))
            if not isinstance(request, str):
                raise ComputeMeshError("A signing request is text")  # noqa: TRY301 - answered like all refusals
            user = self._user_of(key, node)
            granted = await self._grant(user, node.name if node is not None else "", str(key), request)
        except ComputeMeshError as refusal:
            return {"error": str(refusal)}
        known = self._scheduler.tasks
        self._tasks = {serial: task for serial, task in self._tasks.items() if task in known}
        self._tasks[int(granted["serial"])] = key
        return {"user": user, "certificate": granted["certificate"], "error": ""}

    def _user_of(self, key: Any, node: Peer | None) -> str:
        """Return for whom `node` runs the task.

        Raises:
            ComputeMeshError: it does not run it, or nobody wants it.
        """
        ts = self._scheduler.tasks.get(key)
        ws = ts.processing_on if ts is not None else None
        if node is None or node.role is not Role.NODE or ws is None or str(ws.name) != node.name:
            raise ComputeMeshError(f"{key} does not run on this node")
        seen, waiting = {ts}, [ts]
        people: set[str] = set()
        while waiting and len(seen) < LOOKED_AT:
            wanted = waiting.pop()
            for client in wanted.who_wants or ():
                person = self._people.get(client.client_key)
                if person is not None and person.role in (Role.USER, Role.ADMIN):
                    people.add(person.name)
            further = set(wanted.dependents) - seen
            seen |= further
            waiting += further
        if len(people) > 1:
            raise ComputeMeshError(f"{key} runs for {' and '.join(sorted(people))}: it can borrow the name of one only")
        if not people:
            raise ComputeMeshError(f"Nobody is known for whom {key} runs")
        return people.pop()
