"""The sources of the user's own modules, for nodes that run code which imports them.

What a cell *uses* of a local module travels by value (`local_modules`). Code that *imports* one needs a module to
import: its source goes along, with the package that it is part of and the local modules that these import in turn,
as it is on the disk at that moment. On the node it counts before a module of the same name that is installed there.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import logging
import os
import pickle
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from computemesh.errors import CannotShip
from computemesh.gates import in_words

from .local_modules import is_local
from .shipping import imported_by

PACKAGE_LIMIT = 20_000_000
"""Bytes of one package that go along; data files count."""
_SKIPPED = frozenset({"__pycache__", ".git", ".ipynb_checkpoints", "node_modules", ".venv"})
log = logging.getLogger("computemesh.kernel")


@dataclass(frozen=True, slots=True)
class Bundle:
    """Sources of local modules by their paths, relative to an entry of ``sys.path``."""

    files: tuple[tuple[str, bytes], ...]

    @property
    def data(self) -> bytes:
        """It as bytes, the same for the same sources."""
        return pickle.dumps(self.files, protocol=5)


def bundle_of(imports: Iterable[str]) -> Bundle | None:
    """Return the sources of the local ones among the imported modules, and of what they import; None without any.

    Raises:
        CannotShip: a package is too big, named.
    """
    found: dict[str, bytes] = {}
    waiting, seen = {name.partition(".")[0] for name in imports}, set[str]()
    while waiting:
        name = waiting.pop()
        seen.add(name)
        for path, file in _sources(name):
            content = Path(file).read_bytes()
            found[path] = content
            if path.endswith(".py"):
                waiting |= {each.partition(".")[0] for each in _imports_in(content)} - seen
        waiting -= seen
    return Bundle(tuple(sorted(found.items()))) if found else None


def _sources(name: str) -> list[tuple[str, str]]:
    """Return the files of the local top-level module `name`: its path relative to its folder, and where it is."""
    if name in sys.builtin_module_names or name in sys.stdlib_module_names:
        return []
    try:
        # The file that an import would find now, also when the notebook has not imported it yet.
        spec = importlib.util.find_spec(name) if name not in sys.modules else sys.modules[name].__spec__
    except (ImportError, ValueError):
        return []
    if spec is None:
        return []
    if spec.submodule_search_locations:
        folder = Path(next(iter(spec.submodule_search_locations)))
        return _package(name, folder) if is_local(name, str(folder / "__init__.py")) else []
    if not spec.origin or not spec.origin.endswith(".py") or not is_local(name, spec.origin):
        return []
    return [(f"{name}.py", spec.origin)]


def _package(name: str, folder: Path) -> list[tuple[str, str]]:
    found, total = [], 0
    for where, folders, files in os.walk(folder):
        folders[:] = sorted(each for each in folders if each not in _SKIPPED)
        for each in sorted(files):
            file = Path(where, each)
            if not file.is_file():
                continue
            total += file.stat().st_size
            if total > PACKAGE_LIMIT:
                raise CannotShip(
                    f"The package `{name}` in {folder} is more than {in_words(PACKAGE_LIMIT)} with its data files: "
                    "keep data elsewhere (`mesh.upload` sends files), or install the package on the nodes"
                )
            found.append((f"{name}/{file.relative_to(folder).as_posix()}", str(file)))
    return found


@lru_cache(maxsize=1000)
def _imports_in(source: bytes) -> frozenset[str]:
    try:
        tree = compile(source, "<module>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except (SyntaxError, ValueError):
        # It fails on the node as it would here, when it is imported.
        return frozenset()
    return imported_by(tree)


# ---------------------------------------------------------------- on the node

_lock = threading.Lock()
_active: dict[str, tuple[str, str]] = {}
"""For each top-level name the bundle's digest and the folder it was imported from."""
_folders: dict[str, str] = {}
"""Where each bundle was unpacked, by its digest; a process has few."""
KEPT_FOLDERS = 8


def activate(data: bytes) -> None:
    """Let imports in this process find the modules of a bundle, before any of the same name."""
    digest = hashlib.sha256(data).hexdigest()
    files: tuple[tuple[str, bytes], ...] = pickle.loads(data)  # noqa: S301 - sent by the job's own user
    names = {path.partition("/")[0].removesuffix(".py") for path, _ in files}
    with _lock:
        if all(_active.get(name, ("", ""))[0] == digest for name in names):
            return
        folder = _folders.get(digest) or _unpacked(digest, files)
        for name in names:
            _forget_module(name, folder)
            _active[name] = (digest, folder)
        sys.path[:] = [folder, *(each for each in sys.path if each != folder and each not in _stale())]
        importlib.invalidate_caches()


def _unpacked(digest: str, files: tuple[tuple[str, bytes], ...]) -> str:
    folder = Path(tempfile.mkdtemp(prefix="mesh-modules-"))
    for path, content in files:
        target = folder.joinpath(*Path(path).parts)
        if Path(path).is_absolute() or ".." in Path(path).parts:
            raise ValueError(f"A module cannot be put at {path!r}")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    _folders[digest] = str(folder)
    _remove_old()
    return str(folder)


def _remove_old() -> None:
    import atexit

    if len(_folders) == 1:
        atexit.register(_remove_all)
    in_use = {where for _, where in _active.values()}
    for digest, folder in list(_folders.items())[:-1]:
        if len(_folders) > KEPT_FOLDERS and folder not in in_use:
            shutil.rmtree(_folders.pop(digest), ignore_errors=True)


def _remove_all() -> None:
    for folder in _folders.values():
        shutil.rmtree(folder, ignore_errors=True)


def _stale() -> set[str]:
    """Return the folders on ``sys.path`` from which nothing is imported any more."""
    return set(_folders.values()) - {folder for _, folder in _active.values()}


def _forget_module(name: str, folder: str) -> None:
    """Let `name` be imported anew; what was imported before lives on in what uses it."""
    module = sys.modules.get(name)
    where = str(getattr(module, "__file__", "") or "")
    if module is None:
        return
    if name not in _active and where:
        log.warning("Module %s comes from the notebook, not from %s on this node", name, where)
    for each in [each for each in sys.modules if each == name or each.startswith(f"{name}.")]:
        del sys.modules[each]
