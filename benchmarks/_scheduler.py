"""A Dask scheduler in a process of its own: stock, or with the plugin and its link to a driver.

``python -m benchmarks._scheduler [LINK]``: without a link it is stock. Prints its address and serves until it is ended.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from distributed import Scheduler

from computemesh.scheduler_plugin import MeshPlugin
from computemesh.scheduler_plugin.link import Link


async def main(link_socket: str) -> None:
    """Serve."""
    async with Scheduler(host="127.0.0.1", port=0, dashboard=False, dashboard_address="127.0.0.1:0") as scheduler:
        conversing = None
        if link_socket:
            plugin = MeshPlugin(foreign_sampling=False)
            link = Link(plugin, lambda serials: None)
            await link.open(Path(link_socket))
            await scheduler.register_scheduler_plugin(plugin, idempotent=True)
            conversing = asyncio.create_task(link.run())
        print(scheduler.address, flush=True)
        await scheduler.finished()
        del conversing


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else ""))
