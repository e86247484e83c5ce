"""Where copies of shards go: on different nodes, where there is memory for what a search reads."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holmes.cluster.connect import import_ray
from holmes.cluster.node import NodeShard
from holmes.cluster.shard_copies import Copies, Copy
from holmes.cluster.shards_manifest import ShardEntry
from holmes.errors import HolmesError

USUAL = 2  # copies of a shard
CPUS = 0.005  # CPUs that a copy reserves: none is placed on a head without CPUs, and nodes get equally many


@dataclass(frozen=True)
class Order:
    """What to start on the nodes."""

    place: str
    cache: str | None
    device: str
    copies: int | None  # None: the usual number, if there are as many nodes
    shards: int  # shards of the whole index, which share the cores


def place_copies(entries: Sequence[ShardEntry], order: Order, timeout: float) -> dict[str, Copies]:
    """An actor for every copy. Ray moves a placement group's actors elsewhere when their node dies."""
    ray = import_ray()
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0)]
    copies = order.copies or max(1, min(USUAL, len(nodes)))
    if len(nodes) < copies:
        raise HolmesError(
            f"{copies} copies of a shard need as many nodes with CPUs, the cluster has {len(nodes)}; add "
            f"nodes, or use --copies {max(1, len(nodes))}."
        )
    on_gpu = order.device.startswith("cuda")
    bundles = {
        entry.name: {"CPU": CPUS, "GPU": 1.0} if on_gpu else {"CPU": CPUS, "memory": max(entry.codes, 1)}
        for entry in entries
    }
    groups = _reserve(ray, bundles, copies, timeout)
    if groups is None:
        largest = max(entry.codes for entry in entries) / 2**30
        raise HolmesError(
            f"{len(entries)} shards of up to {largest:.1f} GiB with {copies} copies each do not fit into the "
            f"{'GPUs' if on_gpu else 'memory'} of {len(nodes)} nodes; add nodes, or use fewer copies."
        )
    threads = max(1, int(sum(node["CPU"] for node in nodes) / (order.shards * copies)))
    return {
        name: Copies(
            name,
            groups[name],
            [Copy(_actor(ray, name, bundle, groups[name], at, order, threads)) for at in range(copies)],
        )
        for name, bundle in bundles.items()
    }


def _reserve(
    ray: Any, bundles: dict[str, dict[str, float]], copies: int, timeout: float
) -> dict[str, Any] | None:
    from ray.util.placement_group import placement_group

    groups = {
        name: placement_group([bundle] * copies, strategy="STRICT_SPREAD") for name, bundle in bundles.items()
    }
    deadline = time.monotonic() + timeout
    for group in groups.values():
        if not group.wait(max(0.1, deadline - time.monotonic())):
            for other in groups.values():
                ray.util.remove_placement_group(other)
            return None
    return groups


def _actor(
    ray: Any, name: str, bundle: dict[str, float], group: Any, at: int, order: Order, threads: int
) -> Any:
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    # Copying the next state runs in a concurrency group of its own, so that searches need not wait.
    options = ray.remote(concurrency_groups={"keep": 1})(NodeShard).options(
        num_cpus=bundle["CPU"],
        num_gpus=bundle.get("GPU", 0),
        memory=bundle.get("memory"),
        max_restarts=-1,
        enable_task_events=False,  # every call in Ray's dashboard: a quarter of what an empty one costs
        scheduling_strategy=PlacementGroupSchedulingStrategy(group, at),
    )
    return options.remote(order.place, name, order.cache, order.device, threads)
