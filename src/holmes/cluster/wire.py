"""Questions and answers as bytes, which Ray hands on as they are.

It takes anything else apart, argument by argument and array by array, once for every shard; that is half the
cost of an empty call.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

Arguments = tuple[Any, ...]  # what a shard's method is called with, after the digest of the state


def sealed(value: Any) -> bytes:
    return pickle.dumps(value, protocol=5)


def unsealed(letter: bytes) -> Any:
    """What another process of the same cluster has sealed. Never call it with what comes from elsewhere."""
    return pickle.loads(letter)


def shared_and_own(calls: Mapping[str, Arguments]) -> tuple[Arguments, dict[str, Arguments]]:
    """What all shards are asked alike, to be sealed only once: the first of their arguments, or nothing."""
    first = next(iter(calls.values()), ())[:1]
    if not first or any(not own or own[0] is not first[0] for own in calls.values()):
        return (), dict(calls)
    return first, {name: own[1:] for name, own in calls.items()}
