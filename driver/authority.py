"""The mesh's CA on the driver's disk: made at the first start, then used to sign what enrolment and renewal grant."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

from computemesh.certificates import (
    Role,
    certificate_pem,
    fingerprint,
    key_pem,
    new_authority,
    new_key,
    new_request,
    sign,
)
from computemesh.errors import NotTrusted
from computemesh.identity import Identity, load_identity, save_identity, write_private

DRIVER_LIFETIME = datetime.timedelta(days=365)
ADMIN_LIFETIME = datetime.timedelta(days=90)


@dataclass(frozen=True)
class Granted:
    """A certificate that was just signed."""

    certificate: bytes
    """PEM."""
    serial: int
    expires: float
    """Seconds since the epoch."""


@dataclass(frozen=True)
class Authority:
    """The CA's key and certificate."""

    key: EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def pem(self) -> bytes:
        """The CA's certificate."""
        return certificate_pem(self.certificate)

    @property
    def pin(self) -> str:
        """What a join command names: ``sha256:…`` of the CA's public key."""
        return fingerprint(self.certificate)

    def grant(
        self,
        request: bytes,
        role: Role,
        name: str,
        addresses: Iterable[str],
        now: datetime.datetime,
        lifetime: datetime.timedelta,
    ) -> Granted:
        """Sign `request` for `role` and `name`.

        Raises:
            NotTrusted: the request is not usable.
        """
        signed = sign((self.key, self.certificate), request, role, name, addresses, now, lifetime)
        return Granted(certificate_pem(signed), signed.serial_number, signed.not_valid_after_utc.timestamp())


def open_authority(folder: Path, now: datetime.datetime) -> Authority:
    """Return the CA kept in `folder`, making it at the first start.

    Raises:
        NotTrusted: its files are there but cannot be used.
    """
    key_file, certificate_file = folder / "authority.key", folder / "authority.crt"
    if not key_file.exists() and not certificate_file.exists():
        key, certificate = new_authority(now)
        write_private(key_file, key_pem(key))
        write_private(certificate_file, certificate_pem(certificate))
        return Authority(key, certificate)
    try:
        loaded = serialization.load_pem_private_key(key_file.read_bytes(), None)
        certificate = x509.load_pem_x509_certificate(certificate_file.read_bytes())
    except (OSError, ValueError) as error:
        raise NotTrusted(
            f"The mesh's CA in {folder} cannot be used ({error}): restore both authority files from a backup; "
            "without them every node would have to join a new mesh"
        ) from None
    if not isinstance(loaded, EllipticCurvePrivateKey) or loaded.public_key() != certificate.public_key():
        raise NotTrusted(f"In {folder}, authority.key is not the key of authority.crt: restore both from one backup")
    return Authority(loaded, certificate)


def own_identity(
    authority: Authority,
    folder: Path,
    role: Role,
    name: str,
    driver: str,
    hosts: Iterable[str],
    now: datetime.datetime,
    denied: frozenset[int] = frozenset(),
) -> tuple[Identity, Granted | None]:
    """Return the driver's own identity of `role` in `folder`, signed anew at half of its life or when it is `denied`.

    The second value is what was granted, None when the stored certificate still serves.
    """
    if (folder / "identity.json").exists():
        identity = load_identity(folder)
        stored = x509.load_pem_x509_certificate(identity.certificate.read_bytes())
        current = identity.driver == driver and identity.role is role and stored.serial_number not in denied
        if current and not identity.renewal_due(now.timestamp()):
            return identity, None
    key = new_key()
    lifetime = DRIVER_LIFETIME if role is Role.DRIVER else ADMIN_LIFETIME
    granted = authority.grant(new_request(key, name), role, name, hosts, now, lifetime)
    identity = Identity(folder, role, name, driver)
    # The driver shows its CA after its own certificate, so that a joiner can compare it with the pin.
    shown = granted.certificate + (authority.pem if role is Role.DRIVER else b"")
    save_identity(identity, authority.pem, shown, key_pem(key))
    return identity, granted
