"""Whether the machine is lent now: one pure decision from the policy, what the machine does, and what went before.

The states (after HTCondor's START, SUSPEND, CONTINUE and PREEMPT):

    owner       somebody uses the machine; nothing of the mesh runs
    idle        nobody uses it, and the policy does not let it be lent
    lending     tasks run
    suspended   tasks are frozen: the owner is back, or the machine needs its strength; they may go on in place
    evicting    tasks are given to other machines, until the agent says that all is given back

Loads, charge and temperature have two thresholds and a dwell time each, so that the state does not flap.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field, replace
from enum import StrEnum

from computemesh.gates import in_words
from computemesh.node import Harvest, Sample
from computemesh.policy import Policy

LOAD_RISES, LOAD_FALLS = 1.0, 15.0
"""Seconds over the ceiling until others' load counts, and under the lower threshold until it does not."""
SLOW_FALLS = 60.0
"""The same for what changes slowly: charge, temperature, free memory and disk."""
LOAD_LOWER, HEAT_LOWER, CHARGE_UPPER, ROOM_UPPER = 0.7, 5.0, 5.0, 1.2
"""The second thresholds: part of the load ceiling, °C below, percent of charge above, times the room to keep."""


STILL_THERE = 2.0
"""Seconds since the last input up to which somebody who has come back is still there, for a suspend delay."""


class Cause(StrEnum):
    """Why a machine is not lent."""

    INPUT = "input"
    BUSY = "busy"
    LOAD = "load"
    BATTERY = "battery"
    HEAT = "heat"
    MEMORY = "memory"
    DISK = "disk"
    VRAM = "vram"
    CALENDAR = "calendar"
    NETWORK = "network"
    PAUSE = "pause"


GENTLE = frozenset({Cause.CALENDAR, Cause.NETWORK})
"""Causes that hurt nobody at this moment: what runs may end within the grace period instead of being frozen."""


@dataclass(frozen=True, slots=True)
class Signs:
    """What the machine shows at one moment."""

    sample: Sample
    input_age: float | None = None
    """Seconds since the last input; None: nothing here can tell."""
    desktop: bool = False
    """Somebody may sit before it."""
    in_use: str = ""
    """Other signs of use in words, such as a presentation or a video call."""
    metered: bool | None = None
    networks: frozenset[str] = frozenset()
    """Subnets' addresses and names of the networks that it is on, as the policy may name them."""
    network_known: bool = False
    network_allowed: bool = True
    paused: bool = False
    dedicated: bool = False
    cleared: bool = False
    """All that was lent has been given back."""


@dataclass(frozen=True, slots=True)
class Moment:
    """When: monotonic seconds for durations, wall clock for calendars."""

    seconds: float
    wall: dt.datetime


@dataclass(frozen=True, slots=True)
class Latch:
    """A condition with two thresholds: it turns when the opposite has held for its dwell time."""

    on: bool = False
    turning: float | None = None
    """Since when the opposite has held, in monotonic seconds."""

    def moved(self, over: bool, under: bool, now: float, rises: float, falls: float) -> Latch:
        """Return the latch after one look: `over` the upper threshold, or `under` the lower."""
        if (under if self.on else over) is False:
            return replace(self, turning=None) if self.turning is not None else self
        since = now if self.turning is None else self.turning
        if now - since >= (falls if self.on else rises):
            return Latch(not self.on)
        return replace(self, turning=since)


@dataclass(frozen=True, slots=True)
class Standing:
    """How the machine stands, and what the decision remembers."""

    state: Harvest = Harvest.OWNER
    since: float = 0.0
    """Monotonic seconds at which the state began."""
    causes: tuple[Cause, ...] = ()
    """Why it is not lent now, the weightiest first."""
    grace: float = 0.0
    """While evicting: seconds for which what runs may go on."""
    present_since: float | None = None
    """Since when somebody has been back, while lending."""
    latches: dict[Cause, Latch] = field(default_factory=dict)


def decide(policy: Policy, signs: Signs, standing: Standing, now: Moment) -> Standing:
    """Return how the machine stands at `now`."""
    latches = _latches(policy, signs.sample, standing.latches, now.seconds)
    causes = _causes(policy, signs, standing.state, latches, now)
    found = replace(standing, latches=latches, causes=causes)
    forbidden = [cause for cause in causes if cause not in (Cause.INPUT, Cause.BUSY)]
    used = len(causes) > len(forbidden)
    match standing.state:
        case Harvest.LENDING:
            return _while_lending(policy, found, now.seconds, signs.input_age if used else None)
        case Harvest.SUSPENDED:
            if Cause.PAUSE in causes or now.seconds - standing.since >= policy.evict:
                return _turned(found, Harvest.EVICTING, now.seconds)
            return found if causes else _turned(found, Harvest.LENDING, now.seconds)
        case Harvest.EVICTING if not signs.cleared:
            # What was frozen is not thawed any more; what may end by itself is frozen when the machine needs it.
            return found if all(cause in GENTLE for cause in causes) else replace(found, grace=0.0)
    state = Harvest.OWNER if used else Harvest.IDLE if causes else Harvest.LENDING
    return found if state is standing.state else _turned(found, state, now.seconds)


def _while_lending(policy: Policy, found: Standing, now: float, input_age: float | None) -> Standing:
    causes = found.causes
    if not causes:
        return replace(found, present_since=None)
    if Cause.PAUSE in causes:
        return _turned(found, Harvest.EVICTING, now)
    if all(cause in GENTLE for cause in causes):
        return replace(_turned(found, Harvest.EVICTING, now), grace=policy.evict)
    if causes == (Cause.INPUT,) and policy.suspend and input_age is not None:
        since = now if found.present_since is None else found.present_since
        if now - since < policy.suspend:
            return replace(found, present_since=since)
        if input_age > STILL_THERE:
            return replace(found, present_since=None)
    return _turned(found, Harvest.SUSPENDED, now)


def _turned(found: Standing, state: Harvest, now: float) -> Standing:
    return replace(found, state=state, since=now, grace=0.0, present_since=None)


def _latches(policy: Policy, sample: Sample, before: dict[Cause, Latch], now: float) -> dict[Cause, Latch]:
    """Return the conditions with two thresholds; a fact that nobody knows turns nothing on."""
    low = sample.battery is not None and not sample.charging and sample.battery < policy.battery
    unplugged = policy.only_on_charger and sample.charging is False
    charged = sample.battery is None or bool(sample.charging) or sample.battery >= policy.battery + CHARGE_UPPER
    heat = sample.temperature
    vram = min((gpu.vram_free for gpu in sample.gpus), default=None)
    looks: dict[Cause, tuple[bool, bool, float, float]] = {
        Cause.LOAD: (
            sample.cpu_others >= policy.others_cpu < 100,
            sample.cpu_others < policy.others_cpu * LOAD_LOWER,
            LOAD_RISES,
            LOAD_FALLS,
        ),
        Cause.BATTERY: (low or unplugged, charged and not unplugged, 0.0, SLOW_FALLS),
        Cause.HEAT: (
            heat is not None and heat > policy.temperature,
            heat is None or heat < policy.temperature - HEAT_LOWER,
            0.0,
            SLOW_FALLS,
        ),
        Cause.MEMORY: (*_scarce(sample.ram_free or None, policy.keep_ram), LOAD_RISES, SLOW_FALLS),
        Cause.DISK: (*_scarce(sample.disk_free, policy.keep_disk), 0.0, SLOW_FALLS),
        Cause.VRAM: (*_scarce(vram, policy.keep_vram), LOAD_RISES, SLOW_FALLS),
    }
    return {
        cause: before.get(cause, Latch()).moved(over, under, now, rises, falls)
        for cause, (over, under, rises, falls) in looks.items()
    }


def _scarce(free: float | None, keep: float) -> tuple[bool, bool]:
    if free is None or not keep:
        return False, True
    return free < keep, free >= keep * ROOM_UPPER


def _causes(
    policy: Policy, signs: Signs, state: Harvest, latches: dict[Cause, Latch], now: Moment
) -> tuple[Cause, ...]:
    if signs.dedicated:
        return (Cause.PAUSE,) if signs.paused else ()
    found: list[Cause] = [Cause.PAUSE] if signs.paused else []
    if _recent_input(policy, signs, state):
        found.append(Cause.INPUT)
    if signs.in_use:
        found.append(Cause.BUSY)
    found += [cause for cause, latch in latches.items() if latch.on]
    if not policy.calendar.is_open(now.wall):
        found.append(Cause.CALENDAR)
    if (signs.metered and not policy.metered) or not signs.network_allowed:
        found.append(Cause.NETWORK)
    return tuple(found)


def _recent_input(policy: Policy, signs: Signs, state: Harvest) -> bool:
    """Return whether somebody is there; one who was away briefly finds everything as it was left."""
    if signs.input_age is None:
        return signs.desktop
    return signs.input_age < patience(policy, state)


def patience(policy: Policy, state: Harvest) -> float:
    """Return for how many seconds after the last input the owner counts as present."""
    if state is Harvest.SUSPENDED:
        return policy.resume
    return min(policy.resume, policy.idle) if state is Harvest.LENDING else policy.idle


# ---------------------------------------------------------------- in words


def explanation(policy: Policy, signs: Signs, standing: Standing, now: Moment, paused_until: dt.datetime | None) -> str:
    """Return in one sentence why the machine is or is not lent, and when that changes."""
    match standing.state:
        case Harvest.LENDING:
            change = None if signs.dedicated else policy.calendar.next_change(now.wall)
            until = f" until {_clock(change, now)}" if change is not None else ""
            return "Lent: it is dedicated to the mesh." if signs.dedicated else f"Lent{until}: nobody uses it."
        case Harvest.SUSPENDED:
            left = max(0.0, policy.evict - (now.seconds - standing.since))
            head = f"Not lent, and its tasks are frozen for {left:.0f} s more before they move elsewhere"
        case Harvest.EVICTING:
            left = max(0.0, standing.grace - (now.seconds - standing.since))
            head = f"Being given back{f', what runs may end within {left:.0f} s' if left else ''}"
        case _:
            head = "Not lent"
    return f"{head}: {cause_words(policy, signs, standing, now, paused_until)}."


def cause_words(policy: Policy, signs: Signs, standing: Standing, now: Moment, paused_until: dt.datetime | None) -> str:
    """Return the weightiest cause in words, with when it ends as far as that is known."""
    sample = signs.sample
    if not standing.causes:
        return "nothing holds it back any more"
    match standing.causes[0]:
        case Cause.PAUSE:
            return f"paused by its owner until {_clock(paused_until, now)}" if paused_until else "paused by its owner"
        case Cause.INPUT if signs.input_age is None:
            return "nothing here can tell whether somebody uses it"
        case Cause.INPUT:
            age = signs.input_age or 0.0
            again = now.wall + dt.timedelta(seconds=max(0.0, patience(policy, standing.state) - age))
            return f"used {_ago(age)}; lent again at {_clock(again, now)} if nobody comes"
        case Cause.BUSY:
            return signs.in_use
        case Cause.LOAD:
            return f"its owner's programs use {sample.cpu_others:.0f} % of the CPU (ceiling {policy.others_cpu:g} %)"
        case Cause.BATTERY:
            charge = f" at {sample.battery:.0f} %" if sample.battery is not None else ""
            need = "lent on the charger only" if policy.only_on_charger else f"lent from {policy.battery:g} %"
            return f"on battery{charge}; {need}"
        case Cause.HEAT:
            return f"{sample.temperature or 0:.0f} °C hot (ceiling {policy.temperature:g} °C)"
        case Cause.MEMORY:
            return f"{in_words(sample.ram_free)} of memory free, and {in_words(policy.keep_ram)} are to stay free"
        case Cause.DISK:
            return f"{in_words(sample.disk_free or 0)} of disk free, and {in_words(policy.keep_disk)} are to stay free"
        case Cause.VRAM:
            return f"less than {in_words(policy.keep_vram)} of a GPU's memory free"
        case Cause.CALENDAR:
            change = policy.calendar.next_change(now.wall)
            return f"its calendar lends it {policy.calendar.words}" + (
                f"; next at {_clock(change, now)}" if change is not None else ""
            )
        case Cause.NETWORK:
            metered = signs.metered and not policy.metered
            return "on a metered network" if metered else "on a network that its policy does not name"


def _ago(seconds: float) -> str:
    if seconds < 1.5:
        return "just now"
    return f"{seconds:.0f} s ago" if seconds < 120 else f"{seconds / 60:.0f} min ago"


def _clock(moment: dt.datetime | None, now: Moment) -> str:
    if moment is None:
        return "?"
    local, today = moment.astimezone(), now.wall.astimezone()
    text = f"{local:%H:%M}"
    if (local - today).total_seconds() < 120:
        text = f"{local:%H:%M:%S}"
    return text if local.date() == today.date() else f"{local:%a %d %b} {text}"
