"""The driver's scheduler process: ``python -m computemesh.scheduler_plugin.child --link … --listen … --identity …``.

A Dask scheduler with the mesh's TLS, the role guard and the plugin in it. It serves as long as its link to the driver
stands, and ends by itself when the driver has gone.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from pathlib import Path
from typing import Any

import dask
from distributed import Scheduler

from computemesh.dask_security import MeshSecurity
from computemesh.errors import ComputeMeshError
from computemesh.guard import Guard
from computemesh.identity import load_identity

from .delegating import Delegating
from .link import Link
from .plugin import MeshPlugin
from .shadows import Shadows

logger = logging.getLogger("computemesh.scheduler_plugin")


class SilentScheduler(Scheduler):
    """Dask's scheduler without its plain HTTP port, which it opens even when its dashboard is off."""

    def start_http_server(self, *_: Any, **__: Any) -> None:
        """Open nothing; called by Dask."""


async def serve(link_socket: Path, listen: str, identity_folder: Path, dashboard: int | None = None) -> None:
    """Run the scheduler until the driver's end of the link closes.

    Raises:
        ComputeMeshError: the identity cannot be used, or the Dask installed is another one.
        OSError: the address cannot be listened on, or nobody is at the link's socket.
    """
    security = MeshSecurity(load_identity(identity_folder))
    plugin = MeshPlugin(foreign_sampling=False)
    guard = Guard("scheduler", lambda kind, node, text: link.report(kind, text, node, {}))
    link = Link(plugin, guard.deny)
    await link.open(link_socket)
    protocol, _, where = listen.partition("://")
    host, _, port = where.rpartition(":")
    kind = SilentScheduler if dashboard is None else Scheduler
    scheduler = kind(
        protocol=protocol,
        host=host.strip("[]") or None,
        port=int(port),
        security=security,
        dashboard=dashboard is not None,
        dashboard_address=f"127.0.0.1:{dashboard or 0}",
        preload=[],
    )
    delegating = Delegating(scheduler, link.delegate)
    guard.on_client = delegating.on_client
    guard.install(scheduler)
    async with scheduler:
        await scheduler.register_scheduler_plugin(plugin, idempotent=True)
        delegating.install(Shadows())
        link.started(scheduler.address)
        ending = asyncio.create_task(_until_told())
        conversing = asyncio.create_task(link.run())
        try:
            await asyncio.wait({conversing, ending}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ending.cancel()
            conversing.cancel()
        logger.info("The driver has gone or ends the scheduler")


async def _until_told() -> None:
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    await told.wait()


def main(arguments: list[str] | None = None) -> int:
    """Read the command line and serve; 0 when the driver has gone, 1 when it could not serve."""
    parser = argparse.ArgumentParser(prog="computemesh.scheduler_plugin.child", description=__doc__)
    parser.add_argument("--link", type=Path, required=True, help="the driver's Unix socket")
    parser.add_argument("--listen", required=True, help="where to listen, such as tls://0.0.0.0:8791")
    parser.add_argument("--identity", type=Path, required=True, help="folder of the driver's identity")
    parser.add_argument("--local-directory", type=Path, help="folder for Dask's temporary files")
    parser.add_argument(
        "--dashboard",
        type=int,
        help="port of Dask's own pages, on loopback only; off by default",
    )
    given = parser.parse_args(arguments)
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format="%(levelname)s %(name)s: %(message)s",
    )
    if given.local_directory is not None:
        dask.config.set(temporary_directory=str(given.local_directory))
    try:
        asyncio.run(serve(given.link, given.listen, given.identity, given.dashboard))
    except (ComputeMeshError, OSError) as error:
        logger.error("The scheduler cannot serve at %s: %s", given.listen, error)  # noqa: TRY400 - one plain line
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
