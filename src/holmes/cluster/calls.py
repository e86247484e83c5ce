"""Typed calls of shards: direct calls in one process, or bytes to the nodes of a cluster (`actors.py`).

Ray would serialise every argument and array again for each shard; that is half the cost of an empty call.
Here an argument that all shards are sent is serialised once.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from holmes.cluster.location import Location
from holmes.cluster.manifest import Shards
from holmes.cluster.shard import Shard

R = TypeVar("R")
P = ParamSpec("P")


@dataclass(frozen=True)
class Call(Generic[R]):
    """A method of `Shard`, and its arguments after the digest of the snapshot."""

    method: Callable[..., R]
    arguments: tuple[Any, ...]

    def run(self, shard: Any, digest: str) -> R:
        return self.method(shard, digest, *self.arguments)


def call(method: Callable[Concatenate[Any, str, P], R], *arguments: P.args, **named: P.kwargs) -> Call[R]:
    """A call that mypy checks against the method; arguments are given by position."""
    assert not named
    return Call(method, arguments)


def encode(value: Any) -> bytes:
    return pickle.dumps(value, protocol=5)


def decode(content: bytes) -> Any:
    """What `encode` wrote in another process of the same cluster; never what comes from elsewhere."""
    return pickle.loads(content)


def encode_calls(calls: Mapping[str, Call[R]], digests: Mapping[str, str]) -> tuple[bytes, dict[str, bytes]]:
    """The argument that all shards share, or none, and the rest of each shard's call."""
    firsts = [call.arguments[:1] for call in calls.values()]
    is_shared = bool(firsts) and all(first and first[0] is firsts[0][0] for first in firsts)
    shared = firsts[0] if is_shared else ()
    own = {
        name: encode((digests[name], Call(call.method, call.arguments[len(shared) :])))
        for name, call in calls.items()
    }
    return encode(shared), own


def decode_call(own: bytes, shared: bytes) -> tuple[str, Call[Any]]:
    """The digest of the snapshot and the call, as `encode_calls` was given them."""
    digest, call = decode(own)
    return digest, Call(call.method, (*decode(shared), *call.arguments))


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
    """All shards in this process, called one after the other; `opened` are there already."""

    def __init__(
        self,
        location: Location,
        cache: Path | None = None,
        device: str = "cpu",
        opened: Mapping[str, Shard] | None = None,
    ) -> None:
        self.location, self.device = location, device
        self.cache = None if cache is None else str(cache)
        self._shards = dict(opened or {})

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
