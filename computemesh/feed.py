"""What a screen is told of the mesh: a snapshot of all nodes, then what is different, as rows ready to be shown.

One WebSocket carries it from the driver to whoever may watch, and from there to the browser. Nothing secret is in it:
no addresses, owners, file paths or package lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from .node import Harvest, Health
from .protocol import Message

FEED_VERSION = 1
"""Grows when an older screen could misread a message."""


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One node as a screen shows it."""

    name: str
    site: str = ""
    pools: tuple[str, ...] = ()
    health: Health = Health.DEAD
    harvest: Harvest = Harvest.IDLE
    cordoned: bool = False
    draining: bool = False
    worker: bool = False
    """Whether it has a Dask worker."""
    reasons: tuple[str, ...] = ()
    """Why it is given no work, in words; empty when it is."""
    cores: float = 0.0
    ram: int = 0
    """Bytes lent to the mesh."""
    ram_free: int | None = None
    """Bytes free on the machine, to a tenth of a gigabyte."""
    gpus: tuple[str, ...] = ()
    load: int | None = None
    """CPU in percent of the machine."""
    gpu_load: int | None = None
    """The busiest GPU's load in percent."""
    tasks: int | None = None
    """Tasks that run there now; None while the scheduler does not say."""


@dataclass(frozen=True, slots=True)
class Headline:
    """The whole mesh in one line. Cores, memory in bytes and GPUs are those of the healthy nodes."""

    nodes: int = 0
    healthy: int = 0
    busy: int = 0
    """Healthy nodes that run tasks."""
    offline: int = 0
    cores: float = 0.0
    ram: int = 0
    gpus: int = 0
    running: int | None = None
    waiting: int | None = None
    """Tasks that wait for a free or fitting node; None, as `running`, while the scheduler does not say."""


class FeedSnapshot(Message, frozen=True, kw_only=True, tag="snapshot"):
    """All that there is; replaces what was known."""

    version: int
    headline: Headline
    nodes: tuple[NodeRow, ...]


class FeedDelta(Message, frozen=True, kw_only=True, tag="delta"):
    """What is different since the last message."""

    headline: Headline | None = None
    nodes: tuple[NodeRow, ...] = ()
    """Nodes that are new or look otherwise now, whole."""
    gone: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything is different."""
        return bool(self.headline or self.nodes or self.gone)


class FeedNotice(Message, frozen=True, kw_only=True, tag="notice"):
    """From the Jupyter server alone: why there is nothing to show just now.

    `kind` is ``connecting``, ``no-mesh``, ``unreachable`` or ``refused``; `text` says it to the person, and what to do.
    """

    kind: str
    text: str


FromDriver = FeedSnapshot | FeedDelta


@dataclass(frozen=True, slots=True)
class Picture:
    """The mesh at one moment."""

    headline: Headline = Headline()
    nodes: Mapping[str, NodeRow] = field(default_factory=dict)

    def snapshot(self) -> FeedSnapshot:
        """Return the message that says all of it."""
        return FeedSnapshot(version=FEED_VERSION, headline=self.headline, nodes=tuple(self.nodes.values()))


def picture_of(rows: Iterable[NodeRow], waiting: int | None) -> Picture:
    """Return the picture that `rows` make, summed up in its headline."""
    nodes = {row.name: row for row in rows}
    healthy = [row for row in nodes.values() if row.health is Health.ALIVE]
    counts = [row.tasks for row in healthy if row.tasks is not None]
    headline = Headline(
        nodes=len(nodes),
        healthy=len(healthy),
        busy=sum(count > 0 for count in counts),
        offline=len(nodes) - len(healthy),
        cores=sum(row.cores for row in healthy),
        ram=sum(row.ram for row in healthy),
        gpus=sum(len(row.gpus) for row in healthy),
        running=None if waiting is None else sum(counts),
        waiting=waiting,
    )
    return Picture(headline, nodes)


def difference(before: Picture, now: Picture) -> FeedDelta:
    """Return what leads from one picture to another."""
    return FeedDelta(
        headline=None if now.headline == before.headline else now.headline,
        nodes=tuple(row for name, row in now.nodes.items() if before.nodes.get(name) != row),
        gone=tuple(sorted(before.nodes.keys() - now.nodes.keys())),
    )


def picture_after(picture: Picture, message: FeedSnapshot | FeedDelta) -> Picture:
    """Return the picture that `message` makes of `picture`."""
    if isinstance(message, FeedSnapshot):
        return Picture(message.headline, {row.name: row for row in message.nodes})
    kept = {name: row for name, row in picture.nodes.items() if name not in message.gone}
    return Picture(message.headline or picture.headline, {**kept, **{row.name: row for row in message.nodes}})
