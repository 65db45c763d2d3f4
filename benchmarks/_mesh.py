"""Workers of this machine with the plugin and capsules, as on a mesh, for benchmarks of the notebook's side."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def mesh_cluster(workers: int, threads: int = 1) -> Iterator[tuple[Any, Any]]:
    """Give a cluster and its client, once all workers have told of their capsules, or after half a minute."""
    from distributed import Client, LocalCluster

    from computemesh.node_agent.capsules import CapsulePlugin
    from computemesh.scheduler_plugin import MeshPlugin

    with (
        LocalCluster(
            n_workers=workers,
            threads_per_worker=threads,
            protocol="tcp",
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
        ) as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(CapsulePlugin())
        client.register_plugin(MeshPlugin())
        deadline = time.monotonic() + 30
        while not with_capsules(client) and time.monotonic() < deadline:
            time.sleep(0.1)
        yield cluster, client


def with_capsules(client: Any) -> bool:
    """Return whether all workers offer capsules."""
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    executors = [((worker.get("metrics") or {}).get("mesh") or {}).get("executors", ()) for worker in workers]
    return bool(executors) and all("capsule" in found for found in executors)


def seconds_of(work: Callable[[], object]) -> float:
    """Return how long `work` takes."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun
