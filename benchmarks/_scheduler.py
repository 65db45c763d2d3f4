"""A Dask scheduler in a process of its own, stock or with the plugin and node data coming in as from a driver.

``python -m benchmarks._scheduler NODES``: 0 nodes is stock. Prints its address and serves until it is ended.
"""

from __future__ import annotations

import asyncio
import itertools
import sys

from distributed import Scheduler

from computemesh.node import Network, Node, NodeFacts, Sample
from computemesh.protocol import Nodes, ToChild, decode, encode
from computemesh.scheduler_plugin import MeshPlugin

SPEEDS = (1.0, 2.0, 4.0, 8.0)
BEAT = 2.0
GB = 10**9


def nodes(count: int, beat: int) -> tuple[Node, ...]:
    """Return nodes of different speeds, each a little different at every beat."""
    return tuple(
        Node(
            facts=NodeFacts(
                name=f"node-{number}", cores=4, ram=16 * GB, core_speed=SPEEDS[number % 4], pools=("cpu",),
                packages={f"package-{index}": "1.0" for index in range(20)},
            ),
            sample=Sample(time=beat, cpu=(7 * number + 3 * beat) % 50, cpu_ours=0.0, ram_free=8 * GB + number),
            network=Network(0.001 * (1 + number % 5), 1e9),
        )
        for number in range(count)
    )  # fmt: skip


async def feed(plugin: MeshPlugin, messages: list[bytes]) -> None:
    """Give the plugin its nodes again and again, as they come over the wire."""
    for message in itertools.cycle(messages):
        plugin.set_nodes(decode(message, ToChild).nodes)
        await asyncio.sleep(BEAT)


async def main(count: int) -> None:
    """Serve."""
    messages = [encode(Nodes(nodes=nodes(count, beat))) for beat in range(8)]  # the driver's work, not counted
    async with Scheduler(host="127.0.0.1", port=0, dashboard=False, dashboard_address="127.0.0.1:0") as scheduler:
        feeding = None
        if count:
            plugin = MeshPlugin(foreign_sampling=False)
            await scheduler.register_scheduler_plugin(plugin, idempotent=True)
            feeding = asyncio.create_task(feed(plugin, messages))
        print(scheduler.address, flush=True)
        await scheduler.finished()
        del feeding


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
