"""Shards as Ray actors, with a second call to another replica if one is slow.

Ray places the replicas of a shard on different nodes with enough memory, notices dead nodes, and restarts
their actors elsewhere. A restarted actor has no shard open. It opens one with the first call that asks for
it, while the other replicas answer.

Ray has no calls that go to whichever replica replies first: a hanging node would hold up every answer until
its health checks fail. So one replica of each shard is called, and another one if the first fails or is late.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch

import holmes
from holmes.cluster.calls import Call, decode, decode_call, encode, encode_calls
from holmes.cluster.connect import check_version, import_ray, nodes_alive, our_error, reason_of
from holmes.cluster.location import Location
from holmes.cluster.manifest import ShardEntry, Shards
from holmes.cluster.shard import NotOpenError, Shard
from holmes.errors import HolmesError
from holmes.index.storage.store import IndexStore

R = TypeVar("R")
REPLICAS = 2  # of a shard, if there are as many nodes
CPUS = 0.005  # reserved by a replica: none goes to a head without CPUs, and nodes get equally many
HEDGE_AFTER = 0.5  # seconds, at least, until another replica is called too
PLACEMENT_TIMEOUT = 60.0  # seconds for Ray to find nodes
RELEASE_AFTER = 30.0  # seconds that a snapshot stays open after the next one, for calls under way
RETRY_AFTER = 1.0  # seconds until a replica whose call failed is called first again
RETRY_ALONE = 0.1  # seconds until a shard is called again if all its replicas failed
LARGE = 2**16  # bytes: a larger argument that all shards share is stored once, not sent to each


class NodeShard(Shard):
    """The class of the actors."""

    def __init__(
        self, location: str, name: str, cache: str | None, device: str, threads: int, version: str
    ) -> None:
        super().__init__(location, name, None if cache is None else str(Path(cache).expanduser()), device)
        self.threads = threads  # its part of the node's cores
        self.version = version  # of Holmes, in the process that calls

    def answer(self, own: bytes, shared: bytes) -> bytes:
        """What one of the methods returns, see `encode_calls`."""
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


@dataclass(eq=False)
class Replica:
    """One actor. Ray restarts it on another node if its node dies; it opens its shard with the next call."""

    actor: Any
    unanswered: list[Any] = field(default_factory=list)  # late replies, after another replica was called
    retry_at: float = 0.0  # when it may be called first again
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def is_available(self) -> bool:
        """Whether it has replied to every call, and no call failed within the last second."""
        with self._lock:
            if self.unanswered:
                ray = import_ray()
                replies = self.unanswered
                done, self.unanswered = ray.wait(replies, num_returns=len(replies), timeout=0)
                for reply in done:
                    try:
                        ray.get(reply)
                    except Exception:
                        self.failed()
            return not self.unanswered and time.monotonic() >= self.retry_at

    def is_late(self, reply: Any) -> None:
        """Remember a call that another replica is called for too."""
        with self._lock:
            if reply not in self.unanswered:
                self.unanswered = [*self.unanswered, reply]

    def failed(self) -> None:
        self.retry_at = time.monotonic() + RETRY_AFTER


@dataclass(eq=False)
class Replicas:
    """The replicas of one shard."""

    name: str
    group: Any  # Ray's placement group, which keeps them on different nodes
    replicas: list[Replica]
    turn: Iterator[int] = field(default_factory=count)

    def in_order(self) -> list[Replica]:
        """Whom to call first: available replicas, in turns; then the others."""
        first = next(self.turn) % len(self.replicas)
        by_turn = self.replicas[first:] + self.replicas[:first]
        return sorted(by_turn, key=lambda replica: not replica.is_available())


class Latencies:
    """How long calls take, by method and by number of sentences in powers of two."""

    REMEMBERED = 32  # calls of each kind
    LATE = 3.0  # times the median

    def __init__(self) -> None:
        self._seconds: dict[tuple[str, int], deque[float]] = {}

    def record(self, call: Call[Any], seconds: Iterable[float]) -> None:
        self._seconds.setdefault(_kind(call), deque(maxlen=self.REMEMBERED)).extend(seconds)

    def late_after(self, call: Call[Any], least: float) -> float:
        """The seconds after which a reply is late; `least` where nothing is known."""
        known = self._seconds.get(_kind(call))
        return max(least, self.LATE * statistics.median(tuple(known))) if known else least


def _kind(call: Call[Any]) -> tuple[str, int]:
    """The method, and the size of its first argument: the arrays of sentences, or a list."""
    first: Any = call.arguments[0] if call.arguments else ()
    arrays = isinstance(first, tuple) and first and isinstance(first[0], np.ndarray)
    return call.method.__qualname__, len(first[0] if arrays else first).bit_length()


class HedgedCalls(Generic[R]):
    """Calls of some shards, repeated on other replicas until each shard has replied or the time is over."""

    def __init__(
        self,
        replicas: Mapping[str, Replicas],
        shards: Shards,
        calls: Mapping[str, Call[R]],
        timeout: float,
        hedge_after: float,
    ) -> None:
        self.replicas, self.timeout, self.hedge_after = replicas, timeout, hedge_after
        self.ray = import_ray()
        self.shared: Any
        self.shared, self.own = encode_calls(calls, {name: shards[name].sha256 for name in calls})
        if len(self.shared) > LARGE and len(calls) > 1:
            self.shared = self.ray.put(self.shared)
        self.seconds: list[float] = []  # until replies came
        self.replies: dict[str, R] = {}
        self.untried = {name: replicas[name].in_order() for name in calls if name in replicas}
        self.pending: dict[Any, tuple[str, Replica, float]] = {}  # reply → shard, replica, time of the call
        self.retry_at: dict[str, float] = {}  # when a shard whose call failed is called again

    def run(self) -> dict[str, R]:
        """What each shard returns; those that do not reply in time are not in the result."""
        deadline = time.monotonic() + self.timeout
        for name in self.untried:
            self._call_next(name)
        while len(self.replies) < len(self.untried) and (now := time.monotonic()) < deadline:
            self._receive(min(deadline, self._next_event(now)) - now)
            self._call_others(time.monotonic())
        for reply, (_, replica, _) in self.pending.items():
            replica.is_late(reply)
        return self.replies

    def _call_next(self, name: str) -> None:
        replica = self.untried[name].pop(0)
        reply = replica.actor.answer.remote(self.own[name], self.shared)
        self.pending[reply] = name, replica, time.monotonic()

    def _next_event(self, now: float) -> float:
        """When the next replica is to be called, if no reply arrives before."""
        due = [at for name, at in self.retry_at.items() if name not in self.replies]
        due += [at + self.hedge_after for name, _, at in self.pending.values() if self.untried[name]]
        return max(now, min(due, default=now + self.timeout))

    def _receive(self, seconds: float) -> None:
        """Wait until every shard that was called has replied, or for this many seconds."""
        if not self.pending:
            time.sleep(max(0.0, seconds))
            return
        waiting_for = len({name for name, _, _ in self.pending.values()})
        done, _ = self.ray.wait(list(self.pending), num_returns=waiting_for, timeout=max(0.0, seconds))
        if not done:
            return
        received = time.monotonic()
        try:
            contents = self.ray.get(done)
        except Exception:  # one of them failed; below each is fetched alone
            contents = None
        for at, reply in enumerate(done):
            name, replica, called = self.pending.pop(reply)
            try:
                content = contents[at] if contents is not None else self.ray.get(reply)
                self.replies[name] = decode(content)
                self.seconds.append(received - called)
            except Exception as error:
                self._failed(name, replica, error)
        for reply, (name, replica, _) in list(self.pending.items()):
            if name in self.replies:  # another replica was faster
                del self.pending[reply]
                replica.is_late(reply)

    def _failed(self, name: str, replica: Replica, error: Exception) -> None:
        ours = our_error(error)
        if ours is not None and not isinstance(ours, NotOpenError):
            raise HolmesError(str(ours)) from None  # every other replica would say the same
        replica.failed()
        self.retry_at.setdefault(name, time.monotonic() + (0 if self.untried[name] else RETRY_ALONE))

    def _call_others(self, now: float) -> None:
        """Call another replica where one has failed or is late."""
        for name, at in list(self.retry_at.items()):
            if name in self.replies:
                del self.retry_at[name]
            elif now >= at:
                del self.retry_at[name]
                if not self.untried[name]:
                    busy = {id(replica) for _, replica, _ in self.pending.values()}
                    every = self.replicas[name].in_order() if name in self.replicas else []
                    self.untried[name] = [replica for replica in every if id(replica) not in busy]
                if self.untried[name]:
                    self._call_next(name)
        for reply, (name, replica, at) in list(self.pending.items()):
            if name not in self.replies and now - at >= self.hedge_after and self.untried[name]:
                replica.is_late(reply)
                self._call_next(name)
