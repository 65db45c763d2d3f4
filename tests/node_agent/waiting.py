"""Bounded waiting, and programs that a test needs."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Callable
from typing import Any

import pytest

BOUND = 60.0
"""Seconds after which something that must happen counts as never happening."""


async def eventually(condition: Callable[[], Any], what: str = "") -> Any:
    """Wait until `condition` holds and return what it said."""
    deadline = time.monotonic() + BOUND
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"never happened: {what or condition}")
        await asyncio.sleep(0.01)
    return found


def needed(program: str) -> str:
    """Return a program's path; its lack fails in CI, where it is installed, and skips elsewhere."""
    found = shutil.which(program)
    if found is None:
        if os.environ.get("CI"):
            pytest.fail(f"{program} is missing in CI")
        pytest.skip(f"{program} is not installed")
    return found
