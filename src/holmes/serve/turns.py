"""A fair queue: the client that has been served least comes next.

What a client has been served is a sum of costs. A client that was away does not save up turns: it starts
where the client stood that was served last. The connections of one client take turns in the same way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from holmes.errors import HolmesError

Item = TypeVar("Item")
REMEMBERED = 10_000  # clients whose share is known
CONNECTIONS = 200  # of a client, after which those that are no longer needed are forgotten


class BusyError(HolmesError):
    """More is waiting than can be done soon."""


class Caller(NamedTuple):
    """Who waits: a client, by which limits are counted, and one of its connections."""

    client: str
    connection: int = 0


@dataclass
class _Connection(Generic[Item]):
    served: float
    waiting: deque[tuple[Item, float]] = field(default_factory=deque)  # with its cost


@dataclass
class _Client(Generic[Item]):
    served: float
    now: float = 0.0  # where the connection stood that was served last
    waiting: int = 0
    connections: dict[int, _Connection[Item]] = field(default_factory=dict)

    def put(self, number: int, item: Item, cost: float) -> None:
        if number not in self.connections:
            self._forget()
        connection = self.connections.setdefault(number, _Connection(self.now))
        if not connection.waiting:
            connection.served = max(connection.served, self.now)
        connection.waiting.append((item, cost))
        self.waiting += 1

    def next(self) -> _Connection[Item]:
        """The connection that was served least; of several the one whose next item costs least."""
        waiting = (each for each in self.connections.values() if each.waiting)
        return min(waiting, key=lambda each: (each.served, each.waiting[0][1]))

    def take(self) -> None:
        connection = self.next()
        _, cost = connection.waiting.popleft()
        self.now = max(self.now, connection.served)
        connection.served += cost
        self.served += cost
        self.waiting -= 1

    def drop(self) -> Item:
        """The newest item of the connection with most."""
        item, _ = max(self.connections.values(), key=lambda each: len(each.waiting)).waiting.pop()
        self.waiting -= 1
        return item

    def _forget(self) -> None:
        if len(self.connections) >= CONNECTIONS:
            kept = {n: each for n, each in self.connections.items() if each.waiting or each.served > self.now}
            self.connections = kept


class Turns(Generic[Item]):
    """At most `most` items wait."""

    def __init__(self, most: int) -> None:
        self.most, self._count, self._now = most, 0, 0.0
        self._clients: dict[str, _Client[Item]] = {}

    def __len__(self) -> int:
        return self._count

    def put(self, caller: Caller, item: Item, cost: float) -> Item | None:
        """Let `item` wait. In a full queue the client with most items loses its newest, which is returned."""
        dropped = None
        if self._count >= self.most:
            longest = max(self._clients.values(), key=lambda each: each.waiting, default=None)
            own = self._clients.get(caller.client)
            if longest is None or longest.waiting <= (own.waiting if own else 0) + 1:
                raise BusyError("too many searches are waiting; try again in a moment.")
            dropped = longest.drop()
            self._count -= 1
        if caller.client not in self._clients:
            self._forget()
            self._clients[caller.client] = _Client(self._now)
        client = self._clients[caller.client]
        if not client.waiting:
            client.served = max(client.served, self._now)
        client.put(caller.connection, item, cost)
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
            each = min(active, key=lambda one: (one.served, one.next().waiting[0][1]))
            item, cost = each.next().waiting[0]
            if taken and (spent + cost > most_cost or not alike(taken[0], item)):
                active.remove(each)
                continue
            self._now = max(self._now, each.served)
            each.take()
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
