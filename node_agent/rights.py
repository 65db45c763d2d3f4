"""Passes a capsule's request for the right to use the mesh on, and keeps the folder of what was granted."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

SECONDS = 30.0
"""How long a capsule waits for its right."""


class Rights:
    """The rights of one worker's running tasks."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self._homes: dict[str, Path] = {}

    def answer(self, key: str, request: bytes) -> bytes:
        """Return the answer to the capsule that runs `key`, in JSON; called in the capsule's own thread."""
        asked = asyncio.run_coroutine_threadsafe(self._ask(key, request), self._worker.loop.asyncio_loop)
        try:
            answer = asked.result(SECONDS)
        except (OSError, TimeoutError) as error:
            asked.cancel()
            answer = {"error": f"the scheduler did not answer ({type(error).__name__}): try again"}
        return json.dumps(answer if answer.get("error") else self._at_home(key, answer)).encode()

    def forget(self, key: str) -> None:
        """The task has ended: remove what it was granted."""
        home = self._homes.pop(key, None)
        if home is not None:
            shutil.rmtree(home, ignore_errors=True)

    async def _ask(self, key: str, request: bytes) -> dict[str, Any]:
        answer = await self._worker.scheduler.mesh_delegate(key=key, request=request.decode())
        # A scheduler without the mesh's plugin answers nothing.
        return dict(answer or {"error": "this scheduler grants no rights to tasks"})

    def _at_home(self, key: str, answer: dict[str, Any]) -> dict[str, Any]:
        """Add what this node knows: where the driver is, whom to trust, and where the task may keep its key."""
        if key not in self._homes:
            self._homes[key] = Path(tempfile.mkdtemp(prefix="right-", dir=self._worker.local_directory))
        own = self._worker.security.identity
        return {
            "home": str(self._homes[key]),
            "driver": own.driver,
            "user": answer["user"],
            "authority": own.authority.read_text("utf-8"),
            "certificate": answer["certificate"],
        }
