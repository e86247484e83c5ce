"""Rate limits per client: a burst of requests, then a steady rate."""

from __future__ import annotations

import time
from collections import OrderedDict

ADDRESSES = 10_000  # clients whose rates are remembered


class Rates:
    """How many requests each client has left; the number grows at a steady rate, up to `burst`."""

    def __init__(self, rate: float, burst: int) -> None:
        self.rate, self.burst = rate, burst
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, client: str, cost: int = 1) -> float:
        """Seconds until this client may ask again; 0 if it may now, which is then counted.

        What costs more than is left is allowed once, and what follows waits until it is paid.
        """
        left, now = self._now_left(client)
        if left < 1:
            return (1 - left) / self.rate
        self._set(client, left - cost, now)
        return 0.0

    def spend(self, client: str, cost: int = 1) -> None:
        """Count what has happened already, also where nothing is left; never more than one burst is owed."""
        left, now = self._now_left(client)
        self._set(client, max(left - cost, float(-self.burst)), now)

    def is_spent(self, client: str) -> bool:
        """Whether this client has to wait; nothing is counted."""
        return self._now_left(client)[0] < 1

    def _now_left(self, client: str) -> tuple[float, float]:
        now = time.monotonic()
        left, since = self._left.get(client, (float(self.burst), now))
        return min(self.burst, left + (now - since) * self.rate), now

    def _set(self, client: str, left: float, now: float) -> None:
        self._left.pop(client, None)
        self._left[client] = left, now
        if len(self._left) > ADDRESSES:
            self._left.popitem(last=False)
