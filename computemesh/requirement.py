"""What a task asks of a node, and whether a node has it.

A requirement is written by people (``@mesh.task(ram="64GB", gpu=0.5)``), checked once where it is written, and then
carried as plain canonical data: bytes, bits per second, counts. Nothing here knows Dask.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from .errors import BadRequirement

_BYTE_UNITS = {
    unit.lower(): factor
    for power, letter in enumerate("KMGTP", start=1)
    for unit, factor in ((f"{letter}B", 1000**power), (f"{letter}iB", 1024**power), (letter, 1000**power))
} | {"b": 1, "": 1}
_RATE_UNITS = {
    f"{letter}{suffix}": 1000**power
    for power, letter in enumerate(("", "k", "m", "g", "t"))
    for suffix in ("bps", "bit/s", "bit")
}
_QUANTITY = re.compile(r"^\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z/]*)\s*$")
_VERSION = re.compile(r"^\s*(\d+)(?:\.(\d+))?\s*$")


@dataclass(frozen=True, slots=True)
class Requirement:
    """What a task needs from the node that runs it; a zero or empty field asks nothing.

    `cpu`, `ram`, `gpu` and `vram` are *counted*: they are taken from the node while the task is there and given back
    when it ends. The others are *conditions*, looked at when the task is placed.
    """

    cpu: float = 0.0
    """Cores."""
    ram: int = 0
    """Bytes of memory."""
    gpu: float = 0.0
    """GPUs; half a GPU is a counted share of one."""
    vram: int = 0
    """Bytes of GPU memory on one GPU."""
    cuda: tuple[int, int] = (0, 0)
    """Oldest CUDA version that the node's driver must support."""
    network: int = 0
    """Bits per second between the node and the driver."""
    battery: float = 0.0
    """Least charge in percent; a node on mains power always has enough."""
    pool: str = ""
    """Name of a pool that the node must be in."""
    packages: tuple[str, ...] = ()
    """Python packages with version bounds (PEP 508), such as ``torch>=2.4``."""

    def __bool__(self) -> bool:
        return self != NOTHING

    def to_spec(self) -> dict[str, Any]:
        """Return the fields that ask something as plain data, which `requirement_from` reads back."""
        found = ((field.name, getattr(self, field.name)) for field in fields(self))
        spec = {name: value for name, value in found if value != getattr(NOTHING, name)}
        if "cuda" in spec:
            spec["cuda"] = "{}.{}".format(*spec["cuda"])
        if "packages" in spec:
            spec["packages"] = list(spec["packages"])
        return spec


NOTHING = Requirement()
FIELDS = tuple(field.name for field in fields(Requirement))


def requirement_from(spec: Mapping[str, Any]) -> Requirement:
    """Read what a person wrote, such as ``{"cpu": 16, "ram": "64GB", "cuda": "12.2"}``.

    Raises:
        BadRequirement: an unknown field or a value that makes no sense, named in the message.
    """
    unknown = sorted(set(spec) - set(FIELDS))
    if unknown:
        raise BadRequirement(f"Unknown requirement {unknown[0]!r}: a task can ask for {', '.join(FIELDS)}")
    readers: dict[str, Callable[[str, object], Any]] = {
        "cpu": _count,
        "ram": _bytes,
        "gpu": _count,
        "vram": _bytes,
        "cuda": _cuda,
        "network": _rate,
        "battery": _percent,
        "pool": _pool,
        "packages": _packages,
    }
    return Requirement(**{name: readers[name](name, value) for name, value in spec.items() if value is not None})


def most_demanding(first: Requirement, second: Requirement) -> Requirement:
    """Merge the requirements of two tasks that Dask fused into one.

    Raises:
        BadRequirement: the two name different pools.
    """
    if first.pool and second.pool and first.pool != second.pool:
        raise BadRequirement(
            f"Tasks that Dask fused into one ask for two pools, {first.pool!r} and {second.pool!r}: "
            "compute them apart, or give both the same pool"
        )
    largest = {name: max(getattr(first, name), getattr(second, name)) for name in FIELDS[:7]}
    packages = tuple(sorted({*first.packages, *second.packages}))
    return Requirement(**largest, pool=first.pool or second.pool, packages=packages)


def _bad(name: str, value: object, expected: str) -> BadRequirement:
    return BadRequirement(f"{name}={value!r} is not usable: give {expected}")


def _number(name: str, value: object, expected: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _bad(name, value, expected)
    if not 0 < value < float("inf"):
        raise _bad(name, value, expected)
    return float(value)


def _count(name: str, value: object) -> float:
    expected = "a number above 0, such as 4 or 0.5"
    if isinstance(value, str) and _QUANTITY.match(value) and value.strip().replace(".", "", 1).isdigit():
        value = float(value)
    return _number(name, value, expected)


def _scaled(name: str, value: object, units: Mapping[str, int], expected: str) -> int:
    if isinstance(value, str):
        match = _QUANTITY.match(value)
        if match is None or match[2].lower() not in units:
            raise _bad(name, value, expected)
        value = float(match[1]) * units[match[2].lower()]
    return max(1, round(_number(name, value, expected)))


def _bytes(name: str, value: object) -> int:
    return _scaled(name, value, _BYTE_UNITS, "bytes, such as '64GB', '24GiB' or a whole number")


def _rate(name: str, value: object) -> int:
    return _scaled(name, value, _RATE_UNITS, "bits per second, such as '10Gbps', '100Mbps' or a whole number")


def _percent(name: str, value: object) -> float:
    expected = "a percentage from 1 to 100, such as 60 or '60%'"
    if isinstance(value, str):
        try:
            value = float(value.strip().removesuffix("%"))
        except ValueError:
            raise _bad(name, value, expected) from None
    number = _number(name, value, expected)
    if number > 100:
        raise _bad(name, value, expected)
    return number


def _cuda(name: str, value: object) -> tuple[int, int]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    match = _VERSION.match(value) if isinstance(value, str) else None
    if match is None or int(match[1]) == 0:
        raise _bad(name, value, "a CUDA version, such as '12.2'")
    return int(match[1]), int(match[2] or 0)


def _pool(name: str, value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", value):
        raise _bad(name, value, "a pool's name in lower case, such as 'gpu' or 'night'")
    return value


def _packages(name: str, value: object) -> tuple[str, ...]:
    from packaging.requirements import InvalidRequirement
    from packaging.requirements import Requirement as PackageRequirement

    expected = "a list of package names with optional version bounds, such as ['torch>=2.4', 'xgboost']"
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, Iterable):
        raise _bad(name, value, expected)
    found: set[str] = set()
    for item in value:
        try:
            found.add(str(PackageRequirement(item)))
        except (InvalidRequirement, TypeError):
            raise _bad(name, item, expected) from None
    if not found:
        raise _bad(name, value, expected)
    return tuple(sorted(found))
