"""Shards as actors of a Ray cluster.

Ray places the replicas of a shard on different nodes with enough memory, notices dead nodes, and restarts
their actors elsewhere. A restarted actor has no shard open. It opens one with the first call that asks for
it, while the other replicas answer (`hedging.py`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import torch

import holmes
from holmes.cluster.connect import check_version, import_ray, nodes_alive, reason_of
from holmes.cluster.hedging import HedgedCalls, Latencies, Replica, Replicas
from holmes.cluster.location import Location
from holmes.cluster.manifest import ShardEntry, Shards
from holmes.cluster.shard import Shard
from holmes.cluster.wire import Call, decode_call, encode
from holmes.errors import HolmesError
from holmes.index.storage.store import IndexStore

R = TypeVar("R")
REPLICAS = 2  # of a shard, if there are as many nodes
CPUS = 0.005  # reserved by a replica: none goes to a head without CPUs, and nodes get equally many
HEDGE_AFTER = 0.5  # seconds, at least, until another replica is called too
PLACEMENT_TIMEOUT = 60.0  # seconds for Ray to find nodes
RELEASE_AFTER = 30.0  # seconds that a snapshot stays open after the next one, for calls under way


class NodeShard(Shard):
    """The class of the actors."""

    def __init__(
        self, location: str, name: str, cache: str | None, device: str, threads: int, version: str
    ) -> None:
        super().__init__(location, name, None if cache is None else str(Path(cache).expanduser()), device)
        self.threads = threads  # its part of the node's cores
        self.version = version  # of Holmes, in the process that calls

    def answer(self, own: bytes, shared: bytes) -> bytes:
        """What one of the methods returns, see `wire.encode_calls`."""
        torch.set_num_threads(self.threads)  # Ray sets it to 1, and threads that start later inherit that
        digest, call = decode_call(own, shared)
        return encode(call.run(self, digest))

    def _store(self, digest: str) -> IndexStore:
        check_version(self.version)
        return super()._store(digest)


class LostError(HolmesError):
    """An actor died with its node or process."""


class RayClient:
    """The shards of one index on a cluster that this process is connected to."""

    def __init__(
        self,
        location: Location,
        *,
        replicas: int | None,
        cache: str | None,
        device: str,
        timeout: float,
        disconnect: bool,
    ) -> None:
        self.location, self.cache, self.device = location, cache, device
        self.replicas = replicas  # of each shard; None: the usual number
        self.timeout = timeout  # seconds for a reply; then the shard is missing in the answer
        self.disconnect = disconnect  # from the cluster when this client is closed
        self._ray = import_ray()
        self._latencies = Latencies()
        self._shards: dict[str, Replicas] = {}
        self._opening: dict[tuple[str, str], list[Any]] = {}  # shard and digest → a reply of each replica
        self._release: threading.Timer | None = None

    def open(self, shards: Shards, timeout: float) -> None:
        """Return when the shards are open; refuse a shard that no replica could open."""
        opening = [reply for replies in self._begin(shards).values() for reply in replies]
        self._ray.wait(opening, num_returns=len(opening), timeout=timeout)
        for name, (opened, pending) in self._progress(shards).items():
            if pending and not opened:
                raise HolmesError(
                    f"{name} was not open within {timeout:.0f} s; are the nodes up, and can they read "
                    f"{self.location}?"
                )

    def prepare(self, shards: Shards) -> bool:
        self._begin(shards)
        try:
            return not any(pending for _, pending in self._progress(shards).values())
        except LostError:  # Ray restarts them; the next call tells them again
            return False

    def _begin(self, shards: Shards) -> dict[str, list[Any]]:
        """Tell all replicas to open these snapshots, once; the replies of each shard."""
        if new := [entry for entry in shards.shards if entry.name not in self._shards]:
            self._shards |= self._start_replicas(new, len(shards.shards))
        for entry in shards.shards:
            if (entry.name, entry.sha256) not in self._opening:
                self._opening[entry.name, entry.sha256] = [
                    replica.actor.open.options(concurrency_group="open").remote(entry.sha256)
                    for replica in self._shards[entry.name].replicas
                ]
        return {entry.name: self._opening[entry.name, entry.sha256] for entry in shards.shards}

    def _progress(self, shards: Shards) -> dict[str, tuple[int, int]]:
        """How many replicas of each shard have the snapshot open, and how many do not say yet."""
        progress = {}
        for entry in shards.shards:
            replies = self._opening[entry.name, entry.sha256]
            done, pending = self._ray.wait(replies, num_returns=len(replies), timeout=0)
            errors = [error for error in map(self._error, done) if error]
            if len(errors) == len(replies):
                del self._opening[entry.name, entry.sha256]  # the next attempt begins again
                raise next((error for error in errors if not isinstance(error, LostError)), errors[0])
            progress[entry.name] = len(done) - len(errors), len(pending)
        return progress

    def _error(self, reply: Any) -> HolmesError | None:
        """Why a replica could not open its shard, if it could not."""
        try:
            self._ray.get(reply)
        except Exception as error:
            died = isinstance(error, self._ray.exceptions.RayActorError) and "creation" not in str(error)
            return LostError(reason_of(error)) if died else HolmesError(reason_of(error))
        return None

    def release_others(self, shards: Shards) -> None:
        self._cancel_release()
        self._release = threading.Timer(RELEASE_AFTER, self._release_now, [shards])
        self._release.daemon = True
        self._release.start()

    def _release_now(self, shards: Shards) -> None:
        wanted = {entry.name: entry.sha256 for entry in shards.shards}
        self._opening = {key: self._opening[key] for key in wanted.items() if key in self._opening}
        for name in [name for name in self._shards if name not in wanted]:
            self._end(self._shards.pop(name))
        for name, digest in wanted.items():
            for replica in self._shards[name].replicas:
                replica.actor.release_others.options(concurrency_group="open").remote([digest])

    def _cancel_release(self) -> None:
        if self._release is not None:
            self._release.cancel()

    def call(self, shards: Shards, calls: Mapping[str, Call[R]]) -> dict[str, R]:
        if not calls:
            return {}
        sample = next(iter(calls.values()))
        late = self._latencies.late_after(sample, HEDGE_AFTER)
        hedged = HedgedCalls(self._shards, shards, calls, self.timeout, late)
        replies = hedged.run()
        self._latencies.record(sample, hedged.seconds)
        return replies

    def close(self) -> None:
        self._cancel_release()
        for replicas in self._shards.values():
            self._end(replicas)
        self._shards = {}
        if self.disconnect:
            self._ray.shutdown()

    def _end(self, replicas: Replicas) -> None:
        with suppress(Exception):  # the cluster may be gone before us
            self._ray.util.remove_placement_group(replicas.group)
            for replica in replicas.replicas:
                self._ray.kill(replica.actor)

    def _start_replicas(self, entries: Sequence[ShardEntry], shards: int) -> dict[str, Replicas]:
        """Actors for the replicas of these shards, of so many in all, which divide the cores."""
        nodes = [node for node in nodes_alive() if node.get("CPU", 0)]
        count = self.replicas or max(1, min(REPLICAS, len(nodes)))
        if len(nodes) < count:
            raise HolmesError(
                f"{count} replicas of a shard need {count} nodes with CPUs, the cluster has {len(nodes)}; "
                f"add nodes, or use --copies {max(1, len(nodes))}."
            )
        on_gpu = self.device.startswith("cuda")
        bundles = {
            entry.name: {"CPU": CPUS, "GPU": 1.0} if on_gpu else {"CPU": CPUS, "memory": max(entry.codes, 1)}
            for entry in entries
        }
        groups = self._reserve(bundles, count)
        if groups is None:
            largest = max(entry.codes for entry in entries) / 2**30
            raise HolmesError(
                f"{len(entries)} shards of up to {largest:.1f} GiB with {count} replicas each do not fit "
                f"into the {'GPUs' if on_gpu else 'memory'} of {len(nodes)} nodes; add nodes, or use fewer "
                "--copies."
            )
        threads = max(1, int(sum(node["CPU"] for node in nodes) / (shards * count)))
        return {
            name: Replicas(
                name,
                groups[name],
                [Replica(self._actor(name, bundle, groups[name], at, threads)) for at in range(count)],
            )
            for name, bundle in bundles.items()
        }

    def _reserve(self, bundles: dict[str, dict[str, float]], count: int) -> dict[str, Any] | None:
        """A placement group for each shard: as many nodes as replicas; None where they do not fit."""
        from ray.util.placement_group import placement_group

        groups = {
            name: placement_group([bundle] * count, strategy="STRICT_SPREAD")
            for name, bundle in bundles.items()
        }
        deadline = time.monotonic() + PLACEMENT_TIMEOUT
        for group in groups.values():
            if not group.wait(max(0.1, deadline - time.monotonic())):
                for other in groups.values():
                    self._ray.util.remove_placement_group(other)
                return None
        return groups

    def _actor(self, name: str, bundle: dict[str, float], group: Any, at: int, threads: int) -> Any:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        # The next snapshot is opened in a concurrency group of its own, so that searches need not wait.
        options = self._ray.remote(concurrency_groups={"open": 1})(NodeShard).options(
            num_cpus=bundle["CPU"],
            num_gpus=bundle.get("GPU", 0),
            memory=bundle.get("memory"),
            max_restarts=-1,
            enable_task_events=False,  # every call in Ray's dashboard: a quarter of what an empty one costs
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, at),
        )
        return options.remote(str(self.location), name, self.cache, self.device, threads, holmes.__version__)
