"""Shards as actors on the nodes of a Ray cluster: replicas on different nodes, and a slow one is overtaken.

Ray restarts an actor whose node died on another one. A thread here, the keeper, tells every copy again and
again which states to be ready in, so that a restarted one opens its shard anew. A question goes to one copy,
and after a moment of silence to the next.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import holmes
from holmes.cluster.connect import check_version, import_ray, reason_of
from holmes.cluster.hedging import Asking, Copies, Copy, Pace
from holmes.cluster.locations import Place
from holmes.cluster.manifest import ShardEntry, Shards
from holmes.cluster.shard import Shard
from holmes.cluster.wire import Arguments, sealed, unsealed
from holmes.errors import HolmesError


class NodeShard(Shard):
    """What Ray makes an actor of."""

    def __init__(self, place: str, name: str, cache: str | None, device: str, threads: int) -> None:
        super().__init__(place, name, None if cache is None else str(Path(cache).expanduser()), device)
        self.threads = threads  # its share of the node's cores

    def be_ready(self, states: Sequence[str], version: str) -> list[str]:
        """Open these states and let go of others; return those that are open then, in the order given."""
        check_version(version)
        for digest in states:
            self.hold(digest)
        self.release(states)
        return list(states)

    def answer(self, question: bytes, shared: bytes) -> bytes:
        """What a method answers: named in the question with the state and what only this shard is asked."""
        torch.set_num_threads(self.threads)  # Ray sets it to 1, and threads that start later inherit that
        method, digest, own = unsealed(question)
        return sealed(getattr(self, method)(digest, *unsealed(shared), *own))


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


KEEP_EVERY = 1.0  # seconds between two looks at copies that are all ready
GRACE = 30.0  # seconds that a state stays open after the next has taken its place, for questions under way


class RayFleet:
    """The shards of one index on a cluster that this process is connected to."""

    def __init__(
        self,
        place: Place,
        *,
        copies: int | None = None,
        cache: str | None = None,
        device: str = "cpu",
        patience: float = 5.0,
        overtake: float = 0.5,
        placing: float = 60.0,
        owned: bool = False,
    ) -> None:
        self.place, self.copies, self.cache, self.device = place, copies, cache, device
        self.patience = patience  # seconds for an answer; then the shard counts as missing
        self.overtake = overtake  # seconds, at least, until another copy is asked too
        self.placing = placing  # seconds for Ray to find places for the copies
        self.owned = owned  # whether closing this fleet ends the connection to the cluster
        self._ray = import_ray()
        self._pace = Pace()
        self._shards: dict[str, Copies] = {}
        self._wanted: dict[str, list[str]] = {}  # the states of each shard, the present and the next
        self._leaving: tuple[float, Shards] | None = None  # when all states but these will be let go
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="keeper", daemon=True)
        self._keeper.start()

    def open(self, shards: Shards, timeout: float) -> None:
        """Return when all copies that can be ready are; refuse a shard without a ready copy."""
        self._start(shards)
        self._want(shards)
        deadline = time.monotonic() + timeout
        while True:
            pending = [
                copies
                for entry in shards.shards
                if len((copies := self._shards[entry.name]).ready(entry.sha256)) < len(copies.copies)
            ]
            if not pending:
                return
            late = time.monotonic() > deadline
            if late or all(copy.fault for copies in pending for copy in copies.copies if not copy.held):
                self._refuse_faults(shards)
                if late:
                    raise HolmesError(
                        f"{pending[0].name} was not ready within {timeout:.0f} s; are the nodes up, and can "
                        f"they read {self.place}?"
                    )
                return
            time.sleep(0.02)

    def ready(self, shards: Shards) -> bool:
        self._start(shards)
        self._want(shards)
        self._refuse_faults(shards)
        for entry in shards.shards:
            copies = self._shards[entry.name]
            ready = copies.ready(entry.sha256)
            if not ready or any(copy.held and copy not in ready for copy in copies.copies):
                return False
        return True

    def settle(self, shards: Shards) -> None:
        """Let other states go soon; questions under way are still answered in the state they began in."""
        with self._lock:
            self._leaving = time.monotonic() + GRACE, shards

    def _let_go(self) -> None:
        with self._lock:
            if self._leaving is None or time.monotonic() < self._leaving[0]:
                return
            shards, self._leaving = self._leaving[1], None
            self._wanted = {entry.name: [entry.sha256] for entry in shards.shards}
            gone = [self._shards.pop(name) for name in list(self._shards) if name not in self._wanted]
        for copies in gone:
            self._end(copies)

    def _want(self, shards: Shards) -> None:
        with self._lock:
            for entry in shards.shards:
                states = self._wanted.setdefault(entry.name, [])
                if entry.sha256 not in states:
                    states.append(entry.sha256)
                    for copy in self._shards[entry.name].copies:
                        copy.fault = ""

    def _refuse_faults(self, shards: Shards) -> None:
        for entry in shards.shards:
            copies = self._shards[entry.name]
            faults = list(copies.faults())
            if not copies.ready(entry.sha256) and len(faults) == len(copies.copies):
                raise HolmesError(faults[0])

    def ask(
        self,
        shards: Shards,
        method: str,
        calls: Mapping[str, Arguments],
        meanwhile: Callable[[], None] | None = None,
    ) -> dict[str, Any]:
        sample = next(iter(calls.values()), ())
        late = self._pace.slow(method, sample, self.overtake)
        question = Asking(self._shards, shards, method, calls, self.patience, late)
        replies = question.replies(meanwhile)
        self._pace.note(method, sample, question.seconds)
        return replies

    def _start(self, shards: Shards) -> None:
        """Actors for all shards that have none yet."""
        new = [entry for entry in shards.shards if entry.name not in self._shards]
        if new:
            order = Order(str(self.place), self.cache, self.device, self.copies, len(shards.shards))
            started = place_copies(new, order, self.placing)
            with self._lock:
                self._shards.update(started)

    def close(self) -> None:
        self._closing.set()
        self._keeper.join()
        for copies in self._shards.values():
            self._end(copies)
        self._shards = {}
        if self.owned:
            self._ray.shutdown()

    def _end(self, copies: Copies) -> None:
        with suppress(Exception):  # the cluster may be gone before us
            self._ray.util.remove_placement_group(copies.group)
            for copy in copies.copies:
                self._ray.kill(copy.actor)

    def _keep(self) -> None:
        """Tell every copy which states to be ready in, and hear in which it is."""
        while not self._closing.wait(KEEP_EVERY if self._is_settled() else 0.05):
            self._let_go()
            with self._lock:
                every = [
                    (copy, tuple(self._wanted.get(name, ())))
                    for name, copies in self._shards.items()
                    for copy in copies.copies
                ]
            for copy, states in every:
                with suppress(Exception):  # the cluster may be away for a moment
                    self._look_at(copy, states)

    def _is_settled(self) -> bool:
        with self._lock:
            return all(
                copy.held >= set(self._wanted.get(name, ()))
                for name, copies in self._shards.items()
                for copy in copies.copies
            )

    def _look_at(self, copy: Copy, states: tuple[str, ...]) -> None:
        self._forget_slowness(copy)
        if copy.holding is not None:
            if not self._ray.wait([copy.holding], timeout=0)[0]:
                return
            answer, copy.holding = copy.holding, None
            try:
                copy.held, copy.fault = frozenset(self._ray.get(answer)), ""
            except Exception as error:
                lost = isinstance(error, self._ray.exceptions.RayActorError)
                copy.held = frozenset() if lost else copy.held
                copy.fault = "" if lost and "creation" not in str(error) else reason_of(error)
        if states:
            call = copy.actor.be_ready.options(concurrency_group="keep")
            copy.holding = call.remote(list(states), holmes.__version__)

    def _forget_slowness(self, copy: Copy) -> None:
        """Forget that a copy was slow once it has given the answers it owed."""
        if copy.overdue:
            _, copy.overdue = self._ray.wait(copy.overdue, num_returns=len(copy.overdue), timeout=0)
