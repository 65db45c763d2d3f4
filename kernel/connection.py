"""The notebook's connection to a mesh: found, opened, kept and, where there is none, replaced by local threads."""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from distributed import Client, default_client

from computemesh import config
from computemesh.delegation import ask_again, delegated_identity, in_task
from computemesh.errors import BadConfiguration, DriverError, DriverUnreachable, NoMesh, Refused
from computemesh.identity import Identity, find_identity, home_folder

from .local_modules import as_own_pickle
from .node_list import NodeList, rows_from_dask, rows_from_mesh, rows_from_plugin
from .output_router import OutputRouter
from .placement_report import Placement, placement_from_dask, placement_from_mesh
from .renewal import Renewal
from .ship_once import ShipCache
from .thread_tasks import own_of_thread_task
from .uploads import Uploads

RECONNECT_SECONDS = 30.0
"""How long work waits for a scheduler that is being restarted."""
NO_MESH_SECONDS = 30.0
"""How long a failed search for a mesh is remembered, so that each cell does not wait anew."""
SUBMITTED_WITHIN = 2.0
"""Seconds that a task which was just submitted may take until the scheduler knows it: questions overtake it."""


class MeshClient(Client):
    """Dask's client, which remembers when its scheduler went away."""

    lost_at: float | None = None

    def _graph_to_futures(self, expr: Any, *args: Any, **kwargs: Any) -> Any:
        return super()._graph_to_futures(as_own_pickle(expr), *args, **kwargs)

    async def _reconnect(self) -> None:
        self.lost_at = time.time()
        await super()._reconnect()


class Mesh:
    """A connection to a mesh, to any Dask cluster, or to threads of this process.

    Made by `connect`; ``client`` is the Dask client behind it, for all that Dask can do.
    """

    def __init__(
        self,
        client: Any,
        *,
        identity: Identity | None = None,
        address: str = "",
        local: bool = False,
        owned: bool = True,
    ) -> None:
        self.identity = identity
        self.local = local
        self._address = address
        self._owned = owned
        self._client = client
        self._lock = threading.Lock()
        self._renewal: Renewal | None = None
        self._without_plugin = ""
        self.outputs = OutputRouter()
        self.shipped = ShipCache()
        self.uploads: Any = Uploads()
        if identity is not None:
            self._renewal = _renewal_of(identity)
            self._renewal.start()

    @property
    def client(self) -> Any:
        """The Dask client, reconnected if its scheduler was restarted.

        Raises:
            DriverError: the mesh cannot be reached any more.
        """
        with self._lock:
            deadline = time.monotonic() + RECONNECT_SECONDS
            # With a driver to ask, a new client is open before Dask's has waited for its old address long enough.
            while self.identity is None and self._client.status == "connecting" and time.monotonic() < deadline:
                time.sleep(0.05)
            if self._client.status != "running":
                self._reopen()
            return self._client

    @property
    def lost_at(self) -> float | None:
        """When the scheduler last went away (seconds since the epoch), None if it never did."""
        return getattr(self._client, "lost_at", None)

    @property
    def closed(self) -> bool:
        """Whether the connection has been closed and nothing can reopen it."""
        gone = self._client.status not in {"running", "connecting"}
        return gone and self.identity is None and not self._address

    def nodes(self) -> NodeList:
        """Return the mesh's nodes, as a list that shows itself as a table."""
        if self.identity is not None:
            from computemesh.driver_client import DriverClient

            return NodeList(rows_from_mesh(DriverClient(self.identity).nodes()))
        answer = self.ask("mesh_nodes")
        info = self.client.scheduler_info(n_workers=-1)
        if answer is not None:
            return NodeList(rows_from_plugin(answer, info))
        return NodeList(rows_from_dask(info, self.local))

    def why(self, task: Any) -> Placement:
        """Explain where the task of a key or future runs, or why it does not."""
        key = str(getattr(task, "key", task))
        answer = self.ask("mesh_why", key=key)
        deadline = time.monotonic() + SUBMITTED_WITHIN
        while _on_its_way(task, answer) and time.monotonic() < deadline:
            time.sleep(0.02)
            answer = self.ask("mesh_why", key=key)
        if answer is not None:
            return placement_from_mesh(key, answer)
        if self.local:
            return Placement(key, f"{key} runs on threads of this process: there is no mesh")
        client = self.client
        holders = client.sync(client.scheduler.who_has, keys=[getattr(task, "key", task)])
        info = client.scheduler_info(n_workers=-1)
        return placement_from_dask(key, [where for place in holders.values() for where in place], info)

    def ask(self, question: str, **arguments: Any) -> Any:
        """Ask the plugin in the scheduler; None where there is no plugin."""
        client = self.client
        scheduler = client.scheduler.address
        if self._without_plugin == scheduler:
            return None

        async def asked() -> Any:
            return await getattr(client.scheduler, question)(**arguments)

        answer = client.sync(asked)
        if answer is None:
            # Dask answers an unknown question with None and logs it; one such line is enough.
            self._without_plugin = scheduler
        return answer

    def close(self) -> None:
        """Close the connection; what others opened stays open."""
        if self._renewal is not None:
            self._renewal.stop()
        self.shipped.clear()
        if self._owned:
            self._client.close()
        self.identity, self._address = None, ""

    def _reopen(self) -> None:
        if self.identity is None:
            if self.local:
                self._client = _local_client()
                return
            if self._address:
                lost_at = self.lost_at
                self._client = _open_address(self._address, RECONNECT_SECONDS)
                self._client.lost_at = lost_at
                return
            raise NoMesh("The connection to this Dask cluster was closed: connect again with `mesh.connect(...)`")
        if self._renewal is not None:
            self._renewal.stop()
        old, lost_at = self._client, self.lost_at
        self._client = _open(self.identity, RECONNECT_SECONDS)
        self._client.lost_at = lost_at
        _inherit_default(old, self._client)
        # Its futures are lost already and say so; closing waits for a scheduler that is gone, so not here.
        threading.Thread(target=_closed, args=(old,), name="computemesh-close", daemon=True).start()
        self._renewal = _renewal_of(self.identity)
        self._renewal.start()

    def _where(self) -> str:
        if self.local:
            return "threads of this process (no mesh)"
        address = self._client.scheduler.address if self._client.scheduler else "closed"
        return f"{self.identity.driver}, scheduler {address}" if self.identity else address

    def __enter__(self) -> Mesh:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._client.status != "running":
            return f"<Mesh: {self._client.status}>"
        workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
        slots = sum(worker["nthreads"] for worker in workers)
        return f"<Mesh: {self._where()}, {len(workers)} node{'s' * (len(workers) != 1)}, {slots} slots>"

    def _repr_html_(self) -> str:
        from html import escape

        try:
            table = self.nodes()._repr_html_()
        except DriverError as error:
            table = f"<p>{escape(str(error))}</p>"
        return f"<p><b>Mesh</b> · {escape(self._where())}</p>{table}"


def _on_its_way(task: Any, answer: Any) -> bool:
    """Return whether the scheduler does not know `task`, a future, yet."""
    return bool(answer) and answer.get("state") == "unknown" and getattr(task, "status", None) == "pending"


def _renewal_of(identity: Identity) -> Renewal:
    return Renewal(identity, ask_again if identity.delegated and in_task() else None)


_lock = threading.RLock()
_current: Mesh | None = None
_failed: tuple[float, Exception] | None = None
_said_local = False


def connect(
    address: str | None = None,
    *,
    home: str | os.PathLike[str] | None = None,
    client: Any = None,
    timeout: float | None = None,
) -> Mesh:
    """Connect this process to a mesh and make it the default for all that follows.

    Args:
        address: a Dask scheduler of your own, such as ``tcp://10.0.0.5:8786``; by default the mesh that
            ``mesh login`` or ``mesh up`` made known on this machine.
        home: where ComputeMesh keeps its files; by default ``$COMPUTEMESH_HOME`` or the platform's config folder.
        client: an open `distributed.Client` to use.
        timeout: seconds to wait for an answer (``notebook.connect-timeout``).

    Raises:
        NoMesh: no mesh is known here; says how to log in.
        DriverError: it does not answer, or does not let us in.
    """
    global _current, _failed
    if address is None and client is None and home is None and (own := own_of_thread_task()) is not None:
        return own
    wait = config.seconds("notebook.connect-timeout") if timeout is None else float(timeout)
    with _lock:
        if client is not None:
            if address is not None:
                raise BadConfiguration("connect() takes an address or a client, not both")
            found = Mesh(client, owned=False)
        elif address is not None:
            found = Mesh(_open_address(address, wait), address=address)
        else:
            identity = delegated_identity() if home is None and in_task() else find_identity(home_folder(home))
            found = Mesh(_open(identity, wait), identity=identity)
        if _current is not None and _current._client is not found._client:
            _inherit_default(_current._client, found._client)
            _current.close()
        _current, _failed = found, None
        return found


def current() -> Mesh:
    """Return the mesh in use: as `known`, else threads of this process."""
    global _current
    with _lock:
        found = known()
        if found is None:
            _current = found = Mesh(_local_client(), local=True)
        return found


def known() -> Mesh | None:
    """Return the connected mesh, Dask's default client, or the mesh known on this machine.

    Where there is none, says so once, and why, and returns None; a failed search is remembered for a while.
    """
    global _current, _failed
    if (own := own_of_thread_task()) is not None:
        return own
    with _lock:
        existing = _default()
        if _current is not None and not _current.closed and (existing is None or not _current.local):
            return _current
        if existing is not None:
            _current = Mesh(existing, owned=False)
            return _current
        if _failed is None or time.monotonic() - _failed[0] > NO_MESH_SECONDS:
            try:
                return connect()
            except (NoMesh, DriverError) as error:
                if in_task():
                    # Local threads would hide that the task does not do what it was written for.
                    raise
                _failed = (time.monotonic(), error)
        _say_local(_failed[1])
        return None


def disconnect() -> None:
    """Close the mesh in use, if we opened it, and forget that none was found."""
    global _current, _failed, _said_local
    with _lock:
        if _current is not None:
            _current.close()
        _current, _failed, _said_local = None, None, False


def _default() -> Any:
    """Return a Dask client that somebody else has opened as the default; our local threads are none."""
    try:
        found = default_client()
    except ValueError:
        return None
    ours = _current is not None and found is _current._client
    return None if ours or found.asynchronous else found


def _say_local(error: Exception) -> None:
    global _said_local
    if not _said_local:
        _said_local = True
        print(f"No mesh, so this runs on local threads. {error}", file=sys.stderr)


def _local_client() -> Any:
    import logging

    from dask.system import CPU_COUNT

    return Client(
        processes=False,
        n_workers=1,
        threads_per_worker=CPU_COUNT,
        dashboard_address="127.0.0.1:0",
        silence_logs=logging.CRITICAL,
        set_as_default=False,
    )


def _open_address(address: str, wait: float) -> Any:
    try:
        return _patient(MeshClient(address, timeout=wait))
    except (OSError, ValueError) as error:
        raise DriverUnreachable(
            f"No Dask scheduler answers at {address} within {wait:g} s ({error}): is it up and the address right?"
        ) from None


def _open(identity: Identity, wait: float) -> Any:
    from computemesh.dask_security import MeshSecurity
    from computemesh.driver_client import DriverClient, own_versions

    driver = DriverClient(identity, timeout=wait)
    deadline = time.monotonic() + wait
    status = driver.status()
    while not status.scheduler:
        if time.monotonic() > deadline:
            raise DriverUnreachable(
                f"The driver at {identity.driver} is up, but its scheduler does not run yet: try again in a moment"
            )
        time.sleep(0.1)
        status = driver.status()
    ours = own_versions()
    for name in ("python", "distributed"):
        theirs = getattr(status.versions, name)
        if theirs != getattr(ours, name):
            raise Refused(
                f"This notebook has {name} {getattr(ours, name)}, the mesh at {identity.driver} {theirs}: pickles do "
                "not cross; use a kernel with the mesh's version"
            )
    try:
        return _patient(MeshClient(status.scheduler, security=MeshSecurity(identity), timeout=wait))
    except OSError as error:
        raise DriverUnreachable(
            f"The driver at {identity.driver} answers, but its scheduler at {status.scheduler} does not within "
            f"{wait:g} s ({error}): does a firewall block the port?"
        ) from None


def _inherit_default(old: Any, new: Any) -> None:
    """Let `new`, when it is closed, put Dask's configuration back to what it was before `old`, which ends first."""
    if hasattr(old, "_set_config") and hasattr(new, "_set_config"):
        old._set_config, new._set_config = new._set_config, old._set_config


def _closed(client: Any) -> None:
    with suppress(OSError, TimeoutError):
        client.close(timeout=2)


def _patient(client: Any) -> Any:
    # The first connection fails fast; a scheduler that is being restarted deserves more time.
    client._timeout = RECONNECT_SECONDS
    return client
