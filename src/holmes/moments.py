"""Where in a video: windows grown around the peaks of the similarity along its timeline.

A position is worth its similarity less a threshold between the video's background and its peak. The moment is
the window around the peak that is worth most: it bridges a dip when what lies beyond makes up for it, and one
number decides how far it reaches.

N timelines, F positions along a timeline
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Timeline = NDArray[np.floating]

# Chosen on a half of the spliced msrvtt training videos, with a linear model fitted on the other half.
REACH = 0.35  # the threshold's place between background (0) and peak (1)
FURTHER = 0.7  # a further moment's peak must lie at least here
MOST = 5  # moments of one video
BACKGROUND = 0.25  # quantile of the similarities


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
        ((first, last),) = grow_windows(np.where(free_F, worth_F, -np.inf)[None], np.array([best]))
        free_F[first : last + 1] = False
        moments.append(Moment(float(spans_F2[first, 0]), float(spans_F2[last, 1]), float(similarity_F[best])))
    return tuple(moments)


def best_windows(similarity_NF: Timeline, reach: float = REACH) -> NDArray[np.int64]:
    """First and last position of each timeline's best moment (N × 2); positions last equally long."""
    background_N1 = np.quantile(similarity_NF, BACKGROUND, axis=1, keepdims=True)
    peak_N1 = similarity_NF.max(axis=1, keepdims=True)
    worth_NF = similarity_NF - (background_N1 + reach * (peak_N1 - background_N1))
    return grow_windows(worth_NF, similarity_NF.argmax(axis=1))


def grow_windows(worth_NF: Timeline, best_N: NDArray[np.int64]) -> NDArray[np.int64]:
    """The window around `best` that is worth most, the longest among equals: a flat video is one moment."""
    positions = worth_NF.shape[1]
    offset_NF = np.arange(positions) - best_N[:, None]
    before_NF = np.cumsum(np.where(offset_NF <= 0, worth_NF, 0)[:, ::-1], axis=1)[:, ::-1]
    after_NF = np.cumsum(np.where(offset_NF >= 0, worth_NF, 0), axis=1)
    first_N = np.where(offset_NF <= 0, before_NF, -np.inf).argmax(axis=1)
    last_N = positions - 1 - np.where(offset_NF >= 0, after_NF, -np.inf)[:, ::-1].argmax(axis=1)
    return np.stack([first_N, last_N], axis=1)
