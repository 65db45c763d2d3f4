"""The scheduler plugin: makes every placement decision of a Dask scheduler follow the mesh's nodes.

Usable alone on anybody's Dask cluster::

    client.register_plugin(computemesh.scheduler_plugin.MeshPlugin())
    dask scheduler --preload computemesh.scheduler_plugin
"""

from __future__ import annotations

from typing import Any

from .plugin import MeshPlugin

__all__ = ["MeshPlugin", "dask_setup"]


async def dask_setup(scheduler: Any) -> None:
    """Called by ``dask scheduler --preload``."""
    if scheduler.plugins.get(MeshPlugin.name) is None:
        await scheduler.register_scheduler_plugin(MeshPlugin(), name=MeshPlugin.name, idempotent=True)
