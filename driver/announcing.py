"""Announces the driver on the local network, so that machines join without knowing its address."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator
from typing import Any

from computemesh.announcement import SERVICE, properties_of

logger = logging.getLogger("computemesh.driver")


@contextlib.asynccontextmanager
async def announced(host: str, port: int, pin: str, listening: str) -> AsyncIterator[None]:
    """Announce within the block a driver that others reach at `host` and that listens on `listening` (empty: all).

    A network without multicast is no error: machines are then told the address.
    """
    telling = asyncio.create_task(_announce(host, port, pin, listening))
    try:
        yield
    finally:
        with contextlib.suppress(TimeoutError):
            zeroconf = await asyncio.wait_for(asyncio.shield(telling), 5.0)
            if zeroconf is not None:
                await asyncio.wait_for(zeroconf.async_unregister_all_services(), 5.0)
                await asyncio.wait_for(zeroconf.async_close(), 5.0)


async def _announce(host: str, port: int, pin: str, listening: str) -> Any:
    from zeroconf import InterfaceChoice, NonUniqueNameException
    from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

    interfaces: Any = [listening] if listening not in ("", "0.0.0.0", "::") else InterfaceChoice.Default  # noqa: S104
    name = f"{socket.gethostname().split('.')[0]}-{port}"
    try:
        zeroconf = AsyncZeroconf(interfaces=interfaces)
    except OSError as error:
        logger.info("the driver cannot announce itself on this network: %s", error)
        return None
    try:
        info = AsyncServiceInfo(
            SERVICE, f"{name}.{SERVICE}", parsed_addresses=[host], port=port, properties=properties_of(pin),
            server=f"{name}.local.",
        )  # fmt: skip
        await (await zeroconf.async_register_service(info, allow_name_change=True))
        logger.info("announced as %s at %s:%d", name, host, port)
    except (OSError, ValueError, NonUniqueNameException) as error:
        logger.info("the driver cannot announce itself on this network: %s", error)
    return zeroconf
