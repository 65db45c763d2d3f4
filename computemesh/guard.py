"""The role guard: what each role may say on a Dask connection, and whose pickles are never read.

Dask has no roles: whoever holds a certificate of the mesh's CA could run code in the scheduler. The guard reads the
role from the peer's certificate, lets each role say only what it needs, and refuses pickles from nodes before they
are read. It is installed on one scheduler or worker object; no class of Dask is changed. The one function it
wraps for the whole process, the unpickler of `distributed.protocol.core`, acts only while a guarded connection reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

from .certificates import Peer, Role, peer_of

NODE_TO_SCHEDULER = frozenset(
    {
        "add_keys", "close-client", "gather", "get_task_status", "get_worker_service_addr",
        "heartbeat_worker", "identity", "log_event", "mesh_delegate", "missing_workers", "ping", "register-worker",
        "shuffle_barrier", "shuffle_get", "shuffle_get_or_create", "shuffle_restrict_task",
        "unregister", "versions", "who_has", "worker-status-change", "worker_status_change",
    }
)  # fmt: skip
"""Operations that a node's certificate may open at the scheduler."""

NODE_STREAM = frozenset(
    {
        "add-keys", "close-stream", "keep-alive", "log-event", "long-running", "release-worker-data",
        "request-refresh-who-has", "reschedule", "steal-response", "task-erred", "task-finished",
        "worker-status-change",
    }
)  # fmt: skip
"""What a node's worker may say on its stream once it is registered: nothing of a client's."""

OF_WORKERS = NODE_STREAM - {"close-stream", "keep-alive", "log-event"}
"""What only a worker may stream: a person's client could forge results with it."""

DENIED_TO_USERS = frozenset(
    {
        "connection_stream", "mesh_delegate",
        "register-worker", "heartbeat_worker", "register_nanny", "unregister", "unregister_nanny",
        "run_function", "register_scheduler_plugin", "unregister_scheduler_plugin", "register_nanny_plugin",
        "unregister_nanny_plugin", "terminate", "restart", "restart_workers", "retire_workers",
        "worker_status_change", "set_restrictions", "workers_to_close", "adaptive_target", "dump_state",
        "dump_cluster_state_to_url", "start_task_metadata", "stop_task_metadata", "amm_handler", "reschedule",
    }
)  # fmt: skip
"""Scheduler operations that a user's certificate may not open; an administrator's may open all but a node's own."""

PEER_TO_WORKER = frozenset({"get_data", "identity", "ping", "shuffle_receive", "versions"})
"""Operations that nodes and users may open at a worker; the scheduler's own connections may open all."""


class RefusedPickle(Exception):
    """A pickle came from a peer whose pickles are not read."""


def may_open(side: str, role: Role, op: object) -> bool:
    """Return whether a peer of `role` may say `op` to a ``scheduler`` or ``worker``."""
    # "close" ends the peer's own connection and nothing else.
    if role is Role.DRIVER or op == "close":
        return True
    if side == "worker":
        return op in PEER_TO_WORKER
    if role is Role.NODE:
        return op in NODE_TO_SCHEDULER
    if role is Role.USER:
        return op not in DENIED_TO_USERS
    return op not in {"register-worker", "heartbeat_worker", "register_nanny"}


def may_stream(side: str, role: Role, op: object) -> bool:
    """Return whether a peer of `role` may say `op` in the stream of messages that follows its registration."""
    if side == "worker" or role is Role.DRIVER:
        return True
    return op in NODE_STREAM if role is Role.NODE else op not in OF_WORKERS


_refusing: ContextVar[bool] = ContextVar("computemesh_refusing_pickles", default=False)


def _guard_unpickling() -> None:
    import distributed.protocol.core as core

    if getattr(core.pickle, "guarded", False):
        return
    stock = core.pickle

    def loads(data: Any, *, buffers: Any = ()) -> Any:
        if _refusing.get():
            raise RefusedPickle("a pickle came from a node")
        return stock.loads(data, buffers=buffers)

    core.pickle = SimpleNamespace(loads=loads, dumps=stock.dumps, guarded=True)


@contextmanager
def _no_pickles() -> Iterator[None]:
    token = _refusing.set(True)
    try:
        yield
    finally:
        _refusing.reset(token)


@dataclass
class Guard:
    """The guard of one Dask server.

    `report` is called with (kind, peer name, text) for what was turned away.
    """

    side: str
    report: Callable[[str, str, str], None]
    denied: frozenset[int] = frozenset()
    """Serial numbers of revoked certificates."""
    on_client: Callable[[str, Peer], None] = lambda client, peer: None
    """Called with each Dask client that registers, and whom its certificate names."""
    _open: WeakKeyDictionary[Any, Peer] = field(default_factory=WeakKeyDictionary)
    """Connections that exist, with whom they are; Dask says nowhere when one ends, so they are held weakly."""

    def install(self, server: Any) -> None:
        """Put the guard before `server.handle_comm`; call it before the server starts to listen."""
        from distributed.utils import NoOpAwaitable

        _guard_unpickling()
        stock = server.handle_comm

        def guarded(comm: Any) -> Any:
            peer = self._admitted(comm)
            if peer is None:
                comm.abort()
                return NoOpAwaitable()
            self._open[comm] = peer
            self._watch(comm, peer)
            return stock(comm)

        server.handle_comm = guarded

    def deny(self, serials: frozenset[int]) -> None:
        """Turn these certificates away from now on and cut what they have open."""
        self.denied = serials
        for comm, peer in list(self._open.items()):
            if peer.serial in serials and not comm.closed():
                self.report("refused-certificate", peer.name, "its certificate was revoked; connection cut")
                comm.abort()

    def _admitted(self, comm: Any) -> Peer | None:
        certificate = (getattr(comm, "extra_info", None) or {}).get("peercert")
        peer = peer_of(certificate)
        if peer is None:
            self.report("refused-connection", str(comm.peer_address), "no certificate of a known role")
            return None
        if peer.serial in self.denied:
            self.report("refused-certificate", peer.name, "its certificate was revoked")
            return None
        return peer

    def _watch(self, comm: Any, peer: Peer) -> None:
        from distributed.comm.core import CommClosedError

        stock_read = comm.read
        trusted_pickles = peer.role is not Role.NODE or self.side == "worker"
        if not trusted_pickles:
            # Offloaded deserialisation would run in a thread that does not see the refusal.
            comm.allow_offload = False
        opened = False

        async def read(*args: Any, **kwargs: Any) -> Any:
            nonlocal opened
            try:
                if trusted_pickles:
                    message = await stock_read(*args, **kwargs)
                else:
                    with _no_pickles():
                        message = await stock_read(*args, **kwargs)
            except RefusedPickle:
                self.report("refused-pickle", peer.name, "sent a pickle; connection cut")
                comm.abort()
                raise CommClosedError("a pickle from a node was refused") from None
            op = message.get("op") if isinstance(message, dict) else None
            if op is None and opened:
                self._check_stream(comm, peer, message)
                return message
            if not may_open(self.side, peer.role, op) or not _own_name(op, message, peer):
                self.report("refused-operation", peer.name, f"a {peer.role} certificate may not {op!r}")
                comm.abort()
                raise CommClosedError(f"a {peer.role} certificate may not {op!r} here")
            opened = True
            if op == "register-client":
                self.on_client(str(message.get("client")), peer)
            return message

        comm.read = read

    def _check_stream(self, comm: Any, peer: Peer, messages: Any) -> None:
        from distributed.comm.core import CommClosedError

        for message in messages if isinstance(messages, list | tuple) else ():
            op = message.get("op") if isinstance(message, dict) else None
            if op is not None and not may_stream(self.side, peer.role, op):
                self.report("refused-operation", peer.name, f"a {peer.role} certificate may not stream {op!r}")
                comm.abort()
                raise CommClosedError(f"a {peer.role} certificate may not stream {op!r} here")


def _own_name(op: object, message: Any, peer: Peer) -> bool:
    """A node registers a worker under its own name only."""
    return op != "register-worker" or peer.role is Role.DRIVER or message.get("name") == peer.name
