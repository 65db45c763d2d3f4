"""One-time tokens: how they are made, kept and judged. Only a hash is ever stored."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Iterable
from dataclasses import dataclass

from computemesh.certificates import Role


@dataclass(frozen=True, slots=True)
class Token:
    """What the driver remembers of a token; never its secret."""

    identifier: str
    digest: str
    """SHA-256 of the secret: it has 192 random bits, so a slow hash would add nothing."""
    role: Role
    expires: float
    """Seconds since the epoch."""
    uses: int = 1
    """How often it may still be redeemed."""
    name: str = ""
    """Name of the user or node that it is for; empty lets a node choose."""
    networks: tuple[str, ...] = ()
    """Networks it may be redeemed from, such as ``10.0.0.0/8``; empty: from anywhere."""
    pools: tuple[str, ...] = ()
    """Pools that a node joining with it is put into."""


def new_token(
    role: Role, expires: float, uses: int, name: str, networks: Iterable[str], pools: Iterable[str]
) -> tuple[Token, str]:
    """Return what to remember and what to give away (``ID.SECRET``)."""
    identifier, secret = secrets.token_hex(3), secrets.token_urlsafe(24)
    token = Token(identifier, digest_of(secret), role, expires, uses, name, tuple(networks), tuple(pools))
    return token, f"{identifier}.{secret}"


def digest_of(secret: str) -> str:
    """Return the hash that is stored of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


def split(presented: str) -> tuple[str, str]:
    """Return identifier and secret of a presented token."""
    identifier, _, secret = presented.strip().partition(".")
    return identifier, secret


def fault_of(token: Token | None, secret: str, now: float, address: str) -> str:
    """Return why a token may not be redeemed, in words for the person who presents it; empty when it may.

    Of a token whose secret is wrong nothing is said, so that guessing learns nothing.
    """
    if token is None or not hmac.compare_digest(digest_of(secret), token.digest):
        return "This token is not known: copy the whole of it, or ask for a new one"
    if token.uses < 1:
        return f"Token {token.identifier} was used already: ask for a new one"
    if token.expires <= now:
        return f"Token {token.identifier} has expired: ask for a new one"
    if token.networks and not _inside(address, token.networks):
        return f"Token {token.identifier} may not be used from {address}: it is for {', '.join(token.networks)}"
    return ""


def _inside(address: str, networks: Iterable[str]) -> bool:
    place = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(place, ipaddress.IPv6Address) and place.ipv4_mapped:
        place = place.ipv4_mapped
    return any(place in ipaddress.ip_network(network, strict=False) for network in networks)


class RateLimit:
    """A bucket a caller: at most `per_minute` tries, all at once or spread."""

    def __init__(self, per_minute: int) -> None:
        self._most = float(per_minute)
        self._left: dict[str, tuple[float, float]] = {}

    def allows(self, caller: str, now: float) -> bool:
        """Count one try of `caller` at `now` (monotonic seconds) and return whether it may go on."""
        left, since = self._left.get(caller, (self._most, now))
        left = min(self._most, left + (now - since) * self._most / 60)
        allowed = left >= 1
        self._left[caller] = (left - 1 if allowed else left, now)
        if len(self._left) > 10_000:
            # A full bucket says nothing: forgetting it changes no answer and bounds the memory.
            self._left = {key: (rest, at) for key, (rest, at) in self._left.items() if now - at < 60}
        return allowed
