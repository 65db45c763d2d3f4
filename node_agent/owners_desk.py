"""Answers what the owner of the machine asks or orders at it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .lending import Lending


class OwnersDesk:
    """`decide` lets a changed word count at once, `leave` ends the agent, `about` tells what it does."""

    def __init__(
        self,
        lending: Lending,
        decide: Callable[[], None],
        leave: Callable[[], None],
        about: Callable[[], dict[str, Any]],
    ) -> None:
        self._lending, self._decide, self._leave, self._about = lending, decide, leave, about

    async def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Do what is asked, and say how the machine stands then."""
        said: dict[str, Any] = {}
        match asked.get("what"):
            case "pause":
                seconds = asked.get("seconds")
                self._lending.pause(float(seconds) if isinstance(seconds, int | float) else None)
                self._decide()
            case "resume":
                said["was_paused"] = self._lending.resume()
                self._decide()
            case "leave":
                self._leave()
            case "policy":
                self._lending.read_file()
        return {**said, **self._about(), **self._standing()}

    def _standing(self) -> dict[str, Any]:
        return {
            "state": str(self._lending.state),
            "sentence": self._lending.explain(),
            "policy_file": str(self._lending.file),
            "policy_error": self._lending.error,
            "settings": self._lending.shown(),
        }
