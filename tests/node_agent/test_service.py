"""The agent as a service: what each system is told, that a refusal leaves nothing, and that uninstalling does."""

from __future__ import annotations

import configparser
import plistlib
import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest

from computemesh.errors import BadConfiguration, NoMesh
from computemesh.node_agent.service import Manager, Service, install, manager_of, status, systemd_unit, uninstall


class System:
    """Notes what it is told; refuses commands that hold a word."""

    def __init__(self, refuses: str = "") -> None:
        self.told: list[str] = []
        self._refuses = refuses

    def __call__(self, command: Sequence[str]) -> tuple[int, str]:
        self.told.append(" ".join(command))
        refused = bool(self._refuses) and self._refuses in command
        return int(refused), "Failed to connect to bus" if refused else ""


def joined(tmp_path: Path) -> Path:
    home = tmp_path / "my home"
    (home / "node").mkdir(parents=True)
    (home / "node" / "identity.json").write_text("{}")
    return home


def parsed(unit: str) -> configparser.ConfigParser:
    found = configparser.ConfigParser(interpolation=None)
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read_string(unit)
    return found


def test_a_systemd_unit_starts_this_home_and_is_delegated_its_group():
    unit = parsed(systemd_unit(Service("/opt/venv/bin/python", Path("/home/ada/50% $mine"), system=True, user="ada")))
    assert shlex.split(unit["Service"]["ExecStart"]) == [
        "/opt/venv/bin/python", "-m", "computemesh", "join", "--service", "--home", "/home/ada/50%% $$mine"
    ]  # fmt: skip
    assert unit["Service"]["Delegate"] == "yes"
    assert unit["Service"]["User"] == "ada"
    assert unit["Install"]["WantedBy"] == "multi-user.target"
    own = parsed(systemd_unit(Service("python", Path("/h"))))
    assert "User" not in own["Service"]
    assert own["Install"]["WantedBy"] == "default.target"


SYSTEMS = {
    "linux": ("systemctl --user daemon-reload", "systemctl --user enable --now computemesh-agent.service"),
    "darwin": ("launchctl bootstrap gui/",),
    "win32": ("schtasks /Create /TN ComputeMesh agent /TR ", "schtasks /Run"),
}


def made(platform: str, tmp_path: Path) -> tuple[Service, Manager]:
    service = Service("/venv/bin/python", joined(tmp_path))
    return service, manager_of(service, platform, tmp_path)


@pytest.mark.parametrize("platform", list(SYSTEMS))
def test_installing_tells_the_system_and_uninstalling_leaves_nothing(platform, tmp_path):
    service, manager = made(platform, tmp_path)
    before = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    system = System()
    install(service, manager, system)
    assert [told.startswith(asked) for told, asked in zip(system.told, SYSTEMS[platform], strict=True)]
    assert status(manager, system) == "running"
    assert uninstall(manager, system)
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == before
    gone = System(refuses=manager.status[-1])
    assert status(manager, gone) == "not installed"


@pytest.mark.parametrize(("platform", "word"), [("linux", "enable"), ("darwin", "bootstrap"), ("win32", "/Run")])
def test_a_system_that_refuses_is_left_as_it_was(platform, word, tmp_path):
    service, manager = made(platform, tmp_path)
    before = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    with pytest.raises(BadConfiguration, match="nothing is installed: Failed to connect to bus"):
        install(service, manager, System(refuses=word))
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == before


def test_a_machine_that_has_not_joined_is_told_how(tmp_path):
    service = Service("python", tmp_path)
    with pytest.raises(NoMesh, match="`mesh join HOST --token … --ca …` once"):
        install(service, manager_of(service, "linux", tmp_path), System())


def test_launchds_list_reads_back(tmp_path):
    service, manager = made("darwin", tmp_path)
    found = plistlib.loads(manager.content)
    assert found["ProgramArguments"] == service.command
    assert found["RunAtLoad"] is True
