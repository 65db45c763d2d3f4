"""The house stands as designed: rooms import only the core and themselves, and the face opens quickly."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("scheduler_plugin", "driver", "node_agent", "kernel", "jupyterlab_ext")
SOURCES = {room: sorted((ROOT / room).rglob("*.py")) for room in ROOMS} | {
    "core": sorted((ROOT / "computemesh").rglob("*.py"))
}


def imported(file: Path) -> set[str]:
    """Return the absolute names of all modules that `file` imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level > 1:
            found.add("beyond its own room")
    return found


def rooms_in(modules: set[str]) -> set[str]:
    return {
        room
        for room in ROOMS
        for name in modules
        if name in (room, f"computemesh.{room}") or name.startswith((f"computemesh.{room}.", f"{room}."))
    }


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_no_other_room(room):
    assert SOURCES[room], f"{room} is empty"
    for file in SOURCES[room]:
        modules = imported(file)
        assert "beyond its own room" not in modules, file
        assert not rooms_in(modules), f"{file} imports a room by its absolute name"


def test_the_core_imports_no_room():
    for file in SOURCES["core"]:
        assert not rooms_in(imported(file)), file


def test_the_rooms_test_can_fail(tmp_path):
    bad = tmp_path / "bad.py"
    bad.write_text("def f():\n    from computemesh.driver import journal\n")
    assert rooms_in(imported(bad)) == {"driver"}


@pytest.mark.parametrize("room", [*ROOMS, "core"])
def test_no_file_tells_two_stories(room):
    for file in SOURCES[room]:
        assert file.stem not in {"utils", "util", "helpers", "manager", "misc", "common"}
        assert len(file.read_text("utf-8").splitlines()) <= 480, f"{file} is too long: split it by story"


def test_importing_the_face_loads_nothing_heavy():
    code = (
        "import sys, computemesh; heavy = {'distributed', 'dask', 'IPython', 'numpy', 'tornado', 'cryptography'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_help_lists_every_rooms_commands_and_loads_nothing_heavy():
    code = (
        "import sys\nfrom click.testing import CliRunner\nfrom computemesh.cli import mesh\n"
        "print(CliRunner().invoke(mesh, ['--help']).output)\n"
        "heavy = {'distributed', 'IPython', 'numpy', 'tornado', 'cryptography', 'rich'}\n"
        "print('HEAVY', sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for command in ("up", "join", "login", "token", "nodes", "node", "events", "why", "cordon", "drain", "lab"):
        assert f"\n  {command} " in done.stdout, command
    assert "HEAVY []" in done.stdout


def test_an_unknown_name_is_an_ordinary_attribute_error():
    import computemesh

    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = computemesh.nonsense
