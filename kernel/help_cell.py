"""``%%mesh --help`` alone in a cell, and ``%%mesh?``: IPython itself refuses a cell magic that has no body."""

from __future__ import annotations

import re

_ASKS = re.compile(r"^%%mesh\s*\?\??\s*$")
_MAGIC = re.compile(r"^%%mesh(\s|$)")


def with_body(lines: list[str]) -> list[str]:
    """Return a cell's lines so that an empty ``%%mesh`` cell reaches the magic, which knows what to say."""
    first = next((number for number, line in enumerate(lines) if line.strip()), None)
    if first is None or any(line.strip() for line in lines[first + 1 :]):
        return lines
    line = lines[first].rstrip("\n")
    if _ASKS.match(line):
        return ["%%mesh --help\n", "\n"]
    if _MAGIC.match(line):
        return [f"{line}\n", "\n"]
    return lines


# IPython leaves such a transformer out when a console asks whether a cell is complete: else the cell would be run after
# its first line, as though nothing more could follow.
with_body.has_side_effects = True  # type: ignore[attr-defined]
