"""Where in a video a moment is: windows grown around the peaks of the similarity along its timeline.

A position is worth as much as its similarity lies above the middle between its surroundings and the peak, and
as much as its looks, compared with those at the peak, do the same: a cut to something else ends the moment,
however well the next scene fits. The moment is the window around the peak that is worth most: it bridges a
dip when what lies beyond makes up for it.

N timelines, F positions along a timeline
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

Timeline = NDArray[np.floating]

# Chosen on one half of the spliced msrvtt training videos, with a linear model fitted on the other half.
REACH = 0.35  # the threshold's place between background (0) and peak (1)
FURTHER = 0.7  # a further moment's peak must lie at least here
MOST = 5  # moments of one video
BACKGROUND = 0.25  # quantile of the similarities
SURROUNDINGS = 40.0  # seconds to either side that a moment may reach, and that count as its surroundings
LOOK = 1.0  # seconds to either side that say what the best position looks like
SHORTEST = 1e-6


@dataclass(frozen=True)
class Moment:
    """Seconds `start` to `end` of a video, and the similarity at their best point."""

    start: float
    end: float
    score: float

    def to_dict(self) -> dict[str, float]:
        return asdict(self)


def grow_moments(
    similarity_F: Timeline,
    spans_F2: Timeline,
    rows_FD: Timeline | None = None,
    *,
    reach: float = REACH,
    further: float = FURTHER,
    most: int = MOST,
) -> tuple[Moment, ...]:
    """The best moment first, then others that do not overlap it, each less similar than the one before.

    `spans_F2` are the seconds each position covers, in order of time, and `rows_FD` what is seen there, of
    unit length; without them a moment depends on similarity alone.
    """
    background, peak = background_of(similarity_F), float(similarity_F.max())
    least = background + further * (peak - background)
    free_F = np.ones(len(similarity_F), bool)
    moments: list[Moment] = []
    while len(moments) < most and free_F.any():
        best = int(np.where(free_F, similarity_F, -np.inf).argmax())
        if moments and similarity_F[best] < least:
            break
        if rows_FD is None:
            worth_F = (similarity_F - (background + reach * (peak - background))) * (
                spans_F2[:, 1] - spans_F2[:, 0]
            )
            ((first, last),) = grow_windows(np.where(free_F, worth_F, -np.inf)[None], np.array([best]))
        else:
            first, last = window_around(best, similarity_F, spans_F2, rows_FD, free_F)
        free_F[first : last + 1] = False
        moments.append(Moment(float(spans_F2[first, 0]), float(spans_F2[last, 1]), float(similarity_F[best])))
    return tuple(moments)


def window_around(
    best: int, similarity_F: Timeline, spans_F2: Timeline, rows_FD: Timeline, free_F: NDArray[np.bool_]
) -> tuple[int, int]:
    """First and last position of the moment around `best`, by how well each fits and how alike it looks.

    The moment is looked for in the surroundings; one that fills them is looked for in larger ones.
    """
    middle_F, length_F = spans_F2.mean(axis=1), spans_F2[:, 1] - spans_F2[:, 0]
    away_F = np.abs(middle_F - middle_F[best])
    away_F[best] = 0
    look_D = rows_FD[away_F <= LOOK].mean(axis=0)
    alike_F = rows_FD @ (look_D / max(float(np.linalg.norm(look_D)), SHORTEST))
    reach = SURROUNDINGS
    while True:
        around_F = free_F & (away_F <= reach)
        worth_F = sum(_above_half(value_F, best, around_F) for value_F in (similarity_F, alike_F))
        worth_F = np.where(around_F, worth_F * length_F, -np.inf)
        ((first, last),) = grow_windows(worth_F[None], np.array([best]))
        more_left = first > 0 and free_F[first - 1] and not around_F[first - 1]
        more_right = last + 1 < len(free_F) and free_F[last + 1] and not around_F[last + 1]
        if not (more_left or more_right):
            return int(first), int(last)
        reach *= 2


def _above_half(value_F: Timeline, best: int, around_F: NDArray[np.bool_]) -> Timeline:
    """How far values lie above the middle between background and best, as a share of their distance."""
    background = min(background_of(value_F[around_F]), background_of(value_F))
    height = max(float(value_F[best]) - background, SHORTEST)
    scaled_F: Timeline = np.minimum((value_F - background) / height, 1.0) - 0.5
    return scaled_F


def background_of(value_F: Timeline) -> float:
    """`np.quantile` in a tenth of its time for so few values: an answer needs it a hundred times."""
    ordered_F = np.sort(value_F)
    place = BACKGROUND * (len(ordered_F) - 1)
    low = int(place)
    below, above = float(ordered_F[low]), float(ordered_F[min(low + 1, len(ordered_F) - 1)])
    return below + (above - below) * (place - low)


def best_windows(similarity_NF: Timeline, reach: float = REACH) -> NDArray[np.int64]:
    """First and last position of each timeline's best moment (N × 2); all positions are equally long."""
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
