"""The vocabulary of machines: what a node is, what it reports, and how the rest of the house sees it.

All of it is plain frozen data that `msgspec` writes to and reads from JSON, so that the same words travel between
agent, driver, scheduler child, notebook and screen.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Harvest(StrEnum):
    """Whether a machine is lent, as its agent decides from its owner's policy."""

    OWNER = "owner"
    IDLE = "idle"
    LENDING = "lending"
    SUSPENDED = "suspended"
    EVICTING = "evicting"


class Health(StrEnum):
    """Whether a machine is there, as the driver decides from its beats."""

    ALIVE = "alive"
    SUSPECTED = "suspected"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """One GPU of a node; memory in bytes."""

    name: str
    vram: int


@dataclass(frozen=True, slots=True)
class GpuSample:
    """What one GPU was doing; memory in bytes, load in percent, temperature in °C."""

    vram_free: int
    load: float
    temperature: float | None = None


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What a node is; changes only when its agent restarts."""

    name: str
    hostname: str = ""
    os: str = ""
    architecture: str = ""
    python: str = ""
    """Major and minor version, such as ``3.11``: pickles do not cross minors."""
    computemesh: str = ""
    distributed: str = ""
    cores: float = 1.0
    """Cores lent to the mesh; less than the machine has when its owner lends a share."""
    cpus: int = 0
    """Logical processors of the machine."""
    ram: int = 0
    """Bytes of memory lent to the mesh."""
    cpu_model: str = ""
    core_speed: float = 0.0
    """Passes per second of the join benchmark on one core, in millions."""
    gpus: tuple[GpuFacts, ...] = ()
    cuda: tuple[int, int] = (0, 0)
    """Newest CUDA version that the GPU driver supports; (0, 0) without one."""
    site: str = ""
    """Where the machine stands, as a path such as ``london/floor2``."""
    pools: tuple[str, ...] = ()
    dedicated: bool = False
    """No owner to protect: a headless server, or the demo."""
    owner: str = ""
    users: tuple[str, ...] | None = None
    """Whose tasks its owner lets run here; None: everybody's."""
    only_pools: tuple[str, ...] | None = None
    """For which pools' tasks its owner lets it be used; None: any task."""
    only_executors: tuple[str, ...] | None = None
    packages: dict[str, str] | None = None
    """Installed Python packages, normalised name to version; None when unknown."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One second of a node's life. None means that this machine cannot say.

    CPU in percent of the whole machine, memory and disk in bytes, rates in bytes per second.
    """

    time: float
    """Wall clock, for display only."""
    cpu: float = 0.0
    cpu_ours: float = 0.0
    """The part of `cpu` that the mesh's own processes use."""
    ram_free: int = 0
    disk_free: int | None = None
    disk_read: float | None = None
    disk_write: float | None = None
    net_in: float | None = None
    net_out: float | None = None
    gpus: tuple[GpuSample, ...] = ()
    battery: float | None = None
    """Charge in percent; None without a battery."""
    charging: bool | None = None
    """On mains power; None without a battery."""
    temperature: float | None = None
    """Hottest sensor in °C."""
    input_age: float | None = None
    """Seconds since somebody last used keyboard, mouse or terminal."""
    users: tuple[str, ...] = ()
    number: int = 0
    """Counts the samples of one agent's life from 1; by it one that comes twice is known."""
    seconds: float = 0.0
    """How long it covers, by the agent's monotonic clock."""
    lent: bool = False
    """The machine was lent in these seconds, and a worker was there."""

    @property
    def cpu_others(self) -> float:
        """CPU that is not ours, in percent of the machine."""
        return max(0.0, self.cpu - self.cpu_ours)


@dataclass(frozen=True, slots=True)
class Network:
    """What an agent measured between its node and the driver."""

    round_trip: float = 0.0
    """Seconds."""
    throughput: float = 0.0
    """Bits per second; 0 when not measured."""


@dataclass(frozen=True, slots=True)
class Reliability:
    """How past loans of a node ended; counts decay with time, so they are not whole numbers."""

    kept: float = 0.0
    broken: float = 0.0


@dataclass(frozen=True, slots=True)
class Node:
    """A node as the driver knows it now: facts, newest sample, and what was decided about it."""

    facts: NodeFacts
    sample: Sample | None = None
    harvest: Harvest = Harvest.LENDING
    health: Health = Health.ALIVE
    cordoned: bool = False
    draining: bool = False
    network: Network = field(default_factory=Network)
    reliability: Reliability = field(default_factory=Reliability)
    harvest_reason: str = ""
    """Why it is or is not lent, and when that changes, in its agent's words."""
    worker: str = ""
    """Address of its Dask worker; empty while it has none."""
    refused: str = ""
    """Why the node is not admitted, in words; empty when it is."""
    speed: float = 0.0
    """Observed task speed relative to what the benchmark promises; 0 when not observed yet."""

    @property
    def name(self) -> str:
        """The node's name in the mesh."""
        return self.facts.name
