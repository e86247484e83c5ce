"""How long answers usually take: a copy is slow only if it takes far longer than that."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np

from holmes.cluster.letters import Arguments

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
