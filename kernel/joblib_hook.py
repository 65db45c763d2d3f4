"""Makes joblib know the backend ``"mesh"``, without importing joblib before the user does."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any


def register_joblib() -> None:
    """Make ``joblib.parallel_config(backend="mesh")`` work.

    Needed only where joblib was imported before anything of the mesh was used, or never: the first use of
    `computemesh` in a process, and ``%load_ext computemesh``, do it by themselves.
    """
    import joblib

    joblib.register_parallel_backend("mesh", _made)


def register_when_imported() -> None:
    """Do as `register_joblib` now if joblib has been imported, else when it is."""
    if "joblib" in sys.modules:
        register_joblib()
    elif not any(isinstance(each, _Watch) for each in sys.meta_path):
        sys.meta_path.insert(0, _Watch())


def _made(**fields: Any) -> Any:
    from .joblib_backend import MeshBackend

    return MeshBackend(**fields)


class _Watch(importlib.abc.MetaPathFinder):
    """Waits for joblib's import, and for nothing else."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Called by Python for each import; answers once, for joblib."""
        if fullname != "joblib":
            return None
        sys.meta_path.remove(self)
        found = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if found is not None and found.loader is not None:
            found.loader = _Loader(found.loader)
        return found


class _Loader(importlib.abc.Loader):
    def __init__(self, stock: Any) -> None:
        self._stock = stock

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """As joblib's own loader."""
        found: ModuleType | None = self._stock.create_module(spec)
        return found

    def exec_module(self, module: ModuleType) -> None:
        """As joblib's own loader; then register."""
        # What asks the module for its loader later finds its own.
        module.__loader__ = self._stock
        if module.__spec__ is not None:
            module.__spec__.loader = self._stock
        self._stock.exec_module(module)
        module.register_parallel_backend("mesh", _made)
