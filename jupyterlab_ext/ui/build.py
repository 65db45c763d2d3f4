"""Builds the panel's TypeScript into ``jupyterlab_ext/labextension/``; for those who change it, and for the check.

    python jupyterlab_ext/ui/build.py            build, and put the result beside this folder, to be committed
    python jupyterlab_ext/ui/build.py --check    pass the unit tests, build, and fail if the result is another

Needs node.js and the package jupyter_builder (both come with `make test`). It works in ``.lab-build/`` at the root of
the checkout, which git ignores, so that a hundred thousand files of node_modules stay out of the room.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).resolve().parent
RESULT = SOURCES.parent / "labextension"
WORKSHOP = SOURCES.parents[1] / ".lab-build"
KEPT = {"node_modules", ".yarn"}
"""What a later build uses again."""


def lay_out() -> Path:
    """Copy the sources into the workshop, without what an earlier build left, and return their folder."""
    place = WORKSHOP / "ui"
    place.mkdir(parents=True, exist_ok=True)
    for old in place.iterdir():
        if old.name not in KEPT:
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    for new in SOURCES.iterdir():
        if new.suffix == ".py" or new.name in {*KEPT, "__pycache__"}:
            continue
        (shutil.copytree if new.is_dir() else shutil.copy)(new, place / new.name)
    return place


def run(place: Path, *command: str) -> None:
    """Run one command with this interpreter's own tools before all others on the path."""
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(command, cwd=place, env={**os.environ, "PATH": tools}, text=True, capture_output=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


def build(check: bool) -> Path:
    """Return the folder with the built extension; with `check`, after the unit tests."""
    for tool, source in (("node", "your system's package nodejs"), ("jlpm", "pip install jupyter_builder")):
        if shutil.which(tool, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}") is None:
            sys.exit(f"{tool} is missing: install it ({source})")
    place = lay_out()
    run(place, "jlpm", "install", "--immutable")
    if check:
        run(place, "jlpm", "test")
    result = WORKSHOP / "labextension"
    shutil.rmtree(result, ignore_errors=True)
    run(place, "jlpm", "build")
    shutil.copy(SOURCES.parent / "install.json", result / "install.json")
    return result


def differences(one: Path, other: Path) -> list[str]:
    """Return the files that only one of the folders has, or that are not the same in both."""
    names = [{str(file.relative_to(root)) for file in root.rglob("*") if file.is_file()} for root in (one, other)]
    alone = names[0] ^ names[1]
    both = names[0] & names[1]
    return sorted(alone | {name for name in both if not filecmp.cmp(one / name, other / name, shallow=False)})


def main() -> None:
    """Build or check, as the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="build and compare with what is committed")
    check = parser.parse_args().check
    result = build(check)
    if check:
        differs = differences(result, RESULT)
        if differs:
            sys.exit(f"{RESULT} is not what its sources build ({', '.join(differs)}): run {Path(__file__).name}")
        print(f"{RESULT} is what its sources build")
        return
    shutil.rmtree(RESULT, ignore_errors=True)
    shutil.copytree(result, RESULT)
    size = sum(file.stat().st_size for file in RESULT.rglob("*") if file.is_file())
    print(f"{json.loads((RESULT / 'package.json').read_text())['name']} built into {RESULT}: {size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
