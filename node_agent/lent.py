"""What of the machine is lent under a policy: the shares that the owner said at the join, held to the policy's."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from computemesh.node import NodeFacts
from computemesh.policy import Policy

from .share import Share

LEAST_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class Lent:
    """What a worker gets, and what the mesh is told of it."""

    share: Share
    memory: int
    """Bytes."""
    facts: NodeFacts

    @property
    def gpus(self) -> int:
        """How many GPUs are lent."""
        return len(self.facts.gpus)


def held_to(lent: Lent, policy: Policy, total_memory: int) -> Lent:
    """Return `lent` as far as `policy` allows it; a GPU is lent whole or not at all."""
    part = max(LEAST_SHARE, min(lent.share.share, policy.cpu / 100))
    threads = min(lent.share.threads, max(1, math.ceil(part * lent.share.cores)))
    share = replace(lent.share, share=part, threads=threads)
    memory = min(lent.memory, int(total_memory * policy.ram / 100))
    gpus = lent.facts.gpus[: math.floor(len(lent.facts.gpus) * policy.gpu / 100)]
    core_speed = lent.facts.core_speed * share.thread_speed / lent.share.thread_speed
    facts = replace(lent.facts, cores=float(threads), ram=memory, core_speed=core_speed, gpus=gpus)
    return Lent(share, memory, facts)
