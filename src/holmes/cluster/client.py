"""Who calls the shards: here in this process, on the nodes of a cluster in `actors.py`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, TypeVar

from holmes.cluster.location import Location
from holmes.cluster.manifest import Shards
from holmes.cluster.shard import Shard
from holmes.cluster.wire import Call

R = TypeVar("R")


class ShardClient(Protocol):
    """Calls shards by name. Every call names the snapshot that it is about."""

    def prepare(self, shards: Shards) -> bool:
        """Open all shards in these snapshots, or go on opening them; return whether all are open."""
        ...

    def release_others(self, shards: Shards) -> None:
        """Close all snapshots but these once the calls under way are over."""
        ...

    def call(self, shards: Shards, calls: Mapping[str, Call[R]]) -> dict[str, R]:
        """What each shard returns; shards that do not reply in time are not in the result."""
        ...

    def close(self) -> None: ...


class LocalClient:
    """All shards in this process, called one after the other."""

    def __init__(self, location: Location, cache: Path | None = None, device: str = "cpu") -> None:
        self.location, self.device = location, device
        self.cache = None if cache is None else str(cache)
        self._shards: dict[str, Shard] = {}

    def prepare(self, shards: Shards) -> bool:
        for entry in shards.shards:
            if entry.name not in self._shards:
                self._shards[entry.name] = Shard(str(self.location), entry.name, self.cache, self.device)
            self._shards[entry.name].open(entry.sha256)
        return True

    def release_others(self, shards: Shards) -> None:
        names = {entry.name for entry in shards.shards}
        for name in self._shards.keys() - names:
            del self._shards[name]
        for name, shard in self._shards.items():
            shard.release_others([shards[name].sha256])

    def call(self, shards: Shards, calls: Mapping[str, Call[R]]) -> dict[str, R]:
        return {name: call.run(self._shards[name], shards[name].sha256) for name, call in calls.items()}

    def close(self) -> None:
        self._shards.clear()
