"""Speaks to the driver over HTTPS: enrolment, renewal, and the questions that commands and notebooks ask.

Synchronous on purpose, on the standard library alone: it serves the command line, where start-up counts, the
notebook, and the agent's rare calls from a thread.
"""

from __future__ import annotations

import hmac
import http.client
import json
import platform
import socket
import ssl
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from . import __version__
from .certificates import Role, certificate_pem, fingerprint, key_pem, new_key, new_request
from .errors import DriverError, DriverUnreachable, NotTrusted, Refused
from .identity import Identity, save_identity
from .locks import held

DEFAULT_PORT = 8790
TIMEOUT = 10.0


@dataclass(frozen=True, slots=True)
class Versions:
    """What must match between the partners of a mesh."""

    computemesh: str
    distributed: str
    python: str
    """Major and minor."""


@dataclass(frozen=True, slots=True)
class Status:
    """What the driver says of itself."""

    mesh: str
    """The CA's fingerprint: the mesh's own name."""
    scheduler: str
    """Address of the Dask scheduler; empty while its child is being started."""
    versions: Versions
    scheduler_started: float = 0.0
    """Wall clock of the scheduler child's last start, for display."""
    scheduler_starts: int = 0
    """How often the child was started; a change means that open futures are lost."""


def own_versions() -> Versions:
    """Return the versions of this process's environment."""
    return Versions(__version__, version("distributed"), ".".join(platform.python_version_tuple()[:2]))


def host_and_port(address: str) -> tuple[str, int]:
    """Read ``host``, ``host:port`` or ``[v6]:port``; the default port is the driver's.

    Raises:
        DriverError: the port is none.
    """
    text = address.removeprefix("https://").rstrip("/")
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":")
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    else:
        host, port = text, ""
    if not host or (port and not (port.isdigit() and 0 < int(port) < 65536)):
        raise DriverError(f"{address!r} is no address of a driver: give HOST or HOST:PORT, such as 10.0.0.5:8790")
    return host, int(port or DEFAULT_PORT)


# ---------------------------------------------------------------- one exchange


def explain(error: OSError, host: str, port: int) -> DriverError:
    """Return what a failed connection to `host`:`port` means, and what to do about it."""
    where = f"{host}:{port}"
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = error.verify_message if getattr(error, "verify_message", "") else str(error)
        if "not yet valid" in reason:
            return NotTrusted(
                f"The driver's certificate at {where} is not valid yet: this machine's clock says "
                f"{time.strftime('%Y-%m-%d %H:%M:%S')}; set it and try again"
            )
        if "expired" in reason:
            return NotTrusted(
                f"A certificate in the exchange with {where} has expired ({reason}): check this machine's clock, "
                f"{time.strftime('%Y-%m-%d %H:%M:%S')}, else join or log in again"
            )
        return NotTrusted(f"What answers at {where} is not the driver of this mesh: {reason}")
    if isinstance(error, ssl.SSLError):
        if "ALERT" in str(error.reason or error).upper():
            return NotTrusted(
                f"The driver at {where} turned this machine's certificate away ({error.reason}): it is expired, "
                "revoked or of another mesh; join or log in again with a new token"
            )
        return DriverUnreachable(f"What answers at {where} speaks no TLS ({error.reason}): is it the driver's port?")
    if isinstance(error, ConnectionRefusedError):
        return DriverUnreachable(f"Nobody listens at {where}: is the driver up (`mesh up`) and the port right?")
    if isinstance(error, socket.gaierror):
        return DriverUnreachable(f"The name {host!r} cannot be resolved ({error.strerror}): give an address or fix DNS")
    if isinstance(error, TimeoutError):
        return DriverUnreachable(
            f"No answer from {where} within {TIMEOUT:g} s: is it up, and does a firewall block it?"
        )
    return DriverUnreachable(f"The driver at {where} cannot be reached: {error}")


def _exchange(
    host: str,
    port: int,
    context: ssl.SSLContext,
    method: str,
    path: str,
    body: Any = None,
    timeout: float = TIMEOUT,
) -> Any:
    connection = http.client.HTTPSConnection(host, port, context=context, timeout=timeout)
    try:
        data = None if body is None else json.dumps(body).encode()
        connection.request(method, path, data, {"content-type": "application/json"})
        response = connection.getresponse()
        text = response.read()
    except (OSError, http.client.HTTPException) as error:
        if isinstance(error, http.client.HTTPException):
            raise DriverUnreachable(f"What answers at {host}:{port} is no driver: {error!r}") from None
        raise explain(error, host, port) from None
    finally:
        connection.close()
    return _answer(response.status, text, f"{host}:{port}")


def _answer(status: int, text: bytes, where: str) -> Any:
    try:
        found = json.loads(text) if text else None
    except ValueError:
        raise DriverUnreachable(f"What answers at {where} is no driver: its answer is not JSON") from None
    if status >= 400:
        said = found.get("error") if isinstance(found, dict) else None
        kind = NotTrusted if status == 401 else None
        message = said or f"The driver at {where} answered with status {status}"
        raise kind(message) if kind else Refused(message, status)
    return found


# ---------------------------------------------------------------- enrolment


def pinned_authority(host: str, port: int, pin: str) -> bytes:
    """Fetch the CA certificate that the driver shows and return it in PEM if it is the one that `pin` names.

    Nothing secret is sent before this check has passed.

    Raises:
        NotTrusted: the driver shows another CA.
        DriverUnreachable: nobody answers.
    """
    from cryptography import x509

    if not pin.startswith("sha256:") or len(pin) != len("sha256:") + 64:
        raise NotTrusted(f"--ca {pin!r} is not usable: give sha256: and 64 hex digits, as the join command shows")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host, port), timeout=TIMEOUT) as plain,
            context.wrap_socket(plain) as secured,
        ):
            chain = _shown_chain(secured)
    except OSError as error:
        raise explain(error, host, port) from None
    for shown in chain:
        certificate = x509.load_der_x509_certificate(shown)
        if hmac.compare_digest(fingerprint(certificate), pin.lower()):
            return certificate_pem(certificate)
    raise NotTrusted(
        f"The driver at {host}:{port} is not the one in the join command: its CA differs from --ca {pin[:19]}…; "
        "ask your administrator for a fresh join command"
    )


def _shown_chain(secured: ssl.SSLSocket) -> list[bytes]:
    """Return the certificates that the other end sent, in DER."""
    if hasattr(secured, "get_unverified_chain"):
        return [bytes(shown) for shown in secured.get_unverified_chain()]
    # Python 3.11 and 3.12 have the method on the inner object only.
    inner: Any = secured._sslobj  # type: ignore[attr-defined]
    return [ssl.PEM_cert_to_DER_cert(shown.public_bytes()) for shown in inner.get_unverified_chain()]


def enrol(address: str, pin: str, token: str, folder: Path, name: str = "", roles: Iterable[Role] = ()) -> Identity:
    """Trade a one-time token for a certificate and store the identity in `folder`.

    The token decides the role; `name` is a node's wish, a user's name comes with the token. With `roles`, a token for
    another role is refused before it is used up.

    Raises:
        DriverError: unreachable, not the pinned mesh, or refused with the driver's reason.
    """
    host, port = host_and_port(address)
    authority = pinned_authority(host, port, pin)
    key = new_key()
    context = ssl.create_default_context(cadata=authority.decode())
    context.check_hostname = False
    body = {
        "token": token,
        "name": name,
        "roles": list(roles),
        "request": new_request(key, name or "computemesh").decode(),
        "time": time.time(),
        "versions": _as_dict(own_versions()),
    }
    answer = _exchange(host, port, context, "POST", "/v1/enrol", body)
    identity = Identity(folder, Role(answer["role"]), answer["name"], f"{host}:{port}")
    save_identity(identity, authority, answer["certificate"].encode(), key_pem(key))
    return identity


def renew(identity: Identity) -> Identity:
    """Trade the certificate, while it still counts, for a new one of a new key, in place.

    Several processes may share one identity: one at a time renews it, and the others find it renewed.

    Raises:
        DriverError: unreachable or refused.
    """
    before = identity.certificate.read_bytes()
    with held(identity.folder / "renewal.lock", wait=True):
        if identity.certificate.read_bytes() != before:
            return identity
        key = new_key()
        body = {"request": new_request(key, identity.name).decode()}
        answer = DriverClient(identity).post("/v1/renew", body)
        save_identity(identity, identity.authority.read_bytes(), answer["certificate"].encode(), key_pem(key))
    return identity


def _as_dict(versions: Versions) -> dict[str, str]:
    return {
        "computemesh": versions.computemesh,
        "distributed": versions.distributed,
        "python": versions.python,
    }


# ---------------------------------------------------------------- questions


class DriverClient:
    """Asks the driver as one identity. Every method raises `DriverError` when there is no good answer."""

    def __init__(self, identity: Identity, timeout: float = TIMEOUT) -> None:
        self.identity = identity
        self._timeout = timeout
        self._host, self._port = host_and_port(identity.driver)

    def _context(self) -> ssl.SSLContext:
        # Made afresh each time, so that a renewed certificate is used; it costs less than a millisecond.
        return self.identity.client_context((Role.DRIVER,))

    def get(self, path: str) -> Any:
        """Return the JSON answer to a GET."""
        return _exchange(self._host, self._port, self._context(), "GET", path, timeout=self._timeout)

    def post(self, path: str, body: Mapping[str, Any] | None = None, timeout: float | None = None) -> Any:
        """Return the JSON answer to a POST of a JSON body."""
        wait = self._timeout if timeout is None else timeout
        return _exchange(self._host, self._port, self._context(), "POST", path, body or {}, wait)

    def delete(self, path: str) -> Any:
        """Return the JSON answer to a DELETE."""
        return _exchange(self._host, self._port, self._context(), "DELETE", path, timeout=self._timeout)

    def status(self) -> Status:
        """Return where the scheduler is and which versions the mesh runs."""
        from .protocol import typed

        return typed(self.get("/v1/status"), Status)

    def nodes(self) -> tuple[dict[str, Any], ...]:
        """Return all nodes as plain data: the fields of `Node` plus ``score`` and ``gates`` (words)."""
        return tuple(self.get("/v1/nodes"))

    def why(self, key: str) -> dict[str, Any]:
        """Return the scheduler's explanation of where the task `key` runs, or why nowhere."""
        found: dict[str, Any] = self.post("/v1/why", {"key": key})
        return found

    def follow(self, path: str) -> Iterator[dict[str, Any]]:
        """Yield JSON documents, one a line, for as long as the driver sends them."""
        connection = http.client.HTTPSConnection(self._host, self._port, context=self._context(), timeout=None)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            if response.status >= 400:
                _answer(response.status, response.read(), f"{self._host}:{self._port}")
            while line := response.readline():
                if line.strip():
                    yield json.loads(line)
        except OSError as error:
            raise explain(error, self._host, self._port) from None
        finally:
            connection.close()


def moved(identity: Identity, address: str) -> Identity:
    """Return `identity` pointing at another address of the same driver."""
    host, port = host_and_port(address)
    return replace(identity, driver=f"{host}:{port}")
