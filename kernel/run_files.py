"""Files that came with a run: on the node they lie under the same relative paths in the run's working directory."""

from __future__ import annotations

import os
import pickle
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .interrupts import in_own_process

FILES = "__mesh_files__"
"""The name under which files travel among a cell's names."""


@dataclass(frozen=True, slots=True)
class SentFile:
    """One file: where it belongs, its content and whether it may be executed."""

    path: str
    """Relative, with forward slashes."""
    content: Any
    executable: bool = False

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        content = pickle.PickleBuffer(self.content) if int(protocol) >= 5 else bytes(self.content)
        return SentFile, (self.path, content, self.executable)


@dataclass(frozen=True, slots=True)
class RunFiles:
    """All files of one run, and folders that are empty."""

    files: tuple[SentFile, ...] = ()
    folders: tuple[str, ...] = ()
    digest: str = ""


@contextmanager
def in_working_directory(files: RunFiles | None) -> Iterator[None]:
    """Let the current directory hold `files` within the block; None changes nothing.

    A run in a process of its own gets a fresh folder, removed at its end with what the run wrote there. Runs in
    threads of one worker share their process's current directory: those with the same files share a folder, and one
    with others waits until they have ended.
    """
    if files is None:
        yield
    elif in_own_process():
        with _fresh_folder(files) as folder, _inside(folder):
            yield
    else:
        with _shared.using(files):
            yield


def write_files(files: RunFiles, folder: Path) -> None:
    """Write `files` below `folder`.

    Raises:
        ValueError: a path would lead out of the folder; whoever sent it is not our own notebook.
    """
    for name in files.folders:
        _below(folder, name).mkdir(parents=True, exist_ok=True)
    for file in files.files:
        target = _below(folder, file.path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.content)
        if file.executable:
            target.chmod(0o755)


def _below(folder: Path, name: str) -> Path:
    parts = Path(name).parts
    if not parts or Path(name).is_absolute() or ".." in parts or "\\" in name or ":" in parts[0]:
        raise ValueError(f"A file cannot be put at {name!r}: paths are relative and without '..'")
    return folder.joinpath(*parts)


@contextmanager
def _fresh_folder(files: RunFiles) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="mesh-files-"))
    try:
        write_files(files, folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    # A script finds modules beside it; so does a run.
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        os.chdir(before)


class _SharedFolder:
    """The working directory of all threads of this process, for one set of files at a time."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._digest = ""
        self._users = 0
        self._open: Any = None

    @contextmanager
    def using(self, files: RunFiles) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: self._users == 0 or self._digest == files.digest)
            if self._users == 0:
                self._open = _entered(files)
                self._digest = files.digest
            self._users += 1
        try:
            yield
        finally:
            with self._changed:
                self._users -= 1
                if self._users == 0:
                    self._open.close()
                    self._changed.notify_all()


def _entered(files: RunFiles) -> Any:
    from contextlib import ExitStack

    with ExitStack() as stack:
        stack.enter_context(_inside(stack.enter_context(_fresh_folder(files))))
        return stack.pop_all()


_shared = _SharedFolder()
