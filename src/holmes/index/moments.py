"""Where in a video: windows grown around the peaks of the similarity along its timeline.

A position is worth its similarity less a threshold between the video's background and its peak. The moment is
the window around the peak that is worth most: it bridges a dip when what lies beyond makes up for it, and one
number decides how far it reaches.

F positions along the timeline
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Timeline = NDArray[np.floating]

REACH = 0.5  # the threshold's place between background (0) and peak (1)
FURTHER = 0.7  # a further moment's peak must lie at least here
MOST = 5  # moments of one video
BACKGROUND = 0.5  # quantile of the similarities


@dataclass(frozen=True)
class Moment:
    """Seconds `start` to `end` of a video, and the similarity at their best point."""

    start: float
    end: float
    score: float


def grow_moments(
    similarity_F: Timeline,
    spans_F2: Timeline,
    *,
    reach: float = REACH,
    further: float = FURTHER,
    most: int = MOST,
) -> tuple[Moment, ...]:
    """The best moment first, then others that do not overlap it, each less similar than the one before.

    `spans_F2` are the seconds each position covers, in order of time.
    """
    background, peak = float(np.quantile(similarity_F, BACKGROUND)), float(similarity_F.max())
    worth_F = (similarity_F - (background + reach * (peak - background))) * (spans_F2[:, 1] - spans_F2[:, 0])
    least = background + further * (peak - background)
    free_F = np.ones(len(similarity_F), bool)
    moments: list[Moment] = []
    while len(moments) < most and free_F.any():
        best = int(np.where(free_F, similarity_F, -np.inf).argmax())
        if moments and similarity_F[best] < least:
            break
        first, last = _grow(np.where(free_F, worth_F, -np.inf), best)
        free_F[first : last + 1] = False
        moments.append(Moment(float(spans_F2[first, 0]), float(spans_F2[last, 1]), float(similarity_F[best])))
    return tuple(moments)


def _grow(worth_F: Timeline, best: int) -> tuple[int, int]:
    """The window around `best` that is worth most, the longest among equals: a flat video is one moment."""
    before_F, after_F = np.cumsum(worth_F[best::-1]), np.cumsum(worth_F[best:])
    return best - _last_argmax(before_F), best + _last_argmax(after_F)


def _last_argmax(values_F: Timeline) -> int:
    return len(values_F) - 1 - int(values_F[::-1].argmax())
