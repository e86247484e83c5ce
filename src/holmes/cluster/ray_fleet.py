"""Shards as actors on the nodes of a Ray cluster: copies on different nodes, and a slow one is overtaken.

Ray restarts an actor whose node died on another one. A thread here, the keeper, tells every copy again and
again which states to be ready in, so that a restarted one opens its shard anew. A question goes to one copy,
and after a moment of silence to the next.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import holmes
from holmes.cluster.asking import Asking
from holmes.cluster.connect import import_ray, reason_of
from holmes.cluster.letters import Arguments
from holmes.cluster.pace import Pace
from holmes.cluster.places import Place
from holmes.cluster.placing import Order, place_copies
from holmes.cluster.shard_copies import Copies, Copy
from holmes.cluster.shards_manifest import Shards
from holmes.errors import HolmesError

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
