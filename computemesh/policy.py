"""What the owner of a machine allows: the policy, its fields, and how the owner's and the administrator's are joined.

A policy is written as a flat TOML file; every field has a built-in value. The administrator may set defaults, which
count where the owner says nothing, and ceilings, which count where they are stricter than what the owner says.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from .errors import BadConfiguration
from .gates import in_words
from .policy_calendar import Calendar, calendar_of, check_zone

Allowed = frozenset[str] | None
"""Names that are allowed; None: all."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What an owner allows. Times in seconds, shares and loads in percent, sizes in bytes."""

    idle: float = 300.0
    """Without input, before the machine is lent."""
    others_cpu: float = 30.0
    """CPU of the owner's own programs from which the machine counts as in use."""
    battery: float = 60.0
    """Least charge while it is not on mains power."""
    only_on_charger: bool = False
    temperature: float = 90.0
    """Hottest sensor in °C."""
    keep_ram: float = 1e9
    keep_disk: float = 5e9
    keep_vram: float = 0.0
    cpu: float = 100.0
    """Share of the CPU that is lent; so `ram` and `gpu`."""
    ram: float = 100.0
    gpu: float = 100.0
    calendar: Calendar = field(default_factory=Calendar)
    metered: bool = False
    """Lent on a metered or roaming network too."""
    networks: Allowed = None
    """Subnets and names of networks on which it is lent."""
    users: Allowed = None
    pools: Allowed = None
    executors: Allowed = None
    suspend: float = 0.0
    """How long somebody must have been back before the tasks are frozen."""
    resume: float = 30.0
    """Without input, before frozen tasks go on in place."""
    evict: float = 60.0
    """How long tasks stay frozen before they are given to other machines."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a policy as people write it."""

    name: str
    about: str
    example: Any
    read: Callable[[Any], Any]
    """Returns the value of what was written; raises ValueError with what is wrong."""
    stricter: Callable[[Any, Any], Any]
    show: Callable[[Any], str]

    @property
    def attribute(self) -> str:
        """Its name in `Policy`."""
        return self.name.replace("-", "_")


# ---------------------------------------------------------------- reading values


def _seconds(value: Any) -> float:
    from dask.utils import parse_timedelta

    # Dask's own reader knows minutes as m.
    text = re.sub(r"(?<![a-z])mins?(?![a-z])", "m", value) if isinstance(value, str) else value
    try:
        found = float(parse_timedelta(text) if isinstance(text, str) else _plain_number(text))
    except (TypeError, ValueError, KeyError):
        raise ValueError("give a duration such as '5 min' or '30 s'") from None
    if not 0 <= found < 366 * 86400:
        raise ValueError("give a duration from 0 s to a year")
    return found


def _percent(value: Any) -> float:
    text = value.strip().removesuffix("%") if isinstance(value, str) else value
    try:
        found = _plain_number(text)
    except (TypeError, ValueError):
        raise ValueError("give a share such as '60 %'") from None
    if not 0 <= found <= 100:
        raise ValueError("give a share from 0 % to 100 %")
    return found


def _degrees(value: Any) -> float:
    text = re.sub(r"\s*°?C$", "", value.strip()) if isinstance(value, str) else value
    try:
        found = _plain_number(text)
    except (TypeError, ValueError):
        raise ValueError("give a temperature such as '85 °C'") from None
    if not 30 <= found <= 120:
        raise ValueError("give a temperature from 30 to 120 °C")
    return found


def _size(value: Any) -> float:
    from dask.utils import parse_bytes

    try:
        found = float(parse_bytes(value) if isinstance(value, str) else _plain_number(value))
    except (TypeError, ValueError):
        raise ValueError("give a size such as '2 GB'") from None
    if found < 0:
        raise ValueError("give a size of 0 or more")
    return found


def _plain_number(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError("a truth value is no number")
    return float(value)


def _truth(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    words = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
    if isinstance(value, str) and value.strip().lower() in words:
        return words[value.strip().lower()]
    raise ValueError("give true or false")


def _names(value: Any) -> Allowed:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        raise ValueError("give a list of names")
    found = frozenset(part.strip() for part in parts if part.strip())
    if not found:
        raise ValueError("an empty list could mean all or nobody: give names, or 'all'")
    return None if found == frozenset({"all"}) else found


def _networks(value: Any) -> Allowed:
    found = _names(value)
    for name in found or ():
        if "/" in name:
            try:
                ipaddress.ip_network(name, strict=False)
            except ValueError:
                raise ValueError(
                    f"{name!r} is no subnet: give one such as '10.1.0.0/16', or a network's name"
                ) from None
    return found


def _executors(value: Any) -> Allowed:
    found = _names(value)
    unknown = sorted((found or frozenset()) - {"thread", "capsule"})
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no executor: there are 'thread' and 'capsule'")
    return found


def _lines(value: Any) -> list[str]:
    lines = [value] if isinstance(value, str) else value
    if not isinstance(lines, list | tuple) or not all(isinstance(line, str) for line in lines):
        raise ValueError("give a list of texts")
    return list(lines)


def _calendar_lines(value: Any) -> list[str]:
    lines = _lines(value)
    if not lines:
        raise ValueError("an empty list could mean always or never: give windows, 'always' or 'never'")
    calendar_of(lines)
    return lines


def _dates(value: Any) -> list[str]:
    lines = _lines([str(each) for each in value] if isinstance(value, list | tuple) else value)
    calendar_of([], lines)
    return lines


def _zone(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("give the name of a time zone")
    check_zone(value)
    return value


# ---------------------------------------------------------------- joining and showing


def _meet(one: Allowed, other: Allowed) -> Allowed:
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _duration_text(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"


def _allowed_text(value: Allowed) -> str:
    return "all" if value is None else ", ".join(sorted(value)) or "none"


def _truth_text(value: bool) -> str:
    return "yes" if value else "no"


def _percent_text(value: float) -> str:
    return f"{value:g} %"


FIELDS: tuple[Field, ...] = (
    Field("idle", "without input, before the machine is lent", "5 min", _seconds, max, _duration_text),
    Field("others-cpu", "load of your own programs that counts as use", "30 %", _percent, min, _percent_text),
    Field("battery", "least charge while not on mains power", "60 %", _percent, max, _percent_text),
    Field("only-on-charger", "never on battery", False, _truth, lambda one, other: one or other, _truth_text),
    Field("temperature", "hottest sensor", "90 °C", _degrees, min, lambda value: f"{value:g} °C"),
    Field("keep-ram", "memory that stays free for you", "1 GB", _size, max, in_words),
    Field("keep-disk", "disk space that stays free for you", "5 GB", _size, max, in_words),
    Field("keep-vram", "memory of each GPU that stays free for you", "0 B", _size, max, in_words),
    Field("cpu", "share of the CPU to lend", "100 %", _percent, min, _percent_text),
    Field("ram", "share of the memory to lend", "100 %", _percent, min, _percent_text),
    Field("gpu", "share of the GPUs to lend", "100 %", _percent, min, _percent_text),
    Field(
        "calendar",
        "when it may be lent",
        ["weekdays 18:00-08:00", "weekends"],
        _calendar_lines,
        lambda one, other: one.both(other),
        lambda value: value.words,
    ),
    Field(
        "metered",
        "lent on a metered or roaming network too",
        False,
        _truth,
        lambda one, other: one and other,
        _truth_text,
    ),
    Field(
        "networks",
        "subnets and Wi-Fi names on which it is lent",
        ["10.1.0.0/16", "Office"],
        _networks,
        _meet,
        _allowed_text,
    ),
    Field("users", "whose tasks may run here", ["ada", "grace"], _names, _meet, _allowed_text),
    Field("pools", "for which pools' tasks", ["night"], _names, _meet, _allowed_text),
    Field("executors", "which kinds of tasks: thread, capsule", ["capsule"], _executors, _meet, _allowed_text),
    Field("suspend", "how long you must be back before tasks are frozen", "0 s", _seconds, min, _duration_text),
    Field("resume", "without input, before frozen tasks go on", "30 s", _seconds, max, _duration_text),
    Field("evict", "how long tasks stay frozen before they move elsewhere", "1 min", _seconds, min, _duration_text),
)
"""In the order in which they are shown."""

BESIDE_CALENDAR: dict[str, Callable[[Any], Any]] = {"holidays": _dates, "zone": _zone}
"""What the calendar's windows are read with."""

BY_NAME = {each.name: each for each in FIELDS}


def read_value(name: str, value: Any) -> Any:
    """Return the value that was written for a field.

    Raises:
        BadConfiguration: there is no such field, or the value makes no sense; says what is allowed.
    """
    reader = BESIDE_CALENDAR.get(name) or (BY_NAME[name].read if name in BY_NAME else None)
    if reader is None:
        known = ", ".join([*BY_NAME, *BESIDE_CALENDAR])
        raise BadConfiguration(f"there is no field {name!r}; there are {known}")
    try:
        return reader(value)
    except BadConfiguration as error:
        raise BadConfiguration(f"{name}: {error}") from None
    except (ValueError, TypeError) as error:
        raise BadConfiguration(f"{name} = {value!r} cannot be used: {error}") from None


def read_values(written: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values, by attribute of `Policy`, of the fields that were written.

    Raises:
        BadConfiguration: a field or a value is wrong.
    """
    found = {name: read_value(name, value) for name, value in written.items()}
    holidays, zone = found.pop("holidays", []), found.pop("zone", "")
    if "calendar" in found:
        found["calendar"] = calendar_of(found["calendar"], holidays, zone)
    elif holidays or zone:
        raise BadConfiguration("holidays and zone have a meaning only beside a calendar: add one")
    return {BY_NAME[name].attribute: value for name, value in found.items()}


@dataclass(frozen=True, slots=True)
class Setting:
    """The value of one field that counts, and whose it is: built-in, default, owner or ceiling."""

    value: Any
    source: str


BUILT_IN, DEFAULT, OWNER, CEILING = "built-in", "default", "owner", "ceiling"


def settled(owner: Mapping[str, Any], default: Mapping[str, Any], ceiling: Mapping[str, Any]) -> dict[str, Setting]:
    """Return what counts for each field, by attribute; the arguments are what `read_values` returns.

    The owner's word counts over the default; a ceiling counts where it is stricter than either.
    """
    built_in = Policy()
    found: dict[str, Setting] = {}
    for each in FIELDS:
        name = each.attribute
        for source, values in ((OWNER, owner), (DEFAULT, default)):
            if name in values:
                setting = Setting(values[name], source)
                break
        else:
            setting = Setting(getattr(built_in, name), BUILT_IN)
        if name in ceiling:
            joined = each.stricter(setting.value, ceiling[name])
            if joined != setting.value:
                setting = Setting(joined, CEILING)
        found[name] = setting
    return found


def policy_of(settings: Mapping[str, Setting]) -> Policy:
    """Return the policy that `settled` came to."""
    return Policy(**{each.name: settings[each.name].value for each in fields(Policy)})


def stricter(one: Policy, other: Policy) -> Policy:
    """Return the policy that allows what both allow."""
    return Policy(
        **{
            each.attribute: each.stricter(getattr(one, each.attribute), getattr(other, each.attribute))
            for each in FIELDS
        }
    )
