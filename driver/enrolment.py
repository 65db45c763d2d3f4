"""Decides whether a machine or person may enrol, and under which name. Pure, but for the books it reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from computemesh.certificates import Role
from computemesh.driver_client import Versions
from computemesh.errors import Refused
from computemesh.identity import NAME, NAME_RULE
from computemesh.protocol import typed

from .books import Books
from .tokens import Token, fault_of, split


@dataclass(frozen=True, slots=True)
class Application:
    """What somebody who enrols says."""

    token: str
    request: str
    """Signing request, PEM."""
    time: float
    """The applicant's wall clock."""
    versions: Versions
    name: str = ""
    roles: tuple[Role, ...] = ()
    """The roles that the applicant can use; empty: any."""


@dataclass(frozen=True, slots=True)
class Admission:
    """What was decided: a certificate of this role and name is to be signed."""

    token: Token
    role: Role
    name: str


def read_application(data: Any) -> Application:
    """Read what came over the wire.

    Raises:
        Refused: it is not an application.
    """
    try:
        return typed(data, Application)
    except Exception as error:
        raise Refused(f"The enrolment could not be read: {error}", 400) from None


def mismatch(theirs: Versions, ours: Versions) -> str:
    """Return what differs between two partners' versions and what to do, in words; empty when nothing does."""
    if theirs.python != ours.python:
        return (
            f"Python {theirs.python} there and {ours.python} at the driver do not exchange pickles: "
            f"use Python {ours.python} there"
        )
    for package in ("computemesh", "distributed"):
        here, there = getattr(ours, package), getattr(theirs, package)
        if here != there:
            return f"{package} is {there} there and {here} at the driver: install {package}=={here} there"
    return ""


def judge(application: Application, books: Books, ours: Versions, now: float, address: str, skew: float) -> Admission:
    """Return the admission of `application`, which came from `address`.

    The token is judged first, so that a stranger learns nothing else.

    Raises:
        Refused: with the reason, and the HTTP status that goes with it.
    """
    identifier, secret = split(application.token)
    token = books.tokens.get(identifier)
    fault = fault_of(token, secret, now, address)
    if fault or token is None:
        raise Refused(fault, 403)
    if application.roles and token.role not in application.roles:
        command = "mesh join" if token.role is Role.NODE else "mesh login"
        raise Refused(f"This token is for a {token.role}: use it with `{command}`", 409)
    differs = mismatch(application.versions, ours)
    if differs:
        raise Refused(differs, 426)
    off = application.time - now
    if abs(off) > skew:
        where = "ahead of" if off > 0 else "behind"
        raise Refused(
            f"This machine's clock is {abs(off):.0f} s {where} the driver's; certificates need clocks that agree "
            f"within {skew:.0f} s: set the clock and try again",
            409,
        )
    name = token.name or application.name.strip().lower()
    if not NAME.fullmatch(name):
        raise Refused(
            f"{name!r} is no usable name: {NAME_RULE} (--name NAME)",
            400,
        )
    holder = books.holder_of(name, now)
    # A person may log in on several machines; a node's name is one machine's, and nobody else's.
    if holder is not None and Role.NODE in (holder, token.role):
        whose = "A node" if holder is Role.NODE else f"A {holder}"
        raise Refused(
            f"{whose} named {name!r} is already in the mesh: choose another name (--name for a node), or an "
            f"administrator frees it with `mesh revoke {name}`",
            409,
        )
    return Admission(token, token.role, name)
