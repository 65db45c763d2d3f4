"""The administrator's policy for owners: defaults and ceilings, from ``policy.toml`` in the driver's home."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from computemesh.errors import BadConfiguration
from computemesh.policy_file import load, read_sections
from computemesh.protocol import plain

logger = logging.getLogger("computemesh.driver")


class OwnerRules:
    """Reads the file whenever it has changed; `record` writes an event into the journal."""

    def __init__(self, file: Path, record: Callable[[str, str], object]) -> None:
        self._file, self._record = file, record
        self._text: str | None = None
        self._error = ""
        self.rules: dict[str, dict[str, Any]] = {}
        """As they were written, for the agents."""

    def look(self) -> None:
        """Let a changed file count; a bad one is said once, and changes nothing."""
        try:
            text = load(self._file)
            if text == self._text:
                return
            rules = read_sections(text, str(self._file))
        except BadConfiguration as error:
            if str(error) != self._error:
                self._error = str(error)
                self._record("policy-refused", f"{error}; the last good rules count")
            return
        first, self._text, self._error = self._text is None, text, ""
        # Dates of TOML travel as text.
        self.rules = plain(rules) if any(rules.values()) else {}
        if not first or self.rules:
            self._record("policy-rules", "The administrator's rules for owners' policies count")
