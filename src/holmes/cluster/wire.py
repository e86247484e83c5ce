"""Calls of a shard's methods as bytes.

Ray would serialise every argument and array again for each shard; that is half the cost of an empty call.
Here an argument that all shards are sent is serialised once.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

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
