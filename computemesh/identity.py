"""Who this machine is in a mesh: a folder with a certificate, its key, the mesh's CA and where the driver is.

    <home>/admin/    made by `mesh up` on the driver's machine, or by `mesh login` with an admin token
    <home>/user/     made by `mesh login`
    <home>/node/     made by `mesh join`
    <home>/driver/   the driver's own: CA, certificate, journal
    <home>/logs/     what each of them wrote

Files are 0600 and replaced atomically, so that a reader never sees half a certificate.
"""

from __future__ import annotations

import json
import os
import re
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .certificates import MeshContext, Role, lifetime_of
from .errors import NoMesh, NotTrusted

HOME_VARIABLE = "COMPUTEMESH_HOME"
NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,61}[a-z0-9])?")
"""What nodes and people may be called: it goes into certificates, addresses and file names."""
NAME_RULE = "use lower-case letters, digits, dots and hyphens, at most 63"


@dataclass(frozen=True, slots=True)
class Identity:
    """One stored identity. `driver` is ``host:port`` of the driver's HTTPS."""

    folder: Path
    role: Role
    name: str
    driver: str
    delegated: bool = False
    """It was lent to a task for an hour and cannot be renewed by whoever uses it."""

    @property
    def authority(self) -> Path:
        """The mesh's CA certificate."""
        return self.folder / "ca.crt"

    @property
    def certificate(self) -> Path:
        """The certificate that names role and name."""
        return self.folder / "own.crt"

    @property
    def key(self) -> Path:
        """The certificate's key, 0600."""
        return self.folder / "own.key"

    def client_context(self, expected: Iterable[Role]) -> MeshContext:
        """Return a TLS context for connections to a server of one of these roles."""
        return MeshContext.made(ssl.PROTOCOL_TLS_CLIENT, self.authority, self.certificate, self.key, expected)

    def server_context(self, expected: Iterable[Role] = (), optional: bool = False) -> MeshContext:
        """Return a TLS context to listen with; `optional` admits peers without a certificate."""
        verify = ssl.CERT_OPTIONAL if optional else ssl.CERT_REQUIRED
        return MeshContext.made(ssl.PROTOCOL_TLS_SERVER, self.authority, self.certificate, self.key, expected, verify)

    def renewal_due(self, now: float) -> bool:
        """Return whether half of the certificate's life is over at `now` (seconds since the epoch)."""
        start, end = (moment.timestamp() for moment in lifetime_of(self.certificate.read_bytes()))
        return now > start + (end - start) / 2


def home_folder(given: str | os.PathLike[str] | None = None) -> Path:
    """Return where ComputeMesh keeps its files: `given`, ``$COMPUTEMESH_HOME``, or the platform's config folder."""
    chosen = given or os.environ.get(HOME_VARIABLE)
    if chosen:
        return Path(chosen).expanduser().absolute()
    import platformdirs

    return platformdirs.user_config_path("computemesh", appauthor=False)


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, atomically and durably."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def save_identity(identity: Identity, authority: bytes, certificate: bytes, key: bytes) -> None:
    """Store an identity; all of it is PEM. The last file written makes it count."""
    write_private(identity.authority, authority)
    write_private(identity.key, key)
    write_private(identity.certificate, certificate)
    about = {"role": identity.role, "name": identity.name, "driver": identity.driver}
    if identity.delegated:
        about["delegated"] = "yes"
    write_private(identity.folder / "identity.json", json.dumps(about).encode())


def load_identity(folder: Path) -> Identity:
    """Read a stored identity.

    Raises:
        NoMesh: there is none in `folder`.
        NotTrusted: its files cannot be used.
    """
    file = folder / "identity.json"
    try:
        about = json.loads(file.read_text("utf-8"))
        return Identity(
            folder, Role(about["role"]), str(about["name"]), str(about["driver"]), bool(about.get("delegated"))
        )
    except FileNotFoundError:
        raise NoMesh(f"No mesh is known in {folder}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NotTrusted(f"{file} cannot be used ({error}): remove {folder} and join or log in again") from None


def find_identity(home: Path) -> Identity:
    """Return the identity that a person uses here: what `mesh login` made, else the driver's administrator.

    Raises:
        NoMesh: neither exists.
    """
    for name in ("user", "admin"):
        if (home / name / "identity.json").exists():
            return load_identity(home / name)
    raise NoMesh(
        f"No mesh is known in {home}: log in with `mesh login HOST --token …` (your administrator makes the token "
        "with `mesh token create --role user`), or start one here with `mesh up`"
    )
