"""A queue in which clients take turns: whoever has been served least comes next (fair queueing).

What a client has been served is a sum of costs. A client that was away does not save up turns: it starts
where the client stood that was served last.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from holmes.errors import HolmesError

Item = TypeVar("Item")
REMEMBERED = 10_000  # clients whose share is known


class BusyError(HolmesError):
    """More is waiting than can be done soon."""


@dataclass
class _Client(Generic[Item]):
    served: float
    waiting: deque[tuple[Item, float]] = field(default_factory=deque)  # with its cost


class Turns(Generic[Item]):
    """At most `most` items wait."""

    def __init__(self, most: int) -> None:
        self.most, self._count, self._now = most, 0, 0.0
        self._clients: dict[str, _Client[Item]] = {}

    def __len__(self) -> int:
        return self._count

    def put(self, client: str, item: Item, cost: float) -> Item | None:
        """Let `item` wait. In a full queue the client with most items loses its newest, which is returned."""
        dropped = None
        if self._count >= self.most:
            longest = max(self._clients.values(), key=lambda each: len(each.waiting), default=None)
            own = self._clients.get(client)
            if longest is None or len(longest.waiting) <= (len(own.waiting) if own else 0) + 1:
                raise BusyError("too many searches are waiting; try again in a moment.")
            dropped, _ = longest.waiting.pop()
            self._count -= 1
        if client not in self._clients:
            self._forget()
            self._clients[client] = _Client(self._now)
        entry = self._clients[client]
        if not entry.waiting:
            entry.served = max(entry.served, self._now)
        entry.waiting.append((item, cost))
        self._count += 1
        return dropped

    def take(
        self,
        most: int = 1,
        most_cost: float = float("inf"),
        alike: Callable[[Item, Item], bool] = lambda first, other: True,
        overhead: float = 0.0,
    ) -> list[Item]:
        """The next items, all alike to the first; `overhead` is what they cost together besides."""
        taken: list[Item] = []
        owners: list[_Client[Item]] = []
        spent = 0.0
        active = [each for each in self._clients.values() if each.waiting]
        while active and len(taken) < most:
            each = min(active, key=lambda one: one.served)
            item, cost = each.waiting[0]
            if taken and (spent + cost > most_cost or not alike(taken[0], item)):
                active.remove(each)
                continue
            each.waiting.popleft()
            self._now = max(self._now, each.served)
            each.served += cost
            spent += cost
            taken.append(item)
            owners.append(each)
            if not each.waiting:
                active.remove(each)
        for owner in owners:
            owner.served += overhead / len(owners)
        self._count -= len(taken)
        return taken

    def _forget(self) -> None:
        if len(self._clients) >= REMEMBERED:
            self._clients = {name: each for name, each in self._clients.items() if each.waiting}
