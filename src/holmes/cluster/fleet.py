"""Who answers for the shards. Here they are all open in this process; `ray_fleet.py` has them on nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from holmes.cluster.locations import Place
from holmes.cluster.manifest import Shards
from holmes.cluster.shard import Shard
from holmes.cluster.wire import Arguments


class Fleet(Protocol):
    """Asks shards by name. Every question names the state in which it is to be answered."""

    def ready(self, shards: Shards) -> bool:
        """Begin or continue to make all shards ready in these states; return whether they are."""
        ...

    def settle(self, shards: Shards) -> None:
        """Let other states go: only these will be asked for from now on."""
        ...

    def ask(
        self,
        shards: Shards,
        method: str,
        calls: Mapping[str, Arguments],
        meanwhile: Callable[[], None] | None = None,
    ) -> dict[str, Any]:
        """What each named shard answers to its call; those that do not answer in time are left out.

        `meanwhile` is done while the shards are busy.
        """
        ...

    def close(self) -> None: ...


class LocalFleet:
    """All shards in this process, asked one after the other: for a few shards, and to compare with."""

    def __init__(self, place: Place, cache: Path | None = None, device: str = "cpu") -> None:
        self.place, self.device = place, device
        self.cache = None if cache is None else str(cache)
        self._open: dict[str, Shard] = {}

    def ready(self, shards: Shards) -> bool:
        for entry in shards.shards:
            shard = self._open.setdefault(entry.name, self._shard(entry.name))
            shard.hold(entry.sha256)
        return True

    def settle(self, shards: Shards) -> None:
        names = {entry.name for entry in shards.shards}
        for name in self._open.keys() - names:
            del self._open[name]
        for name, shard in self._open.items():
            shard.release([shards[name].sha256])

    def ask(
        self,
        shards: Shards,
        method: str,
        calls: Mapping[str, Arguments],
        meanwhile: Callable[[], None] | None = None,
    ) -> dict[str, Any]:
        if meanwhile is not None:
            meanwhile()
        return {
            name: getattr(self._open[name], method)(shards[name].sha256, *arguments)
            for name, arguments in calls.items()
        }

    def close(self) -> None:
        self._open.clear()

    def _shard(self, name: str) -> Shard:
        return Shard(str(self.place), name, self.cache, self.device)
