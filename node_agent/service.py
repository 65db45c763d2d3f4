"""Runs the agent as a service of the system: systemd, launchd, or Windows' task scheduler.

On Windows it is a task at logon and not a service: a service lives in a session of its own, from which the owner's
keyboard and mouse cannot be seen (GetLastInputInfo).
"""

from __future__ import annotations

import getpass
import os
import plistlib
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from computemesh.errors import BadConfiguration, NoMesh

UNIT = "computemesh-agent.service"
LABEL = "org.computemesh.agent"
TASK = "ComputeMesh agent"

Run = Callable[[Sequence[str]], tuple[int, str]]
"""Runs a command; returns its exit code and what it printed."""


@dataclass(frozen=True, slots=True)
class Service:
    """What is to run: the interpreter, the agent's home, and whose service it is."""

    python: str
    home: Path
    system: bool = False
    """Of the machine rather than of a user; systemd only."""
    user: str = ""
    """Whom a system's service runs as."""

    @property
    def command(self) -> list[str]:
        """The agent's command."""
        return [self.python, "-m", "computemesh", "join", "--service", "--home", str(self.home)]


def run(command: Sequence[str]) -> tuple[int, str]:
    """Run a command of the system."""
    try:
        ran = subprocess.run(list(command), capture_output=True, text=True, check=False, timeout=60)
    except FileNotFoundError:
        return 127, f"{command[0]} is not on this machine"
    return ran.returncode, (ran.stdout + ran.stderr).strip()


# ---------------------------------------------------------------- what is written


def systemd_unit(service: Service) -> str:
    """Return the unit; with ``Delegate`` the agent may make control groups below its own."""
    user = f"User={service.user}\n" if service.system else ""
    target = "multi-user.target" if service.system else "default.target"
    command = " ".join(_quoted(word) for word in service.command)
    return (
        "[Unit]\n"
        "Description=ComputeMesh: lends this machine while nobody uses it\n"
        "Wants=network-online.target\n"
        "After=network-online.target\n"
        "\n"
        "[Service]\n"
        f"ExecStart={command}\n"
        f"{user}"
        "Restart=on-failure\n"
        "RestartSec=5\n"
        "Delegate=yes\n"
        "KillMode=mixed\n"
        "TimeoutStopSec=30\n"
        "NoNewPrivileges=yes\n"
        "\n"
        "[Install]\n"
        f"WantedBy={target}\n"
    )


def _quoted(word: str) -> str:
    """Return a word as systemd reads it (systemd.service(5): quotes, backslashes, ``%`` and ``$`` are special)."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"' if escaped != word or " " in word else word


def launchd_plist(service: Service) -> bytes:
    """Return the agent's property list (launchd.plist(5)); it runs in its owner's session."""
    return plistlib.dumps(
        {
            "Label": LABEL,
            "ProgramArguments": service.command,
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "ProcessType": "Background",
            "StandardErrorPath": str(service.home / "logs" / "launchd.log"),
        }
    )


def windows_task(service: Service) -> list[str]:
    """Return the command that makes the task at logon."""
    words = subprocess.list2cmdline(service.command)
    return ["schtasks", "/Create", "/TN", TASK, "/TR", words, "/SC", "ONLOGON", "/RL", "LIMITED", "/F"]


# ---------------------------------------------------------------- the three systems


@dataclass(frozen=True, slots=True)
class Manager:
    """How a system is told: the file that it reads, and the commands."""

    file: Path | None
    content: bytes
    install: tuple[tuple[str, ...], ...]
    uninstall: tuple[tuple[str, ...], ...]
    reload: tuple[str, ...]
    """After the file is gone; empty: nothing."""
    status: tuple[str, ...]


def manager_of(service: Service, platform: str, folder: Path) -> Manager:
    """Return how `platform` is told; `folder` is the user's home folder."""
    if platform == "win32":
        create = tuple(windows_task(service))
        return Manager(
            None,
            b"",
            (create, ("schtasks", "/Run", "/TN", TASK)),
            (("schtasks", "/End", "/TN", TASK), ("schtasks", "/Delete", "/TN", TASK, "/F")),
            (),
            ("schtasks", "/Query", "/TN", TASK),
        )
    if platform == "darwin":
        file = folder / "Library" / "LaunchAgents" / f"{LABEL}.plist"
        domain = f"gui/{os.getuid()}"
        return Manager(
            file,
            launchd_plist(service),
            (("launchctl", "bootstrap", domain, str(file)),),
            (("launchctl", "bootout", f"{domain}/{LABEL}"),),
            (),
            ("launchctl", "print", f"{domain}/{LABEL}"),
        )
    control = ("systemctl",) if service.system else ("systemctl", "--user")
    place = Path("/etc/systemd/system") if service.system else folder / ".config" / "systemd" / "user"
    return Manager(
        place / UNIT,
        systemd_unit(service).encode(),
        ((*control, "daemon-reload"), (*control, "enable", "--now", UNIT)),
        ((*control, "disable", "--now", UNIT),),
        (*control, "daemon-reload"),
        (*control, "is-active", UNIT),
    )


# ---------------------------------------------------------------- what an owner orders


def install(service: Service, manager: Manager, execute: Run = run) -> None:
    """Write the file and start the service.

    Raises:
        NoMesh: this machine has not joined a mesh yet.
        BadConfiguration: the system refuses; what was written is taken back.
    """
    if not (service.home / "node" / "identity.json").exists():
        raise NoMesh(
            f"This machine is in no mesh yet (home {service.home}): `mesh join HOST --token … --ca …` once, stop it, "
            "then install the service"
        )
    if manager.file is not None:
        try:
            manager.file.parent.mkdir(parents=True, exist_ok=True)
            manager.file.write_bytes(manager.content)
        except OSError as error:
            raise BadConfiguration(f"{manager.file} cannot be written ({error.strerror}): run this as root") from None
    for command in manager.install:
        code, said = execute(command)
        if code:
            uninstall(manager, execute)
            raise BadConfiguration(f"`{' '.join(command)}` failed, and nothing is installed: {said or f'code {code}'}")


def uninstall(manager: Manager, execute: Run = run) -> bool:
    """Stop the service and remove every trace of it; return whether there was one."""
    there = [execute(command)[0] == 0 for command in manager.uninstall]
    had_file = manager.file is not None and manager.file.exists()
    if manager.file is not None and had_file:
        try:
            manager.file.unlink()
        except OSError as error:
            raise BadConfiguration(f"{manager.file} cannot be removed ({error.strerror}): run this as root") from None
    if manager.reload:
        execute(manager.reload)
    return had_file or any(there)


def status(manager: Manager, execute: Run = run) -> str:
    """Return how the service is, in words."""
    code, said = execute(manager.status)
    installed = manager.file.exists() if manager.file is not None else code == 0
    if not installed:
        return "not installed"
    return "running" if code == 0 else f"installed, not running ({said.splitlines()[0] if said else f'code {code}'})"


def this_service(home: Path, *, system: bool) -> tuple[Service, Manager]:
    """Return the service of this interpreter and home, and how this system is told."""
    if system and sys.platform != "linux":
        raise BadConfiguration("--system is for systemd; on this system the agent runs as its owner's own")
    service = Service(sys.executable, home, system, getpass.getuser() if system else "")
    return service, manager_of(service, sys.platform, Path.home())
