"""The messages that cross between rooms, as typed frozen structures in JSON (never pickle).

Three conversations: agent ↔ driver over a WebSocket, driver ↔ scheduler child over a Unix socket (one JSON document
a line), agent ↔ worker over the worker's standard streams (likewise). Each message carries its name in ``op``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, replace
from typing import Any, TypeVar, cast, get_type_hints

import msgspec

from .errors import DriverError
from .node import Harvest, Network, Node, NodeFacts, Sample

VERSION = 1
"""Grows when an older partner could misread a message; both ends name theirs and refuse another."""

CAPSULE_SIGNAL = "mesh-capsule-signal"
"""Operation on Dask's stream, scheduler → worker: interrupt or kill a task's capsule."""
SECEDE = "mesh-secede"
"""Operation on Dask's stream, scheduler → worker: this task only waits for others from now on."""
SERIES = "mesh-series"
"""Annotation of tasks that may run in one process after another: the runs of one cell."""


class Message(msgspec.Struct, frozen=True, tag_field="op", kw_only=True):
    """Anything on one of the wires."""


# ---------------------------------------------------------------- agent → driver


class Hello(Message, frozen=True, kw_only=True, tag="hello"):
    """First word of an agent on each connection.

    `incarnation` grows with every start of the agent, so that a stale connection of the same node is told apart.
    """

    version: int
    incarnation: int
    facts: NodeFacts


class Beat(Message, frozen=True, kw_only=True, tag="beat"):
    """Every two seconds: that the node is there, and how it was."""

    sequence: int
    samples: tuple[Sample, ...] = ()
    harvest: Harvest = Harvest.LENDING
    reason: str = ""
    """Why it is or is not lent, in one sentence."""
    network: Network = Network()
    worker: str = ""
    """Address of the node's Dask worker, empty while it has none."""


class Report(Message, frozen=True, kw_only=True, tag="report"):
    """Something that happened on the node and belongs into the journal."""

    kind: str
    text: str
    data: dict[str, Any] = {}


class Leaving(Message, frozen=True, kw_only=True, tag="leaving"):
    """The agent goes by plan; its loan ends well."""

    reason: str


AgentMessage = Hello | Beat | Report | Leaving

# ---------------------------------------------------------------- driver → agent


class Welcome(Message, frozen=True, kw_only=True, tag="welcome"):
    """The node is admitted to speak; where its worker registers, and how often to beat."""

    scheduler: str
    """Address of the Dask scheduler, such as ``tls://10.0.0.1:8791``."""
    beat_seconds: float
    denied: tuple[int, ...] = ()
    """Serial numbers of certificates that no longer count."""
    rules: dict[str, dict[str, Any]] = {}
    """The administrator's policy for owners, ``default`` and ``ceiling``, as written."""


class Rules(Message, frozen=True, kw_only=True, tag="rules"):
    """The administrator's policy for owners has changed."""

    rules: dict[str, dict[str, Any]]


class BeatReply(Message, frozen=True, kw_only=True, tag="beat-reply"):
    """Answers a beat; the agent measures the round trip with it."""

    sequence: int
    gates: tuple[str, ...] = ()
    """Why the driver gives the node no tasks, in words; empty when it does."""
    kept: int = 0
    """Up to which beat of this connection the samples are on disk; what is not is sent again after a break."""


class Denied(Message, frozen=True, kw_only=True, tag="denied"):
    """The list of certificates that no longer count has changed."""

    serials: tuple[int, ...]


class Leave(Message, frozen=True, kw_only=True, tag="leave"):
    """The node is to leave the mesh for good (it was revoked)."""

    reason: str


DriverOrder = Welcome | BeatReply | Denied | Rules | Leave

# ---------------------------------------------------------------- driver ↔ scheduler child


class Nodes(Message, frozen=True, kw_only=True, tag="nodes"):
    """Driver → child: all nodes as they are now. Replaces what was known."""

    nodes: tuple[Node, ...]


_STATE = tuple(each for each in fields(Node) if each.name != "facts")
_HINTS = get_type_hints(Node)
NodeState: Any = msgspec.defstruct(
    "NodeState",
    [
        (each.name, _HINTS[each.name], each.default)
        if each.default is not MISSING
        else (each.name, _HINTS[each.name], msgspec.field(default_factory=cast(Any, each.default_factory)))
        for each in _STATE
    ],
    frozen=True,
    omit_defaults=True,
)
"""All of a `Node` but its facts, which are long and hardly ever change."""


class NodesChanged(Message, frozen=True, kw_only=True, tag="nodes-changed"):
    """Driver → child: what is different since the last word of nodes."""

    nodes: tuple[Node, ...] = ()
    """Nodes that are new, or are not what they were."""
    states: dict[str, NodeState] = {}
    """By name, nodes that are what they were and are otherwise now."""
    gone: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything is different."""
        return bool(self.nodes or self.states or self.gone)


def with_measures_later(before: Mapping[str, Node], now: Iterable[Node]) -> list[Node]:
    """Return the nodes of `now`, those that differ in nothing but what was measured as they were `before`.

    On a large mesh some node's sample is new at any moment; told together now and then they cost the scheduler less.
    """
    found = []
    for node in now:
        known = before.get(node.name)
        if known is not None:
            same = replace(known, sample=node.sample, network=node.network, harvest_reason=node.harvest_reason)
            node = known if same == node else node
        found.append(node)
    return found


def nodes_changed(before: Mapping[str, Node], now: Iterable[Node]) -> NodesChanged:
    """Return what leads from the nodes `before`, by name, to those of `now`."""
    whole: list[Node] = []
    states: dict[str, Any] = {}
    names: set[str] = set()
    for node in now:
        names.add(node.name)
        known = before.get(node.name)
        if known is None or known.facts != node.facts:
            whole.append(node)
        elif known != node:
            states[node.name] = NodeState(**{each.name: getattr(node, each.name) for each in _STATE})
    return NodesChanged(nodes=tuple(whole), states=states, gone=tuple(sorted(before.keys() - names)))


def nodes_after(before: Mapping[str, Node], change: NodesChanged) -> list[Node]:
    """Return the nodes that `change` says something new of, as they are now; of one that is not known, nothing."""
    moved = [
        Node(facts=before[name].facts, **{each.name: getattr(state, each.name) for each in _STATE})
        for name, state in change.states.items()
        if name in before
    ]
    return [*change.nodes, *moved]


class DeniedSerials(Message, frozen=True, kw_only=True, tag="denied-serials"):
    """Driver → child: certificates that the role guard turns away."""

    serials: tuple[int, ...]


class Ask(Message, frozen=True, kw_only=True, tag="ask"):
    """Driver → child: a question about the scheduler's state.

    `what` is one of ``why`` (argument: a task's key), ``tasks`` (counts), ``running`` (counts by node), ``nodes``,
    ``drain`` (argument: a node's name), ``placements`` (argument: how many of the newest; answered as a list of key,
    prefix, node, when).
    """

    number: int
    what: str
    argument: str = ""


class Answer(Message, frozen=True, kw_only=True, tag="answer"):
    """Child → driver: the answer to `Ask` of the same number, or why there is none."""

    number: int
    data: dict[str, Any] = {}
    error: str = ""


class DelegateAnswer(Message, frozen=True, kw_only=True, tag="delegated"):
    """Driver → child: the certificate, or why there is none."""

    number: int
    certificate: str = ""
    serial: str = ""
    error: str = ""


class Started(Message, frozen=True, kw_only=True, tag="started"):
    """Child → driver: the scheduler listens."""

    address: str


class SchedulerEvent(Message, frozen=True, kw_only=True, tag="event"):
    """Child → driver: something that belongs into the journal."""

    kind: str
    text: str
    node: str = ""
    data: dict[str, Any] = {}


class DelegateRequest(Message, frozen=True, kw_only=True, tag="delegate"):
    """Child → driver: a task of `user` on `node` asks for a certificate of that user's."""

    number: int
    user: str
    node: str
    key: str
    request: str
    """Signing request, PEM."""


class WorkerSeen(Message, frozen=True, kw_only=True, tag="worker-seen"):
    """Child → driver: a node's worker has registered (or, with `gone`, has left)."""

    node: str
    address: str
    gone: bool = False
    speed: float = 0.0
    """Observed task speed relative to the benchmark's promise; 0 when not observed."""


ToChild = Nodes | NodesChanged | DeniedSerials | Ask | DelegateAnswer
FromChild = Answer | Started | SchedulerEvent | WorkerSeen | DelegateRequest

# ---------------------------------------------------------------- agent ↔ worker


class WorkerReady(Message, frozen=True, kw_only=True, tag="ready"):
    """Worker → agent: it is registered under this address."""

    address: str


class WorkerFailed(Message, frozen=True, kw_only=True, tag="failed"):
    """Worker → agent: it cannot serve, and why."""

    text: str


class WorkerBusy(Message, frozen=True, kw_only=True, tag="busy"):
    """Worker → agent: how many tasks run now, told when it changes and once a second at most."""

    tasks: int


class Held(Message, frozen=True, kw_only=True, tag="held"):
    """Worker → agent: it takes nothing more, and has handed back what it had not begun."""

    handed_back: int


class Hold(Message, frozen=True, kw_only=True, tag="hold"):
    """Agent → worker: it is about to be frozen."""


class GoOn(Message, frozen=True, kw_only=True, tag="go-on"):
    """Agent → worker: it may take tasks again."""


class DeniedToWorker(Message, frozen=True, kw_only=True, tag="denied-serials"):
    """Agent → worker: certificates that its role guard turns away."""

    serials: tuple[int, ...]


class Retire(Message, frozen=True, kw_only=True, tag="retire"):
    """Agent → worker: leave the scheduler in order, then end."""


FromWorker = WorkerReady | WorkerFailed | WorkerBusy | Held | Report
ToWorker = DeniedToWorker | Hold | GoOn | Retire

Kind = TypeVar("Kind")

_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def encode(message: Message) -> bytes:
    """Return `message` as one line of JSON without the line's end."""
    return msgspec.json.encode(message)


def decode(data: bytes | str, kinds: Any) -> Any:
    """Read one message that must be of `kinds`, such as `AgentMessage`.

    Raises:
        DriverError: it is not, with the place that is wrong.
    """
    decoder = _decoders.get(kinds)
    if decoder is None:
        decoder = _decoders[kinds] = msgspec.json.Decoder(kinds)
    try:
        return decoder.decode(data)
    except msgspec.DecodeError as error:
        raise DriverError(f"A message on the wire could not be read: {error}") from None


def plain(value: Any) -> Any:
    """Return frozen data as plain dicts, lists and numbers, for answers and ``--json``."""
    return msgspec.to_builtins(value)


def typed(data: Any, kind: type[Kind]) -> Kind:
    """Return plain data as the frozen type `kind`.

    Raises:
        DriverError: it does not fit, with the place that is wrong.
    """
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise DriverError(f"An answer could not be read as {kind.__name__}: {error}") from None
