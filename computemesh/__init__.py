"""ComputeMesh: an organisation's idle machines as one compute pool, used from the notebook.

The public face is lazy: a name is looked up in the modules that the rooms register under the entry-point group
``computemesh.api``, and imported on first use, so that ``import computemesh`` itself costs almost nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .public import (
        Executor,
        Job,
        Mesh,
        MeshFuture,
        as_completed,
        cancel,
        connect,
        gather,
        job,
        jobs,
        keep,
        nodes,
        preset,
        register_joblib,
        run,
        submit,
        task,
        upload,
        why,
    )
    from .public import (
        map as map,  # noqa: A004
    )

__all__ = [
    "Executor",
    "Job",
    "Mesh",
    "MeshFuture",
    "__version__",
    "as_completed",
    "cancel",
    "connect",
    "gather",
    "job",
    "jobs",
    "keep",
    "map",
    "nodes",
    "preset",
    "register_joblib",
    "run",
    "submit",
    "task",
    "upload",
    "why",
]


def __getattr__(name: str) -> Any:
    # Python asks here before it imports a submodule, so anything else must fail at once.
    if name not in __all__:
        raise AttributeError(f"module 'computemesh' has no attribute {name!r}")
    from .rooms import public_name

    value = public_name(name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


def load_ipython_extension(shell: Any) -> None:
    """Called by IPython on ``%load_ext computemesh``."""
    from .rooms import public_name

    public_name("load_ipython_extension_into")(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Called by IPython on ``%unload_ext computemesh``."""
    from .rooms import public_name

    public_name("unload_ipython_extension_from")(shell)
