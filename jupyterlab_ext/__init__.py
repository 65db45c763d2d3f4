"""The mesh in JupyterLab: ``mesh lab``, the sidebar (``ui/``, built into ``labextension/``) and its server side."""

from __future__ import annotations

from typing import Any


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    """Return what the Jupyter server loads; called by it."""
    from .server import MeshExtension

    return [{"module": "computemesh.jupyterlab_ext.server", "app": MeshExtension}]
