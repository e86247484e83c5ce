"""Questions and answers as bytes, which Ray hands on as they are.

Anything else it takes apart for each shard anew, argument by argument and array by array, at half the cost of
a question that asks for nothing.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

Order = tuple[Any, ...]  # what a method of a shard is called with, after the state


def sealed(value: Any) -> bytes:
    return pickle.dumps(value, protocol=5)


def unsealed(letter: bytes) -> Any:
    """What another process of the same cluster has sealed. Never call it with what comes from elsewhere."""
    return pickle.loads(letter)


def shared_and_own(orders: Mapping[str, Order]) -> tuple[Order, dict[str, Order]]:
    """What all shards are asked alike, sealed only once: the first thing of their orders, or nothing."""
    first = next(iter(orders.values()), ())[:1]
    if not first or any(order[:1] == () or order[0] is not first[0] for order in orders.values()):
        return (), dict(orders)
    return first, {name: order[1:] for name, order in orders.items()}
