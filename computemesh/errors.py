"""The errors that ComputeMesh shows to people.

    ComputeMeshError
    ├── BadRequirement          a value in @mesh.task, mesh.submit or dask.annotate(mesh=…) is not usable
    ├── BadConfiguration        a configuration value or file is not usable
    ├── DriverError             something between this machine and the driver
    │   ├── DriverUnreachable   nobody answers at the address, or not a driver
    │   ├── NotTrusted          a certificate is missing, foreign, expired, revoked or of the wrong role
    │   └── Refused             the driver answered and said no (token, version, clock, rights, …)
    ├── NoMesh                  no mesh is known here: neither logged in nor given
    ├── NoAgent                 no agent runs on this machine
    ├── NoSuchJob               a job is unknown on this mesh, or its results have been let go
    ├── CannotShip              a variable, function or file cannot travel to a node
    ├── Interrupted             a cell was interrupted, cancelled or ran out of its time
    ├── TaskDied                the process of a task ended without a result, or its result cannot be sent
    └── MeshError               several runs of one cell or map failed

Each message says what happened, which value, and what to do next. A command prints the message alone; a notebook
shows it without the frames inside ComputeMesh.
"""

from __future__ import annotations

from collections.abc import Sequence


class ComputeMeshError(Exception):
    """The root: anything that is the user's to know and to act on."""


class BadRequirement(ComputeMeshError, ValueError):
    """A requirement's value cannot be understood or can never be met."""


class BadConfiguration(ComputeMeshError, ValueError):
    """A configuration value or file cannot be used."""


class DriverError(ComputeMeshError):
    """Something between this machine and the driver."""


class DriverUnreachable(DriverError, ConnectionError):
    """Nobody answers at the driver's address, or what answers is no driver."""


class NotTrusted(DriverError):
    """A certificate is missing, foreign, expired, revoked or of the wrong role."""


class Refused(DriverError):
    """The driver answered and said no.

    Attributes:
        status: the HTTP status that it said no with.
    """

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class NoMesh(ComputeMeshError):
    """No mesh is known on this machine."""


class NoAgent(ComputeMeshError):
    """No agent runs on this machine, or not with this home."""


class NoSuchJob(ComputeMeshError, LookupError):
    """A job is unknown on this mesh, or its results have been let go."""


class CannotShip(ComputeMeshError, TypeError):
    """A variable, function or file cannot travel to a node."""


class Interrupted(ComputeMeshError):
    """A cell or task was interrupted, cancelled or ran out of its time."""


class TaskDied(ComputeMeshError, RuntimeError):
    """The process that ran a task ended without a result, or has none that can be sent."""


class MeshError(ComputeMeshError):
    """Several runs of one cell or map failed.

    Attributes:
        errors: what each failed run raised, in the order of the items.
    """

    def __init__(self, message: str, errors: Sequence[BaseException]) -> None:
        super().__init__(message)
        self.errors = tuple(errors)

    def __reduce__(self) -> tuple[type[MeshError], tuple[str, tuple[BaseException, ...]]]:
        return type(self), (str(self), self.errors)
