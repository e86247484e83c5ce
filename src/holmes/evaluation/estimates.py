"""Figures with bootstrap intervals: the videos are drawn anew, with all their queries.

Q queries, B weightings of a bootstrap, V videos
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

LEVEL = 0.95  # the coverage of every interval


@dataclass(frozen=True)
class Estimate:
    """A figure with its bootstrap interval."""

    value: float
    low: float
    high: float

    def bounds(self) -> list[float | None]:
        return [finite(self.low), finite(self.high)]

    def to_json(self) -> dict[str, float | None]:
        """Null where a figure does not exist, such as the AUROC of queries that are all answered."""
        return {name: finite(value) for name, value in asdict(self).items()}


def finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def bootstrap_counts(video_Q: ArrayLike, repeats: int, seed: int = 0) -> Counts:
    """Weights: row 0 counts every query once; each further row draws the videos anew, with all their queries.

    The queries of one video succeed and fail together: drawing queries would make intervals too narrow.
    """
    names, video_Q = np.unique(np.asarray(video_Q), return_inverse=True)
    drawn_BV = np.random.default_rng(seed).multinomial(
        len(names), np.full(len(names), 1 / len(names)), size=repeats
    )
    return np.concatenate([np.ones((1, len(video_Q)), np.int64), drawn_BV[:, video_Q]])


def estimate(values_B: Floats) -> Estimate:
    """Row 0 is the value, the others are its spread; rows in which the figure does not exist are left out."""
    spread = values_B[1:][np.isfinite(values_B[1:])]
    if len(spread) == 0:
        return Estimate(float(values_B[0]), float("nan"), float("nan"))
    low, high = np.quantile(spread, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(float(values_B[0]), float(low), float(high))
