"""A task in a worker's thread that itself uses the mesh: on a plain Dask cluster it may, as with Dask's own client."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from computemesh.errors import BadRequirement

if TYPE_CHECKING:
    from .connection import Mesh

_state = threading.local()


def own_of_thread_task() -> Mesh | None:
    """Return the mesh as the task of this thread may use it; None outside such a task.

    The task's slot is given to others from then on: it may wait for them.

    Raises:
        BadRequirement: it runs on a node of a mesh, whose worker serves many users and lends none of them its name.
    """
    import distributed

    from computemesh.dask_security import MeshSecurity

    from .connection import Mesh

    try:
        worker = distributed.get_worker()
    except ValueError:
        # Outside a task, and in a capsule, which asks for a right of its own.
        return None
    if isinstance(worker.security, MeshSecurity):
        raise BadRequirement(
            "This task runs in a thread of its node, where it cannot use the mesh itself: give it a process of its "
            'own, with @mesh.task(executor="capsule")'
        )
    key = worker.get_current_task()
    if getattr(_state, "key", None) != key:
        _state.mesh, _state.key = Mesh(distributed.get_client(), owned=False), key
        distributed.secede()
    found: Mesh = _state.mesh
    return found
