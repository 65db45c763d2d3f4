"""Keeps a long-lived kernel's certificate fresh, unattended."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable

from computemesh.errors import DriverError
from computemesh.identity import Identity

logger = logging.getLogger("computemesh.kernel")

CHECK_SECONDS = 600.0


class Renewal:
    """A daemon thread that renews `identity` when half of its life is over.

    Connections pick the new certificate up by themselves. Several notebooks share one identity: whichever comes
    first renews it, the others find that it is not due.
    """

    def __init__(
        self,
        identity: Identity,
        renew: Callable[[Identity], object] | None = None,
        every: float = CHECK_SECONDS,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._identity = identity
        self._renew = renew
        self._every = every
        self._now = now
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="computemesh-renewal", daemon=True)

    def start(self) -> None:
        """Start checking."""
        self._thread.start()

    def stop(self) -> None:
        """Stop checking; returns at once."""
        self._stop.set()

    def check(self) -> None:
        """Renew if it is time."""
        if self._identity.delegated and self._renew is None:
            # Lent to the task that this process belongs to, which asks again in time.
            return
        try:
            if self._identity.renewal_due(self._now()):
                if self._renew is None:
                    from computemesh.driver_client import renew

                    renew(self._identity)
                else:
                    self._renew(self._identity)
        except (DriverError, OSError, ValueError) as error:
            # The old certificate still counts for the other half of its life; the next check tries again.
            logger.warning("The mesh certificate could not be renewed yet: %s", error)

    def _run(self) -> None:
        # Kernels started together should not all ask in the same second.
        while not self._stop.wait(self._every * random.uniform(0.5, 1.0)):
            self.check()
