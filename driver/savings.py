"""What the harvested machines were worth: hours, share of capacity used, and money by a price list."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from computemesh.errors import BadConfiguration

from .ledger import HOUR, Place, Usage

KINDS = ("node", "pool", "site", "day")
DAY_SECONDS = 86400.0


@dataclass(frozen=True, slots=True)
class Prices:
    """What an hour would cost elsewhere."""

    currency: str = "USD"
    core_hour: float = 0.04
    gpu_hour: float = 0.90
    gpus: Mapping[str, float] = field(default_factory=dict)
    """By a part of the GPU's name, the first that fits."""

    def of_gpu(self, name: str) -> float:
        """Return what an hour of one GPU of this name costs."""
        return next((price for part, price in self.gpus.items() if part.lower() in name.lower()), self.gpu_hour)


def prices_of(written: Mapping[str, Any]) -> Prices:
    """Read the configured price list.

    Raises:
        BadConfiguration: a price is no number of 0 or more; names it.
    """
    gpus = written.get("gpus", {})
    listed = {name: written[name] for name in ("core-hour", "gpu-hour")}
    listed |= {f"gpus.{name}": price for name, price in gpus.items()}
    for name, price in listed.items():
        if isinstance(price, bool) or not isinstance(price, int | float) or price < 0:
            raise BadConfiguration(f"computemesh.savings.{name} is {price!r}: set it to a price of 0 or more an hour")
    return Prices(str(written["currency"]), written["core-hour"], written["gpu-hour"], dict(gpus))


def worth(place: Place, usage: Usage, prices: Prices) -> float:
    """Return what the used part of an amount would have cost elsewhere."""
    return (usage.cores_used * prices.core_hour + usage.gpus_used * prices.of_gpu(place.gpu)) / HOUR


def summary(rows: Iterable[tuple[Place, Usage]], by: str, prices: Prices) -> dict[str, Any]:
    """Return a line for each node, pool, site or day, and the total.

    A node in several pools counts in each of them, and once in the total.
    """
    groups: dict[str, Usage] = defaultdict(Usage)
    money: dict[str, float] = defaultdict(float)
    total, saved = Usage(), 0.0
    for place, usage in rows:
        value = worth(place, usage, prices)
        total, saved = total + usage, saved + value
        for name in _names(place, by):
            groups[name] += usage
            money[name] += value
    lines = [{by: name, **_line(groups[name], money[name])} for name in sorted(groups)]
    return {"by": by, "currency": prices.currency, "lines": lines, "total": _line(total, saved)}


def _names(place: Place, by: str) -> list[str]:
    match by:
        case "node":
            return [place.node]
        case "site":
            return [place.site or "-"]
        case "pool":
            return place.pools.split(",") if place.pools else ["-"]
        case _:
            return [dt.datetime.fromtimestamp(place.hour, dt.UTC).astimezone().date().isoformat()]


def _line(usage: Usage, saved: float) -> dict[str, Any]:
    return {
        "hours": usage.lent / HOUR,
        "core_hours_lent": usage.cores_lent / HOUR,
        "core_hours_used": usage.cores_used / HOUR,
        "gpu_hours_lent": usage.gpus_lent / HOUR,
        "gpu_hours_used": usage.gpus_used / HOUR,
        "used": usage.cores_used / usage.cores_lent if usage.cores_lent else 0.0,
        "saved": saved,
    }
