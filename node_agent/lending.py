"""Keeps what the decision needs: the owner's policy file, the driver's rules, a pause, and how the machine stands."""

from __future__ import annotations

import datetime as dt
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from computemesh.errors import BadConfiguration
from computemesh.identity import write_private
from computemesh.node import Harvest, Sample
from computemesh.policy import FIELDS, Policy, Setting, policy_of, read_values, settled
from computemesh.policy_file import load, read_text

from .harvest import Moment, Signs, Standing, decide, explanation
from .networks import Networks, allowed, look

logger = logging.getLogger("computemesh.node_agent")

NETWORK_SECONDS = 10.0
"""How often the networks are looked at."""


@dataclass(frozen=True, slots=True)
class Surface:
    """What does not change while the agent runs."""

    folder: Path
    """The node's part of the home."""
    dedicated: bool
    desktop: bool
    built_in: Mapping[str, Any] = field(default_factory=dict)
    """Values, by attribute of `Policy`, that this agent was started with; they count like the administrator's
    defaults, and under them."""


class Lending:
    """Decides whether the machine is lent. All methods are called in the agent's loop.

    `clock` gives monotonic seconds and the wall clock; `report` is called with what belongs into the journal.
    """

    def __init__(
        self,
        surface: Surface,
        clock: Callable[[], Moment],
        report: Callable[[str, str], None],
        networks: Callable[[], Networks] = look,
    ) -> None:
        self._surface, self._clock, self._report, self._look = surface, clock, report, networks
        self.file = surface.folder.parent / "policy.toml"
        self._good = surface.folder / "policy-good.toml"
        self._text: str | None = None
        self._owner: dict[str, Any] = {}
        self._rules = _kept_rules(surface.folder / "policy-rules.json")
        self.error = ""
        """What is wrong with the policy file; the last good policy counts meanwhile."""
        self.settings: dict[str, Setting] = {}
        self.policy = Policy()
        self.paused, self.paused_until = _kept_pause(surface.folder / "pause.json")
        self._networks, self._networks_due = Networks(), float("-inf")
        self._sample = Sample(0.0)
        self._signs = Signs(self._sample)
        self.standing = Standing(since=clock().seconds)
        self._settle()
        self.read_file()

    @property
    def state(self) -> Harvest:
        """How the machine stands."""
        return self.standing.state

    # ------------------------------------------------------------ deciding

    def decide(self, sample: Sample, in_use: str, cleared: bool) -> Harvest:
        """Decide from a new sample; `cleared` says that nothing of the mesh runs any more."""
        now = self._clock()
        self.read_file()
        if now.seconds >= self._networks_due:
            self._networks, self._networks_due = self._look(), now.seconds + NETWORK_SECONDS
        if self.paused and self.paused_until is not None and now.wall >= self.paused_until:
            self.resume("the pause is over")
        self._sample = sample
        return self._decide(now, sample.input_age, in_use, cleared)

    def glance(self, input_age: float | None, in_use: str, cleared: bool) -> Harvest:
        """Decide between two samples, from a fresh age of the last input."""
        return self._decide(self._clock(), input_age, in_use, cleared)

    def _decide(self, now: Moment, input_age: float | None, in_use: str, cleared: bool) -> Harvest:
        self._signs = Signs(
            sample=self._sample,
            input_age=input_age,
            desktop=self._surface.desktop,
            in_use=in_use,
            metered=self._networks.metered,
            network_allowed=allowed(self._networks, self.policy.networks),
            paused=self.paused,
            dedicated=self._surface.dedicated,
            cleared=cleared,
        )
        self.standing = decide(self.policy, self._signs, self.standing, now)
        return self.standing.state

    def explain(self) -> str:
        """Return in one sentence why the machine is or is not lent, and when that changes."""
        return explanation(self.policy, self._signs, self.standing, self._clock(), self.paused_until)

    # ------------------------------------------------------------ the policy

    def read_file(self) -> None:
        """Let a changed policy file count; a bad one is said once, and changes nothing."""
        try:
            text = load(self.file)
            if text == self._text:
                self.error = ""
                return
            owner = read_text(text, str(self.file))
        except BadConfiguration as error:
            if str(error) != self.error:
                self.error = str(error)
                logger.warning("%s; the last good policy counts", error)
                self._report("policy-refused", f"The owner's policy cannot be used: {error}")
                if self._text is None:
                    self._owner = _last_good(self._good)
                    self._settle()
            return
        if self._text is not None:
            logger.info("the policy file has changed")
            self._report("policy-changed", "The owner's policy has changed")
        self._text, self._owner, self.error = text, owner, ""
        write_private(self._good, text.encode())
        self._settle()

    def rules_are(self, rules: Mapping[str, Mapping[str, Any]]) -> None:
        """Take the administrator's defaults and ceilings in, as written; they are kept for when the driver is away."""
        try:
            for section in ("default", "ceiling"):
                read_values(rules.get(section, {}))
        except BadConfiguration as error:
            logger.warning("the driver's policy rules cannot be used here: %s", error)
            return
        if dict(rules) != self._rules:
            self._rules = {name: dict(values) for name, values in rules.items()}
            write_private(self._surface.folder / "policy-rules.json", json.dumps(self._rules, default=str).encode())
            self._settle()

    def _settle(self) -> None:
        default = {**self._surface.built_in, **read_values(self._rules.get("default", {}))}
        self.settings = settled(self._owner, default, read_values(self._rules.get("ceiling", {})))
        self.policy = policy_of(self.settings)

    def shown(self) -> dict[str, tuple[str, str]]:
        """Return each field's value and its source in words."""
        return {
            each.name: (each.show(self.settings[each.attribute].value), self.settings[each.attribute].source)
            for each in FIELDS
        }

    # ------------------------------------------------------------ the owner's word

    def pause(self, seconds: float | None) -> None:
        """Lend nothing from now on, for a while or until the owner says otherwise."""
        self.paused = True
        self.paused_until = None if seconds is None else self._clock().wall + dt.timedelta(seconds=seconds)
        until = self.paused_until.isoformat() if self.paused_until is not None else None
        write_private(self._surface.folder / "pause.json", json.dumps({"until": until}).encode())
        self._report("node-paused", f"Its owner has paused it{f' until {until}' if until else ''}")

    def resume(self, why: str = "its owner said so") -> bool:
        """End a pause; return whether there was one."""
        (self._surface.folder / "pause.json").unlink(missing_ok=True)
        was, self.paused, self.paused_until = self.paused, False, None
        if was:
            self._report("node-resumed", f"It may be lent again: {why}")
        return was


def _last_good(file: Path) -> dict[str, Any]:
    """Return the policy that counted before; without one nothing is lent: nobody knows what the owner allows."""
    if file.exists():
        try:
            return read_text(load(file), str(file))
        except BadConfiguration as error:
            logger.warning("%s", error)
    return read_values({"calendar": "never"})


def _kept_rules(file: Path) -> dict[str, dict[str, Any]]:
    try:
        rules: dict[str, dict[str, Any]] = json.loads(file.read_text("utf-8"))
        for section in ("default", "ceiling"):
            read_values(rules.get(section, {}))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError, BadConfiguration) as error:
        # The driver tells them anew; until then what is built in and the owner's own counts.
        logger.warning("%s cannot be used: %s", file, error)
        return {}
    return rules


def _kept_pause(file: Path) -> tuple[bool, dt.datetime | None]:
    try:
        until = json.loads(file.read_text("utf-8"))["until"]
        return True, dt.datetime.fromisoformat(until) if until else None
    except FileNotFoundError:
        return False, None
    except (OSError, ValueError, KeyError, TypeError):
        # Somebody has paused it, and nobody knows for how long: the owner comes first.
        return True, None


def clock() -> Moment:
    """Return this moment."""
    import time

    return Moment(time.monotonic(), dt.datetime.now(dt.UTC))
