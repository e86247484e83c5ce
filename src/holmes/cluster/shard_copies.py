"""The copies of one shard, each an actor on another node: which are ready, which are slow, whom to ask."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any


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
