"""Hedged calls: one replica of each shard is called, and another one if the first fails or is late.

Ray restarts actors and reports those that died. It has no calls that go to whichever replica replies first:
a hanging node would hold up every answer until its health checks fail.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Generic, TypeVar

import numpy as np

from holmes.cluster.connect import import_ray, reason_of
from holmes.cluster.manifest import Shards
from holmes.cluster.shard import NotOpenError
from holmes.cluster.wire import Call, decode, encode_calls
from holmes.errors import HolmesError

R = TypeVar("R")
RETRY_AFTER = 1.0  # seconds until a replica whose call failed is called first again
RETRY_ALONE = 0.1  # seconds until a shard is called again if all its replicas failed
LARGE = 2**16  # bytes: a larger argument that all shards share is stored once, not sent to each


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
        cause = getattr(error, "cause", None)
        if isinstance(cause, HolmesError) and not isinstance(cause, NotOpenError):
            raise HolmesError(reason_of(error)) from None  # every other replica would say the same
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
