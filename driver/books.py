"""The driver's books: what is true, as a fold over the journal's records.

Every fact that must survive a restart is a record; `Books.apply` is the only place that changes the books, and it is
the same at run time and when a driver reads its journal again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from computemesh.certificates import Role
from computemesh.node import NodeFacts, Reliability
from computemesh.protocol import plain, typed

from .tokens import Token

HALF_LIFE = 30 * 86400.0
"""Seconds after which a loan counts half in a node's reliability."""


@dataclass(frozen=True, slots=True)
class Record:
    """One entry of the journal, which is also what `mesh events` shows."""

    sequence: int
    time: float
    """Wall clock, seconds since the epoch."""
    kind: str
    text: str
    """In words."""
    node: str = ""
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate that the CA signed."""

    role: Role
    name: str
    expires: float
    delegated: bool = False
    """It was lent to a task and cannot be renewed."""


@dataclass(frozen=True, slots=True)
class Enrolled:
    """A node that belongs to the mesh, whether it is here now or not."""

    name: str
    enrolled: float
    address: str = ""
    pools: tuple[str, ...] = ()
    facts: NodeFacts | None = None
    """As it last said."""
    cordoned: bool = False
    draining: bool = False
    reliability: Reliability = field(default_factory=Reliability)
    reliability_at: float = 0.0


class Books:
    """What the journal's records add up to."""

    def __init__(self) -> None:
        self.nodes: dict[str, Enrolled] = {}
        self.tokens: dict[str, Token] = {}
        self.certificates: dict[int, Issued] = {}
        self.denied: set[int] = set()

    def apply(self, record: Record) -> None:
        """Take one record in; a kind that changes nothing is merely an event."""
        change = getattr(self, "_on_" + record.kind.replace("-", "_"), None)
        if change is not None:
            change(record)

    def holder_of(self, name: str, now: float) -> Role | None:
        """Return the role of whoever holds a certificate of this name that still counts."""
        for serial, issued in self.certificates.items():
            if issued.name == name and issued.expires > now and serial not in self.denied:
                return issued.role
        return None

    def serials_of(self, name: str, now: float) -> tuple[int, ...]:
        """Return the certificates of a node, user or admin that still count."""
        return tuple(
            serial
            for serial, issued in self.certificates.items()
            if issued.name == name and issued.expires > now and serial not in self.denied
        )

    def snapshot(self) -> dict[str, Any]:
        """Return all of it as plain data."""
        return {
            "nodes": [plain(node) for node in self.nodes.values()],
            "tokens": [plain(token) for token in self.tokens.values()],
            "certificates": [[str(serial), plain(issued)] for serial, issued in self.certificates.items()],
            "denied": [str(serial) for serial in self.denied],
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Become what `snapshot` says."""
        self.nodes = {node["name"]: typed(node, Enrolled) for node in snapshot["nodes"]}
        self.tokens = {token["identifier"]: typed(token, Token) for token in snapshot["tokens"]}
        self.certificates = {int(serial): typed(issued, Issued) for serial, issued in snapshot["certificates"]}
        self.denied = {int(serial) for serial in snapshot["denied"]}

    # ------------------------------------------------------------ one method a kind of record

    def _on_token_created(self, record: Record) -> None:
        token = typed(record.data["token"], Token)
        # Dead tokens are of no more use than unknown ones; forgetting them here bounds the books.
        self.tokens = {key: kept for key, kept in self.tokens.items() if kept.expires > record.time - 86400}
        self.tokens[token.identifier] = token

    def _on_token_used(self, record: Record) -> None:
        token = self.tokens.get(record.data["identifier"])
        if token is not None:
            self.tokens[token.identifier] = replace(token, uses=token.uses - 1)

    def _on_token_revoked(self, record: Record) -> None:
        self.tokens.pop(record.data["identifier"], None)

    def _on_certificate_issued(self, record: Record) -> None:
        issued = Issued(
            Role(record.data["role"]), record.data["name"], record.data["expires"], bool(record.data.get("delegated"))
        )
        self.certificates = {serial: old for serial, old in self.certificates.items() if old.expires > record.time}
        self.certificates[int(record.data["serial"])] = issued

    def _on_certificates_denied(self, record: Record) -> None:
        self.denied &= set(self.certificates)
        self.denied |= {int(serial) for serial in record.data["serials"]}

    def _on_node_enrolled(self, record: Record) -> None:
        known = self.nodes.get(record.node)
        self.nodes[record.node] = Enrolled(
            record.node,
            record.time,
            record.data.get("address", ""),
            tuple(record.data.get("pools", ())),
            reliability=known.reliability if known else Reliability(),
            reliability_at=known.reliability_at if known else 0.0,
        )

    def _on_node_removed(self, record: Record) -> None:
        self.nodes.pop(record.node, None)

    def _on_node_facts(self, record: Record) -> None:
        self._change(record.node, facts=typed(record.data["facts"], NodeFacts))

    def _on_node_cordoned(self, record: Record) -> None:
        self._change(record.node, cordoned=True, draining=False)

    def _on_node_draining(self, record: Record) -> None:
        self._change(record.node, cordoned=True, draining=True)

    def _on_node_drained(self, record: Record) -> None:
        self._change(record.node, cordoned=True, draining=False)

    def _on_node_uncordoned(self, record: Record) -> None:
        self._change(record.node, cordoned=False, draining=False)

    def _on_loan_ended(self, record: Record) -> None:
        node = self.nodes.get(record.node)
        if node is None:
            return
        faded = 0.5 ** (max(0.0, record.time - node.reliability_at) / HALF_LIFE) if node.reliability_at else 1.0
        kept = bool(record.data["kept"])
        loans = Reliability(
            kept=node.reliability.kept * faded + kept, broken=node.reliability.broken * faded + (not kept)
        )
        self._change(record.node, reliability=loans, reliability_at=record.time)

    def _change(self, name: str, **changes: Any) -> None:
        if name in self.nodes:
            self.nodes[name] = replace(self.nodes[name], **changes)
