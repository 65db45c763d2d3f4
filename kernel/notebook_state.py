"""Saves and restores what a notebook's kernel holds, so that the notebook can go on in another one.

This runs inside the kernel, on a node. What is saved: the notebook's names with the functions and classes defined in
it, the states of Python's, NumPy's and PyTorch's random numbers, and the files of the working folder. What is not:
threads, open files and connections, memory of a GPU, and what extensions keep for themselves. A state with one name
that cannot travel is no state: it is not written, and the names are told.
"""

from __future__ import annotations

import importlib
import pickle
import random
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

from .shipping import module_names, pack, unpack

_HISTORY = re.compile(r"_+|_i+|_[iod]h|_i?\d+|In|Out|__warningregistry__")
"""Names by which IPython keeps what was typed and shown."""
NAMES, RANDOM, FILES = "names", "random", "files/"


def ready() -> None:
    """Be imported: what that takes is no part of saving a state."""


def save(file: str, folder: str, limit: int) -> dict[str, Any]:
    """Write this kernel's state to `file`, whole or not at all.

    Args:
        file: where to write.
        folder: the notebook's working folder, whose files go along.
        limit: most bytes of a state.

    Returns:
        `bytes`, the size of what was written (0: nothing was), and `unsaved`, by name why not.
    """
    shell = _shell()
    names = _user_names(shell)
    modules = module_names(names)
    values = {name: value for name, value in names.items() if name not in modules}
    unsaved: dict[str, str] = {}
    try:
        data = pack((values, modules, shell.execution_count), shell.user_ns).data
    except Exception:  # pickling runs the user's own code
        data, unsaved = b"", _culprits(values, shell.user_ns)
    files = _files_of(Path(folder))
    size = len(data) + sum(path.stat().st_size for path in files)
    if not unsaved and size > limit:
        most = f"{size:,} bytes are more than the {limit:,} of computemesh.notebook.checkpoint-limit"
        unsaved = {"(everything)": most}
    if unsaved:
        return {"bytes": 0, "unsaved": unsaved}
    unfinished = Path(f"{file}.part")
    with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(NAMES, data)
        archive.writestr(RANDOM, pickle.dumps(_random_states()))
        for path in files:
            archive.write(path, FILES + path.relative_to(folder).as_posix())
    unfinished.replace(file)
    return {"bytes": Path(file).stat().st_size, "unsaved": {}}


def restore(file: str, folder: str) -> None:
    """Bring this kernel to the state in `file`; its files go to `folder`."""
    shell = _shell()
    with zipfile.ZipFile(file) as archive:
        for entry in archive.namelist():
            if entry.startswith(FILES):
                target = Path(folder, entry.removeprefix(FILES))
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(archive.read(entry))
        values, modules, shell.execution_count = unpack(archive.read(NAMES), shell.user_ns)
        for name, module in modules.items():
            shell.user_ns[name] = importlib.import_module(module)
        shell.user_ns.update(values)
        _set_random_states(pickle.loads(archive.read(RANDOM)))  # noqa: S301 - this kernel's own state


def _shell() -> Any:
    from IPython import get_ipython

    return get_ipython()


def _user_names(shell: Any) -> dict[str, Any]:
    hidden = shell.user_ns_hidden
    return {
        name: value
        for name, value in shell.user_ns.items()
        if not (name in hidden and hidden[name] is value) and not _HISTORY.fullmatch(name)
    }


def _culprits(values: dict[str, Any], home: dict[str, Any]) -> dict[str, str]:
    found = {}
    for name, value in values.items():
        try:
            pack(value, home)
        except Exception as error:  # pickling runs the user's own code
            found[name] = f"{type(value).__name__}: {error}".splitlines()[0]
    return found or {"(everything)": "the names cannot be saved together"}


def _files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _random_states() -> dict[str, Any]:
    found: dict[str, Any] = {"random": random.getstate()}
    if (numpy := sys.modules.get("numpy")) is not None:
        found["numpy"] = numpy.random.get_state()
    if (torch := sys.modules.get("torch")) is not None:
        found["torch"] = torch.get_rng_state()
    return found


def _set_random_states(states: dict[str, Any]) -> None:
    random.setstate(states["random"])
    if "numpy" in states:
        importlib.import_module("numpy").random.set_state(states["numpy"])
    if "torch" in states:
        importlib.import_module("torch").set_rng_state(states["torch"])
