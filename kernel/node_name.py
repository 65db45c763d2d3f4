"""What a node is called, where its tasks ask and where a person reads it."""

from __future__ import annotations

import os
import platform
import sys
from contextlib import suppress
from typing import Any

NODE_VARIABLE = "COMPUTEMESH_NODE"
"""The agent names its node here for the worker and its capsules."""


def node_name() -> str:
    """Return what this machine is called in the mesh."""
    named = os.environ.get(NODE_VARIABLE)
    if named:
        return named
    distributed = sys.modules.get("distributed")
    if distributed is not None:
        # In a capsule there is no worker, and asking for it raises an error of the agent's own.
        with suppress(Exception):
            return shown_name(distributed.get_worker().name)
    return platform.node() or "this machine"


def shown_name(name: Any) -> str:
    """Return a worker's name for people: a plain Dask cluster numbers its workers."""
    return name if isinstance(name, str) else f"worker {name}"
