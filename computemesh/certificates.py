"""The mesh's certificates: one CA per mesh, short-lived leaves whose role stands in the SAN, and TLS contexts.

A leaf carries the URI ``mesh://<role>/<name>``. The CA decides role and name; what a signing request says of itself
is ignored. TLS checks that a peer's certificate is ours; the role is then checked in the handshake of every context
made here, and again by the role guard.
"""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import NotTrusted

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate, CertificateSigningRequest, GeneralName, Name

BACKDATED = datetime.timedelta(minutes=5)
"""How far a certificate's start lies in the past, so that small clock differences do no harm."""


class Role(StrEnum):
    """Who a certificate speaks for."""

    NODE = "node"
    USER = "user"
    ADMIN = "admin"
    DRIVER = "driver"


@dataclass(frozen=True, slots=True)
class Peer:
    """Whom the other end's certificate names."""

    role: Role
    name: str
    serial: int


def peer_of(certificate: Mapping[str, Any] | None) -> Peer | None:
    """Return whom a certificate as `ssl.SSLSocket.getpeercert` gives it names; None for no mesh certificate."""
    if not certificate:
        return None
    for kind, value in certificate.get("subjectAltName", ()):
        if kind == "URI" and value.startswith("mesh://"):
            role, _, name = value.removeprefix("mesh://").partition("/")
            if role in set(Role) and name:
                return Peer(Role(role), name, int(certificate["serialNumber"], 16))
    return None


# ---------------------------------------------------------------- making


def new_key() -> EllipticCurvePrivateKey:
    """Return a fresh P-256 key."""
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: EllipticCurvePrivateKey) -> bytes:
    """Return `key` as unencrypted PKCS#8; the file's mode protects it."""
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def certificate_pem(certificate: Certificate) -> bytes:
    """Return `certificate` in PEM."""
    from cryptography.hazmat.primitives import serialization

    return certificate.public_bytes(serialization.Encoding.PEM)


def new_request(key: EllipticCurvePrivateKey, name: str) -> bytes:
    """Return a signing request in PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization

    builder = x509.CertificateSigningRequestBuilder().subject_name(_common_name(name))
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def fingerprint(certificate: Certificate) -> str:
    """Return ``sha256:…`` of the public key: what a join command pins."""
    from cryptography.hazmat.primitives import serialization

    spki = certificate.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return "sha256:" + hashlib.sha256(spki).hexdigest()


def _common_name(name: str) -> Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def new_authority(now: datetime.datetime) -> tuple[EllipticCurvePrivateKey, Certificate]:
    """Return key and self-signed certificate of a new mesh, valid for ten years."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    key = new_key()
    name = _common_name("ComputeMesh CA")
    usage = x509.KeyUsage(
        digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + datetime.timedelta(days=3650))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return key, certificate


def sign(
    authority: tuple[EllipticCurvePrivateKey, Certificate],
    request: bytes,
    role: Role,
    name: str,
    addresses: Iterable[str],
    now: datetime.datetime,
    lifetime: datetime.timedelta,
) -> Certificate:
    """Return a certificate for the key in `request`, saying `role` and `name` whatever the request says.

    Raises:
        NotTrusted: the request is not one, or not signed by its own key.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import ExtendedKeyUsageOID

    try:
        asked: CertificateSigningRequest = x509.load_pem_x509_csr(request)
    except ValueError:
        raise NotTrusted("The signing request is not one: ask again with `mesh join` or `mesh login`") from None
    if not asked.is_signature_valid:
        raise NotTrusted("The signing request is not signed by its own key")
    key, authority_certificate = authority
    alternatives: list[GeneralName] = [x509.UniformResourceIdentifier(f"mesh://{role}/{name}")]
    for address in addresses:
        try:
            alternatives.append(x509.IPAddress(ipaddress.ip_address(address)))
        except ValueError:
            alternatives.append(x509.DNSName(address))
    usage = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    return (
        x509.CertificateBuilder()
        .subject_name(_common_name(name))
        .issuer_name(authority_certificate.subject)
        .public_key(asked.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + lifetime)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usage), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )


def lifetime_of(pem: bytes) -> tuple[datetime.datetime, datetime.datetime]:
    """Return from when until when a certificate is valid."""
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate(pem)
    return certificate.not_valid_before_utc, certificate.not_valid_after_utc


# ---------------------------------------------------------------- using


def _check_role(connection: ssl.SSLSocket | ssl.SSLObject) -> None:
    context = connection.context
    expected = context.expected if isinstance(context, MeshContext) else frozenset()
    peer = peer_of(connection.getpeercert())
    if expected and (peer is None or peer.role not in expected):
        whom = f"a {peer.role} named {peer.name}" if peer else "nobody of this mesh"
        raise ssl.SSLCertVerificationError(
            f"expected a certificate of role {'/'.join(sorted(expected))}, got one of {whom}"
        )


class _RoleCheckedSocket(ssl.SSLSocket):
    """Checks in the handshake that the other end has a role that the context expects."""

    def do_handshake(self, block: bool = False) -> None:
        super().do_handshake(block)
        _check_role(self)


class _RoleCheckedObject(ssl.SSLObject):
    """The same for asyncio, which speaks TLS over buffers."""

    def do_handshake(self) -> None:
        super().do_handshake()
        _check_role(self)


class MeshContext(ssl.SSLContext):
    """A TLS context of one identity that picks up a renewed certificate by itself.

    Before each handshake it looks whether the certificate's file has changed, so that agents, workers, the scheduler
    and notebooks that live for weeks need no restart; what is connected stays connected.
    """

    sslsocket_class = _RoleCheckedSocket
    sslobject_class = _RoleCheckedObject
    expected: frozenset[Role] = frozenset()
    _own: tuple[Path, Path] | None = None
    _loaded: int = 0

    @classmethod
    def made(
        cls,
        purpose: ssl._SSLMethod,
        authority: Path,
        certificate: Path,
        key: Path,
        expected: Iterable[Role] = (),
        verify: ssl.VerifyMode = ssl.CERT_REQUIRED,
    ) -> MeshContext:
        """Return a context that trusts `authority` alone; peers are checked by role, not by host name."""
        context = cls(purpose)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = verify
        context.load_verify_locations(cafile=authority)
        context.load_cert_chain(certificate, key)
        context.expected = frozenset(expected)
        context._own = (certificate, key)
        context._loaded = certificate.stat().st_mtime_ns
        return context

    def wrap_socket(self, *args: Any, **kwargs: Any) -> ssl.SSLSocket:
        """Wrap as `ssl.SSLContext` does, with the newest certificate."""
        self._refresh()
        return super().wrap_socket(*args, **kwargs)

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        """Wrap as `ssl.SSLContext` does, with the newest certificate."""
        self._refresh()
        return super().wrap_bio(*args, **kwargs)

    def _refresh(self) -> None:
        if self._own is None:
            return
        certificate, key = self._own
        try:
            changed = certificate.stat().st_mtime_ns
            if changed != self._loaded:
                self.load_cert_chain(certificate, key)
                self._loaded = changed
        except OSError:
            # The files are being replaced (an SSL error is an OSError too): the certificate that is loaded still
            # counts for half of its life, and the next handshake looks again.
            return
