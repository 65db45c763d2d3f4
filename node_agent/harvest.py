"""Whether the machine is lent now: one pure decision from what its owner does."""

from __future__ import annotations

from computemesh.node import Harvest


def harvest_state(dedicated: bool, input_age: float | None, idle_after: float, desktop: bool) -> Harvest:
    """Return the state of the machine.

    `input_age` is in seconds, None when nothing here can tell; then a machine with a desktop counts as in use, and
    one without as nobody's.
    """
    if dedicated:
        return Harvest.LENDING
    if input_age is None:
        return Harvest.OWNER if desktop else Harvest.LENDING
    return Harvest.OWNER if input_age < idle_after else Harvest.LENDING
