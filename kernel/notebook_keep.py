"""Keeps a running notebook's state beside its output, so that it goes on after its last finished cell.

The file holds the notebook with its outputs so far, the number of the next cell, and the kernel's state as its node
saved it. It is the user's own, and counts only for the notebook that it was made of: the same cells in the same order.
"""

from __future__ import annotations

import hashlib
import json
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from computemesh.errors import BadConfiguration


@dataclass(frozen=True, slots=True)
class Kept:
    """Where a notebook stood."""

    cell: int
    """The next cell to run."""
    text: str
    """The notebook with its outputs, as JSON."""
    state: bytes

    @classmethod
    def of(cls, notebook: Any, cell: int, state: bytes) -> Kept:
        """Return where `notebook` stands before `cell`."""
        import nbformat

        return cls(cell, nbformat.writes(notebook), state)

    def notebook(self) -> Any:
        """Return the notebook."""
        import nbformat

        return nbformat.reads(self.text, as_version=4)


def keep(kept: Kept, file: Path) -> None:
    """Write `kept` to `file`, whole or not at all."""
    unfinished = file.with_name(f"{file.name}.part")
    about = {"cell": kept.cell, "cells": _print_of(kept.notebook()), "python": _python()}
    with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_STORED) as archive:
        unfinished.chmod(0o600)
        archive.writestr("about.json", json.dumps(about))
        archive.writestr("notebook.ipynb", kept.text)
        archive.writestr("state", kept.state)
    unfinished.replace(file)


def read_kept(file: Path, notebook: Any) -> Kept | None:
    """Return what was kept in `file` of `notebook`; None when there is no such file.

    Raises:
        BadConfiguration: the file is damaged, or was made of other cells or with another Python.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            about = json.loads(archive.read("about.json"))
            kept = Kept(int(about["cell"]), archive.read("notebook.ipynb").decode(), archive.read("state"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise BadConfiguration(f"The kept state {file} cannot be read ({error}): delete it to start anew") from None
    if about.get("python") != _python():
        raise BadConfiguration(f"The kept state {file} is of Python {about.get('python')}, this is {_python()}")
    if about.get("cells") != _print_of(notebook):
        raise BadConfiguration(f"The notebook or its parameters are not those of the kept state {file}: delete it")
    return kept


def _print_of(notebook: Any) -> str:
    sources = json.dumps([[cell.cell_type, cell.source] for cell in notebook.cells])
    return hashlib.sha256(sources.encode()).hexdigest()


def _python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"
