"""Dask's TLS from a mesh identity."""

from __future__ import annotations

import ssl
from typing import Any

from distributed.security import Security

from .certificates import MeshContext, Role
from .identity import Identity


class MeshSecurity(Security):
    """A `distributed.Security` whose contexts check roles and pick up renewed certificates by themselves.

    A client's connections accept the driver's scheduler only; the scheduler and workers check the other end's role
    in the role guard, since they talk to both.
    """

    def __init__(self, identity: Identity) -> None:
        super().__init__(
            require_encryption=True,
            tls_ca_file=str(identity.authority),
            tls_client_cert=str(identity.certificate),
            tls_client_key=str(identity.key),
            tls_worker_cert=str(identity.certificate),
            tls_worker_key=str(identity.key),
            tls_scheduler_cert=str(identity.certificate),
            tls_scheduler_key=str(identity.key),
        )
        self.identity = identity
        self._contexts: dict[tuple[str, bool], MeshContext] = {}

    def _context(self, role: str, server: bool) -> ssl.SSLContext:
        found = self._contexts.get((role, server))
        if found is None:
            expected = (Role.DRIVER,) if role == "client" else (Role.DRIVER, Role.NODE)
            found = self.identity.server_context() if server else self.identity.client_context(expected)
            self._contexts[role, server] = found
        return found

    def get_connection_args(self, role: str) -> dict[str, Any]:
        """Return what Dask needs to connect as `role` (``client``, ``worker`` or ``scheduler``)."""
        return {
            "ssl_context": self._context(role, server=False),
            "require_encryption": True,
            "extra_conn_args": {},
        }

    def get_listen_args(self, role: str) -> dict[str, Any]:
        """Return what Dask needs to listen as `role`."""
        return {"ssl_context": self._context(role, server=True), "require_encryption": True}
