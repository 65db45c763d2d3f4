"""Which nodes one decision looks at, so that its cost stays flat in a mesh of a thousand."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import islice
from random import Random
from typing import Any, TypeVar

Item = TypeVar("Item", bound=Any)


def sampled(free: Collection[Item], ranking: Sequence[Item], limit: int, random: Random) -> Collection[Item]:
    """Return at most `limit` of `free`: the best by `ranking` and some at random; all of it when it is small.

    The best `limit` of the ranking and as many random places in it are looked at, not more; whatever of `free` lies
    elsewhere stands in when these give too few.
    """
    if len(free) <= limit:
        return free
    half = limit // 2
    found = dict.fromkeys(islice((item for item in ranking[:limit] if item in free), half))
    if ranking:
        drawn = (ranking[random.randrange(len(ranking))] for _ in range(limit))
        found.update(dict.fromkeys(islice((item for item in drawn if item in free), half)))
    if len(found) < half:
        found.update(dict.fromkeys(islice(free, limit - len(found))))
    return found
