"""How a task that itself uses the mesh gets the right to: a certificate of the user it runs for, for an hour.

A task's own machine has a node's certificate, which may not submit work. So the task makes a key, and its request goes
the way that its output goes: capsule, worker, scheduler, driver. The scheduler lets it pass only while that node runs
that task, and says for whom; the driver signs. The key never leaves the task's process and its folder, and the
certificate cannot be renewed by itself: the task asks again, while it still runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .certificates import Role, key_pem, new_key, new_request
from .errors import NoMesh
from .identity import Identity, save_identity

FOLDER = "user"
"""The identity's place in the task's home, where `mesh login` puts a person's."""


@dataclass(frozen=True, slots=True)
class Delegated:
    """What came back for a request."""

    home: str
    """Path of a folder that is removed when the task has ended."""
    driver: str
    """``host:port`` as this node knows it."""
    user: str
    authority: str
    certificate: str
    """PEM, both."""


Asker = Callable[[bytes], Delegated]
"""Called with a signing request in PEM.

Raises:
    Refused: with the reason.
"""

_asker: Asker | None = None
_identity: Identity | None = None


def install(asker: Asker | None) -> None:
    """Make `asker` the one of this process; a capsule does so once, at its start."""
    global _asker, _identity  # one process runs one task; that is what a capsule is
    _asker, _identity = asker, None


def in_task() -> bool:
    """Return whether this process runs a task that can ask for the right to use the mesh."""
    return _asker is not None


def delegated_identity() -> Identity:
    """Return the identity of the user that this task runs for; asked for once, then the same.

    Raises:
        NoMesh: this is no task's process.
        Refused: the scheduler or the driver says no.
    """
    global _identity
    if _identity is None:
        _identity = ask_again(None)
    return _identity


def ask_again(known: Identity | None) -> Identity:
    """Ask for a new certificate, of a new key, and put it in the place of the one before.

    Raises:
        NoMesh: this is no task's process.
        Refused: the scheduler or the driver says no.
    """
    if _asker is None:
        raise NoMesh("Only a task that runs in a capsule can ask for the right to use the mesh")
    key = new_key()
    answer = _asker(new_request(key, known.name if known else "task"))
    identity = Identity(Path(answer.home, FOLDER), Role.USER, answer.user, answer.driver, delegated=True)
    save_identity(identity, answer.authority.encode(), answer.certificate.encode(), key_pem(key))
    return identity
