"""Files and folders that go with a run: ``mesh.upload`` for all that follows, ``--file`` for one cell.

**For cells**: ``shared = with_files(shared, uploads_for(mesh, said.files))`` before `ship_once.shipped`, and on the
node ``with in_working_directory(namespace.pop(FILES, None)):`` (`run_files`) around the run.

A path's place on the node is the same path relative to the notebook's folder, and below `to` when that is given; one
outside the notebook's folder has its own name. The content is what it was when it was uploaded, and is sent once to
each node that needs it, as Dask's own data: no further port, and gone with the upload.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from computemesh import config
from computemesh.errors import CannotShip
from computemesh.gates import in_words

from .blobs import digest_of
from .run_files import FILES, RunFiles, SentFile
from .shipping import Packed, Packer

if TYPE_CHECKING:
    from .connection import Mesh

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]

SKIPPED = frozenset({".git", "__pycache__", ".ipynb_checkpoints", "node_modules", ".venv"})
"""Folders inside an uploaded folder that do not go along; named themselves, they do."""


@dataclass(frozen=True, slots=True, repr=False)
class Uploads:
    """Files that go with runs. Shows itself as a list; `forget` ends that they go along."""

    files: tuple[SentFile, ...] = ()
    folders: tuple[str, ...] = ()
    mesh: Mesh | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        """Where the files lie on a node, relative to a run's working directory."""
        return tuple(file.path for file in self.files)

    @property
    def size(self) -> int:
        """Bytes in all."""
        return sum(len(file.content) for file in self.files)

    def forget(self) -> None:
        """Let runs that start from now on do without them."""
        if self.mesh is not None:
            paths = set(self.paths)
            mine = self.mesh.uploads
            kept = tuple(file for file in mine.files if file.path not in paths)
            folders = tuple(name for name in mine.folders if name not in self.folders)
            self.mesh.uploads = replace(mine, files=kept, folders=folders)

    def merged(self, other: Uploads) -> Uploads:
        """Return both; for the same path `other` counts."""
        files = {file.path: file for file in (*self.files, *other.files)}
        return Uploads(tuple(files.values()), tuple(dict.fromkeys((*self.folders, *other.folders))))

    def __bool__(self) -> bool:
        return bool(self.files or self.folders)

    def __repr__(self) -> str:
        shown = [f"{file.path}  {in_words(len(file.content))}" for file in self.files[:20]]
        more = [f"and {len(self.files) - 20} more"] if len(self.files) > 20 else []
        return "\n".join([f"{len(self.files)} files, {in_words(self.size)}, go with runs:", *shown, *more])

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>"


def upload(paths: Paths, to: str | None = None, *, limit: int | str | None = None) -> Uploads:
    """Send files and folders along with everything that runs on the mesh from now on.

    On a node they lie in the run's working directory, under the path they have here relative to the notebook's
    folder, so that ``open("data/x.csv")`` works there as here. They are taken as they are now: upload again after a
    change; only what changed is sent. Cells, `mesh.submit`, `mesh.map`, `mesh.Executor` and joblib's backend have
    them; plain `dask.delayed` and `client.submit` do not.

    Args:
        paths: a file or folder, or several; in a folder ``.git``, ``__pycache__`` and their like stay here.
        to: a folder on the node to put them in, by their own names.
        limit: bytes in all that may go, such as ``"2GB"`` (``notebook.ship-limit``).

    Returns:
        What was uploaded; ``.forget()`` ends it.

    Raises:
        CannotShip: a path does not exist, leads out of its folder, is no file or folder, or all is too big; names it.
    """
    from .connection import current

    mesh = current()
    found = replace(upload_paths(mesh, paths, to, limit=limit), mesh=mesh)
    mesh.uploads = mesh.uploads.merged(found) if mesh.uploads else replace(found, mesh=None)
    return found


def upload_paths(mesh: Mesh, paths: Paths, to: str | None = None, *, limit: int | str | None = None) -> Uploads:
    """Read files and folders for one run, without making them go with others. Arguments and errors as `upload`."""
    from dask.utils import parse_bytes

    allowed = config.size("notebook.ship-limit") if limit is None else int(parse_bytes(limit))
    return read_paths(paths, to, allowed, Path.cwd())


def uploads_for(mesh: Mesh, paths: Paths = (), *, limit: int | str | None = None) -> Uploads:
    """Return what goes with a run: what `upload` made known, and these paths of its own."""
    always: Uploads = mesh.uploads
    return always.merged(upload_paths(mesh, paths, limit=limit)) if paths else always


def with_files(packed: Packed, uploads: Uploads) -> Packed:
    """Return `packed` with `uploads` among its names, as `run_files.FILES`."""
    if not uploads:
        return packed
    files = RunFiles(uploads.files, uploads.folders, _tree_digest(uploads))
    part = replace(Packer({}).add(FILES, files), alone=True)
    return replace(packed, parts=(*packed.parts, part))


def read_paths(paths: Paths, to: str | None, limit: int, base: Path) -> Uploads:
    """Read files and folders as they are now. Errors as `upload`."""
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    target = None if to is None else _target_folder(to)
    files: dict[str, SentFile] = {}
    folders: list[str] = []
    total = 0
    for path in given:
        top = Path(path).expanduser()
        if not top.exists():
            raise CannotShip(f"Cannot upload {str(path)!r}: there is no such file or folder in {base}")
        for source, name in _walked(top, _place(top, target, base)):
            if source.is_dir():
                folders.append(name)
                continue
            total += source.stat().st_size
            if total > limit:
                raise CannotShip(
                    f"Cannot upload {str(path)!r}: with {name} it comes to {in_words(total)}, more than the "
                    f"{in_words(limit)} that may go. Upload fewer files, read them from shared storage (an fsspec URL "
                    "such as s3://… works on the nodes), or allow it: `mesh.upload(…, limit='2GB')`, "
                    "`%%mesh --ship-limit 2GB`"
                )
            files[name] = SentFile(name, _content(source, str(path)), os.access(source, os.X_OK))
    return Uploads(tuple(files.values()), tuple(folders))


def _place(top: Path, target: PurePosixPath | None, base: Path) -> PurePosixPath:
    whole = Path(os.path.normpath(base / top))
    if target is not None:
        return target / whole.name
    try:
        inside = whole.relative_to(base)
    except ValueError:
        return PurePosixPath(whole.name)
    return PurePosixPath(inside.as_posix())


def _target_folder(to: str) -> PurePosixPath:
    path = PurePosixPath(to.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or (path.parts and ":" in path.parts[0]):
        raise CannotShip(f"Cannot upload to {to!r}: give a folder below the run's working directory, without '..'")
    return path


def _walked(top: Path, place: PurePosixPath) -> Iterator[tuple[Path, str]]:
    """Yield files, and folders that are empty, with their places; sorted, so that the same tree reads the same."""
    if not top.is_dir():
        yield top, str(place)
        return
    root = top.resolve()
    seen = {root}
    waiting = [(top, place)]
    while waiting:
        folder, here = waiting.pop()
        entries = sorted(entry for entry in folder.iterdir() if entry.name not in SKIPPED)
        if not entries and str(here) != ".":
            yield folder, str(here)
        for entry in entries:
            real = entry.resolve()
            if entry.is_symlink():
                if not real.is_relative_to(root):
                    raise CannotShip(f"Cannot upload {str(entry)!r}: the link leads out of {str(top)!r}, to {real}")
                if not real.exists() or (real.is_dir() and (real in seen or folder.resolve().is_relative_to(real))):
                    raise CannotShip(f"Cannot upload {str(entry)!r}: the link leads in a circle or nowhere")
            if real.is_dir():
                seen.add(real)
                waiting.append((entry, here / entry.name))
            else:
                yield entry, str(here / entry.name)


def _content(source: Path, given: str) -> bytes:
    kind = source.stat().st_mode
    if not stat.S_ISREG(kind):
        raise CannotShip(f"Cannot upload {given!r}: {source} is a device, pipe or socket, and only files travel")
    try:
        return source.read_bytes()
    except OSError as error:
        raise CannotShip(f"Cannot upload {given!r}: {source} cannot be read ({error.strerror})") from None


def _tree_digest(uploads: Uploads) -> str:
    tree = hashlib.sha256()
    for file in sorted(uploads.files, key=lambda each: each.path):
        tree.update(f"{file.path}\0{file.executable}\0{digest_of(file.content)}\n".encode())
    for folder in sorted(uploads.folders):
        tree.update(f"{folder}/\n".encode())
    return tree.hexdigest()
