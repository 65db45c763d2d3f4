"""The owner's wire to the agent on this machine: one JSON document a line each way, over a socket in the home.

On POSIX a Unix socket that only its user (and root) can open; elsewhere a loopback port and a secret that only the
user can read. It works whether the driver can be reached or not.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import os
import secrets
import socket
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from computemesh.errors import BadConfiguration, ComputeMeshError, NoAgent
from computemesh.identity import write_private

LONGEST_PATH = 100
"""Of a Unix socket; the system's bound is a little above."""
PATIENCE_SECONDS = 10.0
POSIX = sys.platform != "win32"

Answer = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


def _place(folder: Path) -> Path:
    return folder / "control.json"


def _socket_path(folder: Path) -> Path:
    path = folder / "control.sock"
    if len(str(path)) < LONGEST_PATH:
        return path
    # The file beside it says where it is; the folder is the user's own.
    own = Path(tempfile.gettempdir(), f"computemesh-{os.getuid() if POSIX else 0}")
    own.mkdir(mode=0o700, exist_ok=True)
    if POSIX and (own.stat().st_uid != os.getuid() or own.stat().st_mode & 0o077):
        raise BadConfiguration(f"{own} is not this user's alone: remove it, or choose a shorter --home")
    return own / f"{hashlib.sha256(str(folder).encode()).hexdigest()[:16]}.sock"


class Control:
    """The agent's end."""

    def __init__(self, folder: Path, answer: Answer) -> None:
        self._folder, self._answer = folder, answer
        self._server: asyncio.Server | None = None
        self._secret = ""

    async def start(self) -> None:
        """Listen."""
        if POSIX:
            path = _socket_path(self._folder)
            path.unlink(missing_ok=True)
            before = os.umask(0o177)
            try:
                self._server = await asyncio.start_unix_server(self._serve, str(path))
            finally:
                os.umask(before)
            place: dict[str, Any] = {"socket": str(path)}
        else:
            self._secret = secrets.token_hex(16)
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
            place = {"port": self._server.sockets[0].getsockname()[1], "secret": self._secret}
        write_private(_place(self._folder), json.dumps(place).encode())

    async def stop(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()
            _place(self._folder).unlink(missing_ok=True)
            if POSIX:
                _socket_path(self._folder).unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.TimeoutError, ValueError):
            line = await asyncio.wait_for(reader.readline(), PATIENCE_SECONDS)
            asked = json.loads(line)
            if not isinstance(asked, dict) or not hmac.compare_digest(str(asked.get("secret", "")), self._secret):
                said: dict[str, Any] = {"error": "The agent does not know you"}
            else:
                try:
                    said = await self._answer(asked)
                except ComputeMeshError as error:
                    said = {"error": str(error)}
            writer.write(json.dumps(said).encode() + b"\n")
            await writer.drain()
        writer.close()


def ask_agent(folder: Path, what: str, **about: Any) -> dict[str, Any]:
    """Ask the agent whose node folder this is, and return what it says.

    Raises:
        NoAgent: none runs there.
        BadConfiguration: it refuses, with its reason.
    """
    try:
        place = json.loads(_place(folder).read_text("utf-8"))
        with _connected(place) as connection:
            asked = {"what": what, "secret": place.get("secret", ""), **about}
            connection.sendall(json.dumps(asked).encode() + b"\n")
            with connection.makefile("rb") as stream:
                line = stream.readline()
        said: dict[str, Any] = json.loads(line)
    except (OSError, ValueError, KeyError):
        raise NoAgent(
            f"No agent runs here (home {folder.parent}): start it with `mesh join`, or give the --home of the one you "
            "mean"
        ) from None
    if "error" in said:
        raise BadConfiguration(said["error"])
    return said


def _connected(place: dict[str, Any]) -> socket.socket:
    if "socket" in place:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(PATIENCE_SECONDS)
        try:
            connection.connect(place["socket"])
        except BaseException:
            connection.close()
            raise
        return connection
    return socket.create_connection(("127.0.0.1", place["port"]), PATIENCE_SECONDS)
