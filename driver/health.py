"""Whether a node is there, decided from the silence since its last beat. Pure: time comes as an argument."""

from __future__ import annotations

from dataclasses import dataclass

from computemesh.node import Health


@dataclass(frozen=True, slots=True)
class Patience:
    """How long silence is borne."""

    beat: float = 2.0
    """Seconds between beats."""
    suspected_after: int = 3
    """Missed beats."""
    dead_after: int = 5
    """Missed beats."""


def health_of(silence: float, patience: Patience) -> Health:
    """Return a node's health after `silence` seconds without a beat."""
    missed = silence / patience.beat
    if missed >= patience.dead_after:
        return Health.DEAD
    return Health.SUSPECTED if missed >= patience.suspected_after else Health.ALIVE


def forgiven(late: float, patience: Patience) -> float:
    """Return by how many seconds every node's last beat is moved forward after the check itself ran `late`.

    A driver that slept or was starved has heard nobody: it gives everyone a fresh window before it judges.
    """
    return late if late > patience.beat else 0.0
