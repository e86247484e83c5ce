"""One query to many shards: each is asked once, and another replica too if the first fails or is slow."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

from holmes.cluster.connect import import_ray, reason_of
from holmes.cluster.manifest import Shards
from holmes.cluster.shard import NotOpenError
from holmes.cluster.wire import Arguments, sealed, shared_and_own, unsealed
from holmes.errors import HolmesError


@dataclass(eq=False)
class Copy:
    """One actor. Ray restarts it elsewhere if its node dies; it then has to be made ready again."""

    actor: Any
    held: frozenset[str] = frozenset()  # the states it is known to be ready in
    holding: Any = None  # the pending answer to the last call to be ready
    fault: str = ""  # why it is not ready, if it said so
    overdue: list[Any] = field(default_factory=list)  # pending answers, after another copy was asked instead


@dataclass(eq=False)
class Copies:
    """The copies of one shard."""

    name: str
    group: Any  # Ray's placement group: keeps them on different nodes
    copies: list[Copy]
    turn: Iterator[int] = field(default_factory=count)

    def in_order(self, digest: str) -> list[Copy]:
        """Whom to ask first: copies that are ready and owe no answer, in turns; then the others."""
        first = next(self.turn) % len(self.copies)
        by_turn = self.copies[first:] + self.copies[:first]
        return sorted(by_turn, key=lambda copy: (digest not in copy.held, bool(copy.overdue)))

    def ready(self, digest: str) -> list[Copy]:
        return [copy for copy in self.copies if digest in copy.held]

    def faults(self) -> Iterable[str]:
        return [copy.fault for copy in self.copies if copy.fault]


REMEMBERED = 32  # answers of each kind
FAR_LONGER = 3.0  # times the median


class Pace:
    """Remembers the seconds of answers, by what was asked and for how many sentences, in powers of two."""

    def __init__(self) -> None:
        self._seconds: dict[tuple[str, int], deque[float]] = {}

    def note(self, method: str, arguments: Arguments, seconds: Iterable[float]) -> None:
        self._seconds.setdefault(_kind(method, arguments), deque(maxlen=REMEMBERED)).extend(seconds)

    def slow(self, method: str, arguments: Arguments, least: float) -> float:
        """The seconds after which an answer is late; `least` where nothing is known."""
        known = self._seconds.get(_kind(method, arguments))
        return max(least, FAR_LONGER * statistics.median(tuple(known))) if known else least


def _kind(method: str, arguments: Arguments) -> tuple[str, int]:
    """What was asked, and for how many sentences: the first thing sent is their arrays, or a list."""
    first: Any = arguments[0] if arguments else ()
    arrays = isinstance(first, tuple) and first and isinstance(first[0], np.ndarray)
    return method, len(first[0] if arrays else first).bit_length()


AGAIN = 0.1  # seconds until a copy that failed is asked again, if there is no other
LARGE = 2**16  # bytes: larger things that all shards are asked are stored once, not sent to each


class Asking:
    """One question to some shards, asked until each has answered or the time is over."""

    def __init__(
        self,
        copies: Mapping[str, Copies],
        shards: Shards,
        method: str,
        calls: Mapping[str, Arguments],
        patience: float,
        overtake: float,
    ) -> None:
        self.copies, self.shards, self.method = copies, shards, method
        self.patience, self.overtake = patience, overtake
        self.ray = import_ray()
        shared, self.own = shared_and_own(calls)
        self.shared: Any = sealed(shared)
        if len(self.shared) > LARGE and len(calls) > 1:
            self.shared = self.ray.put(self.shared)
        self.seconds: list[float] = []  # that answers took
        self.found: dict[str, Any] = {}
        self.left = {  # the copies still to be asked
            name: copies[name].in_order(shards[name].sha256) for name in calls if name in copies
        }
        self.waiting: dict[Any, tuple[str, Copy, float]] = {}  # answer → shard, copy, when it was asked
        self.again: dict[str, float] = {}  # when a shard whose copies all failed is asked again

    def replies(self, meanwhile: Callable[[], None] | None = None) -> dict[str, Any]:
        """What each shard answers; `meanwhile` is done while they are busy."""
        deadline = time.monotonic() + self.patience
        for name in self.left:
            self._send(name)
        if meanwhile is not None:
            meanwhile()
        while len(self.found) < len(self.left) and (now := time.monotonic()) < deadline:
            self._hear(min(deadline, self._next_event(now)) - now)
            self._ask_others(time.monotonic())
        for answer, (_, copy, _) in self.waiting.items():
            self._owes(copy, answer)
        return self.found

    def _send(self, name: str) -> None:
        copy = self.left[name].pop(0)
        question = sealed((self.method, self.shards[name].sha256, self.own[name]))
        answer = copy.actor.answer.remote(question, self.shared)
        self.waiting[answer] = name, copy, time.monotonic()

    def _owes(self, copy: Copy, answer: Any) -> None:
        if answer not in copy.overdue:
            copy.overdue = [*copy.overdue, answer]

    def _next_event(self, now: float) -> float:
        """When the next copy is to be asked, if no answer arrives before."""
        due = [at for name, at in self.again.items() if name not in self.found]
        due += [at + self.overtake for name, _, at in self.waiting.values() if self.left[name]]
        return max(now, min(due, default=now + self.patience))

    def _hear(self, seconds: float) -> None:
        """Wait until every shard that was asked has answered once, or for this many seconds."""
        if not self.waiting:
            time.sleep(max(0.0, seconds))
            return
        open_shards = len({name for name, _, _ in self.waiting.values()})
        done, _ = self.ray.wait(list(self.waiting), num_returns=open_shards, timeout=max(0.0, seconds))
        if not done:
            return
        heard = time.monotonic()
        try:
            values = self.ray.get(done)
        except Exception:  # one of them failed; below each is asked for alone
            values = None
        for at, answer in enumerate(done):
            name, copy, asked = self.waiting.pop(answer)
            try:
                letter = values[at] if values is not None else self.ray.get(answer)
                self.found[name] = unsealed(letter)
                self.seconds.append(heard - asked)
            except Exception as error:
                self._failed(name, copy, error)
        for answer, (name, copy, _) in list(self.waiting.items()):
            if name in self.found:  # another copy was faster
                del self.waiting[answer]
                self._owes(copy, answer)

    def _failed(self, name: str, copy: Copy, error: Exception) -> None:
        cause = getattr(error, "cause", None)
        if isinstance(cause, HolmesError) and not isinstance(cause, NotOpenError):
            raise HolmesError(reason_of(error)) from None  # every other node would say the same
        copy.held = frozenset()  # until the keeper hears from it again
        self.again.setdefault(name, time.monotonic() + (0 if self.left[name] else AGAIN))

    def _ask_others(self, now: float) -> None:
        """Ask another copy where one has failed, or has been silent for a long time."""
        for name, at in list(self.again.items()):
            if name in self.found:
                del self.again[name]
            elif now >= at:
                del self.again[name]
                if not self.left[name]:
                    copies = self.copies.get(name)
                    busy = {id(copy) for _, copy, _ in self.waiting.values()}
                    every = copies.in_order(self.shards[name].sha256) if copies else []
                    self.left[name] = [copy for copy in every if id(copy) not in busy]
                if self.left[name]:
                    self._send(name)
        for answer, (name, copy, at) in list(self.waiting.items()):
            if name not in self.found and now - at >= self.overtake and self.left[name]:
                self._owes(copy, answer)
                self._send(name)
