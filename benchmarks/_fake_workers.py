"""Many Dask workers in one process that answer every task at once, so that only the scheduler has work to do.

``python -m benchmarks._fake_workers SCHEDULER COUNT``: real connections and heartbeats, no execution.
"""

from __future__ import annotations

import asyncio
import pickle
import sys
import time
from typing import Any

from distributed.comm import connect

TYPE = pickle.dumps(int)
SECONDS = 0.001
"""What each task says it took."""


def metrics() -> dict[str, Any]:
    """Return a heartbeat's metrics as a worker that does little sends them."""
    transfer = dict.fromkeys(
        ("incoming_bytes", "incoming_count", "incoming_count_total", "outgoing_bytes", "outgoing_count",
         "outgoing_count_total"), 0,
    )  # fmt: skip
    return {
        "cpu": 1.0, "memory": 50_000_000, "time": time.time(), "managed_bytes": 0,
        "spilled_bytes": {"memory": 0, "disk": 0}, "event_loop_interval": 0.02, "executing": 0, "in_memory": 0,
        "ready": 0, "in_flight": 0, "num_fds": 20, "transfer": transfer, "task_counts": {},
        "bandwidth": {"total": 100e6, "workers": {}, "types": {}}, "digests_total_since_heartbeat": {},
        "host_net_io": {"read_bps": 0, "write_bps": 0}, "host_disk_io": {"read_bps": 0, "write_bps": 0},
    }  # fmt: skip


def answer(message: dict[str, Any]) -> dict[str, Any] | None:
    """Return what a worker says to one message of the scheduler's stream."""
    if message.get("op") != "compute-task":
        return None
    now = time.time()
    return {
        "op": "task-finished", "key": message["key"], "nbytes": 28, "type": TYPE, "typename": "int",
        "metadata": {}, "thread": 1, "status": "OK", "stimulus_id": "fake", "run_id": message["run_id"],
        "startstops": [{"action": "compute", "start": now, "stop": now + SECONDS}],
    }  # fmt: skip


async def worker(scheduler: str, number: int) -> None:
    """Be one worker until the scheduler goes."""
    address = f"tcp://127.0.{1 + number // 250}.{number % 250 + 1}:40000"
    comm = await connect(scheduler)
    await comm.write(
        {
            "op": "register-worker", "reply": False, "address": address, "status": "running", "nthreads": 1,
            "name": f"node-{number}", "now": time.time(), "resources": {}, "memory_limit": 2**34,
            "local_directory": "/tmp", "services": {}, "nanny": None, "pid": 1, "versions": {},
            "metrics": metrics(), "extra": {}, "stimulus_id": "fake", "server_id": f"Worker-{number}",
        }
    )  # fmt: skip
    welcome = await comm.read()
    if welcome.get("status") != "OK":
        raise RuntimeError(f"the scheduler refused a fake worker: {welcome}")
    beating = asyncio.create_task(heartbeats(scheduler, address, welcome["heartbeat-interval"]))
    try:
        while True:
            messages = await comm.read()
            answers = [said for message in messages if (said := answer(message)) is not None]
            if answers:
                await comm.write(answers)
    finally:
        beating.cancel()


async def heartbeats(scheduler: str, address: str, interval: float) -> None:
    """Beat as a worker does."""
    comm = await connect(scheduler)
    while True:
        await asyncio.sleep(interval)
        await comm.write(
            {"op": "heartbeat_worker", "reply": True, "address": address, "now": time.time(), "metrics": metrics(),
             "executing": {}, "extensions": {}}
        )  # fmt: skip
        await comm.read()


async def main(scheduler: str, count: int) -> None:
    """Be `count` workers."""
    print("ready", flush=True)
    await asyncio.gather(*(worker(scheduler, number) for number in range(count)))


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1], int(sys.argv[2])))
    except OSError:
        sys.exit(0)
