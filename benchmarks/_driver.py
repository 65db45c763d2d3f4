"""The driver's end of the scheduler's link, with its journal and nodes that beat, in a process of its own.

``python -m benchmarks._driver FOLDER NODES``: listens at ``FOLDER/link``, tells the nodes at once and then what is
different, as often as the driver does, and writes what it hears into a journal. The driver does the same, and more.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from computemesh.driver.journal import Journal
from computemesh.driver.scheduler_child import LARGE, MEASURES_SECONDS
from computemesh.node import Network, Node, NodeFacts, Sample
from computemesh.protocol import (
    FromChild,
    Nodes,
    SchedulerEvent,
    WorkerSeen,
    decode,
    encode,
    nodes_changed,
    with_measures_later,
)

SPEEDS = (1.0, 2.0, 4.0, 8.0)
BEATS = 4
"""A node beats every two seconds; what has changed is looked at twice a second, so a quarter has each time."""
GB = 10**9


def node(number: int, beat: int) -> Node:
    """Return one node of the mesh, a little different at every beat."""
    return Node(
        facts=NodeFacts(
            name=f"node-{number}", cores=4, ram=16 * GB, core_speed=SPEEDS[number % 4], pools=("cpu",),
            packages={f"package-{index}": "1.0" for index in range(300)},
        ),
        sample=Sample(time=beat, cpu=(7 * number + 3 * beat) % 50, cpu_ours=0.0, ram_free=8 * GB + number),
        network=Network(0.001 * (1 + number % 5), 1e9),
    )  # fmt: skip


async def tell(writer: asyncio.StreamWriter, count: int) -> None:
    """Tell the nodes, then what changes."""
    now = [node(number, 0) for number in range(count)]
    writer.write(encode(Nodes(nodes=tuple(now))) + b"\n")
    told, turn = {each.name: each for each in now}, 0
    while True:
        await asyncio.sleep(0.5)
        turn += 1
        now = [node(number, turn) if number % BEATS == turn % BEATS else each for number, each in enumerate(now)]
        found = with_measures_later(told, now) if count > LARGE and turn % (MEASURES_SECONDS / 0.5) else now
        if change := nodes_changed(told, found):
            writer.write(encode(change) + b"\n")
            told = {each.name: each for each in found}


async def main(folder: Path, count: int) -> None:
    """Serve until the scheduler goes."""
    journal = Journal(folder / "journal.sqlite")
    term = journal.lead()
    gone = asyncio.Event()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        telling = asyncio.create_task(tell(writer, count))
        while line := await reader.readline():
            message = decode(line, FromChild)
            if isinstance(message, SchedulerEvent):
                journal.append(term, time.time(), message.kind, message.text, message.node, message.data)
            elif isinstance(message, WorkerSeen):
                text = f"The worker of {message.node} is there"
                journal.append(term, time.time(), "worker", text, message.node, {"speed": message.speed})
        telling.cancel()
        gone.set()

    async with await asyncio.start_unix_server(converse, str(folder / "link"), limit=2**26):
        print("ready", flush=True)
        await gone.wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
