"""Does something right after a module is first imported, so that nobody waits for a module that is not used."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def when_imported(name: str, act: Callable[[], None]) -> Callable[[], None]:
    """Call `act` once the module `name` is imported, now if it is; returns what calls that off."""
    if name in sys.modules:
        act()
        return lambda: None
    watcher = _Watcher(name, act)
    sys.meta_path.insert(0, watcher)
    return watcher.stop


class _Watcher(MetaPathFinder):
    """Answers for one module, once, with what the other finders find."""

    def __init__(self, name: str, act: Callable[[], None]) -> None:
        self._name, self._act = name, act

    def stop(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        self.stop()
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Acting(spec.loader, self._act)
        return spec


class _Acting(Loader):
    """A module's own loader, which acts after it and then leaves no trace of this one."""

    def __init__(self, loader: Loader, act: Callable[[], None]) -> None:
        self._loader, self._act = loader, act

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._act()
