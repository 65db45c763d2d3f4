"""Who gets a certificate, who keeps it, and who is turned away: the driver's part that enrols, renews and revokes."""

from __future__ import annotations

import datetime
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from computemesh import config
from computemesh.certificates import Peer, Role
from computemesh.driver_client import own_versions
from computemesh.errors import NotTrusted, Refused
from computemesh.identity import NAME, NAME_RULE
from computemesh.protocol import DelegateAnswer, DelegateRequest, plain

from .authority import Authority, Granted
from .books import Books, Record
from .enrolment import judge, read_application
from .tokens import RateLimit, new_token

LOCAL_ADMIN = "admin"
RESERVED = frozenset({"driver", LOCAL_ADMIN})
"""Names of the identities that the driver makes for itself."""


@dataclass(frozen=True)
class RightsSettings:
    """What certificates are made of."""

    name: str
    """The driver's own."""
    address: str
    """``host:port`` of the driver."""
    authority: Authority
    certificate_lifetime: datetime.timedelta
    clock_skew: float
    """Seconds."""
    enrol_per_minute: int


class Rights:
    """Certificates and tokens of one mesh.

    `record` writes into the journal; `renew_own` signs the driver's own certificates anew where due or denied; `wall`
    gives seconds since the epoch, `clock` monotonic seconds.
    """

    def __init__(
        self,
        settings: RightsSettings,
        books: Books,
        record: Callable[..., Record],
        renew_own: Callable[[datetime.datetime, frozenset[int]], list[tuple[Granted, Role, str]]],
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings, self._books, self._record = settings, books, record
        self._renew_own = renew_own
        self._wall, self._clock = wall, clock
        self._limit = RateLimit(settings.enrol_per_minute)
        self._versions = own_versions()

    def enrol(self, data: Any, address: str) -> dict[str, str]:
        """Trade a token for a certificate.

        Raises:
            Refused: with the reason.
        """
        if not self._limit.allows(address, self._clock()):
            raise Refused("Too many enrolments from this address: wait a minute", 429)
        application = read_application(data)
        try:
            admission = judge(
                application, self._books, self._versions, self._wall(), address, self._settings.clock_skew
            )
        except Refused as refusal:
            self._record("enrolment-refused", f"Enrolment from {address} refused: {refusal}", address=address)
            raise
        role, name = admission.role, admission.name
        granted = self._sign(application.request, role, name, address)
        # The use is on disk before the certificate leaves: a crash in between costs a token, never grants two.
        self._record(
            "token-used",
            f"Token {admission.token.identifier} was used by {name}",
            identifier=admission.token.identifier,
        )
        self._issued(granted, role, name, f"Certificate for {role} {name}, from {address}")
        if role is Role.NODE:
            pools = list(admission.token.pools)
            self._record("node-enrolled", f"{name} joined from {address}", name, address=address, pools=pools)
        else:
            self._record("user-enrolled", f"{role} {name} logged in from {address}", role=role, name=name)
        return {"role": role, "name": name, "certificate": granted.certificate.decode()}

    def renew(self, peer: Peer, data: Any, address: str) -> dict[str, str]:
        """Sign a new certificate for a peer whose present one still counts."""
        request = data.get("request") if isinstance(data, dict) else None
        if not isinstance(request, str):
            raise Refused("A renewal needs a signing request", 400)
        issued = self._books.certificates.get(peer.serial)
        if issued is not None and issued.delegated:
            raise Refused("This certificate was lent to a task for an hour: the task asks for another", 403)
        granted = self._sign(request, peer.role, peer.name, address)
        self._issued(granted, peer.role, peer.name, f"Certificate for {peer.role} {peer.name}, from {address}")
        return {"certificate": granted.certificate.decode()}

    def delegate(self, asked: DelegateRequest) -> DelegateAnswer:
        """Sign a certificate of a user for a task of theirs; the scheduler vouches for whose task it is."""
        if self._books.holder_of(asked.user, self._wall()) not in (Role.USER, Role.ADMIN):
            return DelegateAnswer(number=asked.number, error=f"{asked.user} is not in this mesh any more")
        lifetime = datetime.timedelta(seconds=config.seconds("driver.delegation-lifetime"))
        try:
            granted = self._sign(asked.request, Role.USER, asked.user, "", lifetime)
        except Refused as refusal:
            return DelegateAnswer(number=asked.number, error=str(refusal))
        text = f"Certificate of {asked.user} for the task {asked.key} on {asked.node}"
        self._issued(granted, Role.USER, asked.user, text, delegated=True)
        return DelegateAnswer(number=asked.number, certificate=granted.certificate.decode(), serial=str(granted.serial))

    def _sign(
        self, request: str, role: Role, name: str, address: str, lifetime: datetime.timedelta | None = None
    ) -> Granted:
        now = datetime.datetime.fromtimestamp(self._wall(), datetime.UTC)
        addresses = [address] if address else []
        try:
            return self._settings.authority.grant(
                request.encode(), role, name, addresses, now, lifetime or self._settings.certificate_lifetime
            )
        except NotTrusted as error:
            raise Refused(str(error), 400) from None

    def _issued(self, granted: Granted, role: Role, name: str, text: str, delegated: bool = False) -> None:
        self._record(
            "certificate-issued",
            text,
            name if role is Role.NODE else "",
            serial=str(granted.serial), role=role, name=name, expires=granted.expires, delegated=delegated,
        )  # fmt: skip

    def took_over(self, granted: Iterable[tuple[Granted, Role, str]]) -> None:
        """Note certificates that the driver signed for itself and its administrator."""
        for one, role, name in granted:
            self._issued(one, role, name, f"Certificate for {role} {name}, from this machine")

    def renew_own(self) -> None:
        """Sign the driver's own certificates anew where that is due, or where they were denied."""
        now = datetime.datetime.fromtimestamp(self._wall(), datetime.UTC)
        self.took_over(self._renew_own(now, frozenset(self._books.denied)))

    def create_token(
        self, role: Role, lifetime: float, uses: int, name: str, networks: Iterable[str], pools: Iterable[str]
    ) -> dict[str, Any]:
        """Make a token; the secret is in the answer and nowhere else."""
        if name and not NAME.fullmatch(name):
            raise Refused(f"{name!r} is no usable name: {NAME_RULE}", 400)
        if name in RESERVED:
            raise Refused(f"The name {name!r} is the driver's own: choose another", 409)
        if role is not Role.NODE and not name:
            name = f"{role}-{secrets.token_hex(3)}"
        token, secret = new_token(role, self._wall() + lifetime, uses, name, networks, pools)
        self._record("token-created", f"Token {token.identifier} for a {role} was made", token=plain(token))
        address = self._settings.address
        return {"token": secret, "identifier": token.identifier, "expires": token.expires, "address": address}

    def revoke_token(self, identifier: str) -> None:
        """Make a token worthless.

        Raises:
            Refused: it is not known.
        """
        if identifier not in self._books.tokens:
            raise Refused(f"No token {identifier!r} is known: `mesh token list` shows them", 404)
        self._record("token-revoked", f"Token {identifier} was revoked", identifier=identifier)

    def deny(self, name: str, by: str) -> tuple[int, ...]:
        """Turn all certificates of `name` away from now on and return their serial numbers.

        Raises:
            Refused: nobody of that name holds a certificate that counts.
        """
        serials = self._books.serials_of(name, self._wall())
        if name == self._settings.name or not serials:
            raise Refused(f"Nobody named {name!r} holds a certificate that counts: see `mesh nodes`", 404)
        self._record("certificates-denied", f"{name} was revoked by {by}", serials=[str(serial) for serial in serials])
        self.renew_own()
        return serials

    def trusted(self, peer: Peer | None) -> Peer:
        """Return `peer` if its certificate counts.

        Raises:
            NotTrusted: it has none, or it was revoked.
        """
        if peer is None:
            raise NotTrusted("This needs a certificate of the mesh: join or log in first")
        if peer.serial in self._books.denied:
            raise NotTrusted(f"The certificate of {peer.name} was revoked: ask your administrator for a new token")
        return peer
