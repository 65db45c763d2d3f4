"""Charge and mains power of the machine's battery."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

SYSFS = Path("/sys")


@dataclass(frozen=True, slots=True)
class Battery:
    """Charge in percent, and whether the machine is on mains power."""

    charge: float
    charging: bool


def read_battery(root: Path = SYSFS) -> Battery | None:
    """Return the state of the machine's own battery, not of a mouse's; None without one.

    Several batteries count by their mean charge.
    """
    if sys.platform != "linux":
        return _elsewhere()
    try:
        supplies = sorted((root / "class/power_supply").iterdir())
    except OSError:
        return None
    charges: list[float] = []
    discharging = mains = False
    for supply in supplies:
        kind = _text(supply / "type")
        if kind == "Battery" and _text(supply / "scope") != "Device":
            charge = _charge(supply)
            if charge is not None:
                charges.append(charge)
                discharging |= _text(supply / "status") == "Discharging"
        elif kind in ("Mains", "USB") and _text(supply / "online") == "1":
            mains = True
    if not charges:
        return None
    return Battery(sum(charges) / len(charges), mains or not discharging)


def _charge(supply: Path) -> float | None:
    capacity = _number(supply / "capacity")
    if capacity is not None:
        return min(100.0, capacity)
    for measure in ("energy", "charge"):
        now, full = _number(supply / f"{measure}_now"), _number(supply / f"{measure}_full")
        if now is not None and full:
            return min(100.0, 100 * now / full)
    return None


def _text(file: Path) -> str:
    try:
        return file.read_text("ascii", "replace").strip()
    except OSError:
        return ""


def _number(file: Path) -> float | None:
    try:
        return float(_text(file))
    except ValueError:
        return None


def _elsewhere() -> Battery | None:
    import psutil

    found = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
    if found is None:
        return None
    return Battery(float(found.percent), bool(found.power_plugged))
