"""The user's own modules beside the notebook, which the nodes do not have and which therefore travel by value."""

from __future__ import annotations

import pickle
import sys
import sysconfig
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle


def _installed_folders() -> tuple[str, ...]:
    paths = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return tuple(sorted(f"{Path(path).resolve()}/" for path in {*paths, sys.prefix, sys.base_prefix} if path))


_INSTALLED = _installed_folders()
_is_local: dict[tuple[str, str], bool] = {}


def is_local(name: str, file: str) -> bool:
    """Return whether a module called `name` in `file` is the user's own rather than an installed one."""
    if name.partition(".")[0] in {"computemesh", "__main__", "__mp_main__"}:
        return False
    path = str(Path(file).resolve())
    return not path.startswith(_INSTALLED) and not {"site-packages", "dist-packages"} & set(Path(path).parts)


def _local_modules() -> list[ModuleType]:
    found = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not isinstance(module, ModuleType):
            continue
        known = _is_local.get((name, file))
        if known is None:
            known = _is_local[name, file] = is_local(name, file)
        if known and module.__name__ == name:
            found.append(module)
    return found


_registering = threading.RLock()
_depth = 0


@contextmanager
def by_value() -> Iterator[None]:
    """Let cloudpickle send what comes from the user's own modules by value within the block.

    Looking for them takes a millisecond: whoever pickles many things does so within one block around all.
    """
    global _depth  # cloudpickle's registry is the process's too; the lock is held throughout
    with _registering:
        if _depth:
            yield
            return
        registered = []
        already = cloudpickle.list_registry_pickle_by_value()
        for module in _local_modules():
            if module.__name__ not in already:
                cloudpickle.register_pickle_by_value(module)
                registered.append(module)
        _depth += 1
        try:
            yield
        finally:
            _depth -= 1
            for module in registered:
                # `%autoreload` and re-imports may have put another module in its place.
                if module.__name__ in cloudpickle.list_registry_pickle_by_value():
                    cloudpickle.unregister_pickle_by_value(module)


def as_own_pickle(graph: Any) -> Any:
    """Return a Dask graph in a form that pickles what comes from the user's own modules by value.

    Dask's own pickling prefers plain pickle, which would send such functions as names that the nodes do not know.
    """
    return _ByValue(graph) if _local_modules() else graph


class _ByValue:
    """Something that cloudpickle pickles, even inside a plain pickle; comes back as itself."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        buffers: list[pickle.PickleBuffer] = []
        with by_value():
            data = cloudpickle.dumps(self._value, protocol=5, buffer_callback=buffers.append)
        return _loaded, (data, buffers)


def _loaded(data: bytes, buffers: list[Any]) -> Any:
    return pickle.loads(data, buffers=buffers)  # noqa: S301 - as Dask itself unpickles graphs
