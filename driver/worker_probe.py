"""Asks whether a worker's address can be reached from here, with a TLS handshake and nothing more."""

from __future__ import annotations

import asyncio
import contextlib

from computemesh.certificates import Role
from computemesh.driver_client import host_and_port
from computemesh.identity import Identity

PATIENCE = 5.0
"""Seconds."""


async def answers(identity: Identity, address: str, timeout: float = PATIENCE) -> str:
    """Return why a worker at `address` (``tls://host:port``) does not answer; empty when it does."""
    host, port = host_and_port(address.removeprefix("tls://"))
    context = identity.client_context((Role.NODE,))
    try:
        async with asyncio.timeout(timeout):
            _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname="")
    except TimeoutError:
        return f"no answer within {timeout:g} s, a firewall may block it"
    except OSError as error:
        return error.strerror or str(error)
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return ""
