"""Find moments in a video: windows grown around the peaks of the similarity.

1. Start at the best position, judged with its similar-looking surroundings, so that no single frame decides.
2. Rate each position between the background (0) and the best (1): half by similarity, half by its looks.
3. Take the window with the largest sum of ratings above `LOOSE`. It may bridge a dip.
4. Cut it at a clear step down, where another scene begins.
5. Shorten a window that reaches far to one side, so that its middle lies where the evidence is.

N timelines, F positions along a timeline, C positions that a moment may grow from, K neighbours of one
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

Timeline = NDArray[np.floating]

REACH = 0.35  # the threshold's position between background (0) and peak (1), by similarity alone
# The next ones were chosen on held-out training videos and other clips, none reported on: see docs/log.md.
LOOSE = 0.4  # what a position's worth, of similarity and looks, must exceed to add to a moment
CORE = 0.65  # the same for its core
STEP, CLEAR = 0.1, 0.9  # a step between scenes: how much worth, and the share of the spread it must explain
AROUND = 3.0  # seconds, a deviation: how far the surroundings of a position count as evidence
FAR = 9.0  # seconds from which on nothing does
ALIKE = 0.4  # how much less likeness, of 1, lets a neighbour count e times less
SEEDS = 512  # positions that a moment may grow from
FURTHER = 0.7  # a further moment's peak must lie at least here
MOST = 5  # moments of one video
BACKGROUND = 0.25  # quantile of the similarities
SURROUNDINGS = 40.0  # seconds to either side that a moment may reach, and that count as its surroundings
LOOK = 1.0  # seconds to either side that say what the best position looks like
SAMPLE = 256  # positions that say how alike a video usually looks
STILL = 0.02  # cosines nearer than this tell nothing apart: coding and rounding move those of a still picture
SHORTEST = 1e-6
LEAST_SECONDS = 2.0  # of a moment; a shorter one is widened, as far as its video goes
GAP = 1.0  # seconds between moments that are neighbours: one, if they fit about equally well
ABOUT_AS_GOOD = 0.8  # the share of the better one's score
NEARLY_ALL = 0.8  # the share of a video that is all of it
THROUGHOUT = 0.8  # a video fits throughout if its background reaches this share of the peak


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
    most: int = MOST,
) -> tuple[Moment, ...]:
    """The best moment first, then others that do not overlap it, each with less evidence than the one before.

    `spans_F2` are the seconds each position covers, in order of time, and `rows_FD` what is seen there, of
    unit length; without them a moment depends on similarity alone.
    """
    background, peak = background_of(similarity_F), float(similarity_F.max())
    least = background + FURTHER * (peak - background)
    free_F = np.ones(len(similarity_F), bool)
    if rows_FD is None:
        fit_F = np.where(similarity_F >= least, similarity_F, -np.inf)
    else:
        fit_F = evidence_along(similarity_F, spans_F2, rows_FD, least)
    moments: list[Moment] = []
    while len(moments) < most:
        best = int(fit_F.argmax())
        if fit_F[best] == -np.inf:
            break
        if rows_FD is None:
            worth_F = (similarity_F - (background + reach * (peak - background))) * (
                spans_F2[:, 1] - spans_F2[:, 0]
            )
            first, last = grow_window(np.where(free_F, worth_F, -np.inf), best)
        else:
            first, last = window_around(best, similarity_F, spans_F2, rows_FD, free_F)
        free_F[first : last + 1], fit_F[first : last + 1] = False, -np.inf
        score = float(similarity_F[first : last + 1].max())
        moments.append(Moment(float(spans_F2[first, 0]), float(spans_F2[last, 1]), score))
    return tuple(moments)


def shown_moments(similarity_F: Timeline, spans_F2: Timeline, rows_FD: Timeline) -> tuple[Moment, ...]:
    """The moments that a person is shown: neighbours are one, none is too short to be seen, best first.

    A video that fits throughout, or nearly so, is one moment.
    """
    background, peak = background_of(similarity_F), float(similarity_F.max())
    start, end = float(spans_F2[0, 0]), float(spans_F2[-1, 1])
    if background >= THROUGHOUT * peak > 0:
        return (Moment(start, end, peak),)
    found = joined(grow_moments(similarity_F, spans_F2, rows_FD), start, end)
    if sum(moment.end - moment.start for moment in found) >= NEARLY_ALL * (end - start):
        return (Moment(start, end, max(moment.score for moment in found)),)
    return found


def joined(moments: Sequence[Moment], start: float, end: float) -> tuple[Moment, ...]:
    """Moments of a video from `start` to `end`, each widened to `LEAST_SECONDS`, none beside another.

    Neighbours that fit about equally well are one. Of others the better one is left: it leads to the rest.
    """
    groups: list[tuple[int, Moment]] = []  # the rank of the best of each, and the moment that they are
    for rank, moment in sorted(enumerate(moments), key=lambda each: each[1].start):
        missing = max(0.0, LEAST_SECONDS - (moment.end - moment.start)) / 2
        first = max(start, min(moment.start - missing, end - LEAST_SECONDS))
        last = min(end, max(moment.end + missing, start + LEAST_SECONDS))
        found = rank, Moment(first, last, moment.score)
        while groups and found[1].start <= groups[-1][1].end + GAP:
            before = groups.pop()
            low, high = sorted((before[1].score, found[1].score))
            if low >= ABOUT_AS_GOOD * high:
                both = (before[1], found[1])
                whole = Moment(min(one.start for one in both), max(one.end for one in both), high)
                found = min(before[0], found[0]), whole
            else:
                found = min(before, found, key=lambda each: each[0])
        groups.append(found)
    return tuple(moment for _, moment in sorted(groups, key=lambda each: each[0]))


def evidence_along(similarity_F: Timeline, spans_F2: Timeline, rows_FD: Timeline, least: float) -> Timeline:
    """A position's similarity and the mean of what surrounds it and looks like it, half of each.

    Positions less similar than `least` are no beginning of a moment: they have none (-inf).
    """
    seeds_C = np.flatnonzero(similarity_F >= least)
    if len(seeds_C) > SEEDS:
        seeds_C = seeds_C[np.argsort(-similarity_F[seeds_C], kind="stable")[:SEEDS]]
    middle_F = _middle(spans_F2)
    middle_C = middle_F[seeds_C]
    before = seeds_C - middle_F.searchsorted(middle_C - FAR)
    after = middle_F.searchsorted(middle_C + FAR, side="right") - seeds_C
    near_CK = seeds_C[:, None] + np.arange(-before.max(), after.max())
    inside_CK = (near_CK >= 0) & (near_CK < len(middle_F))
    near_CK = near_CK.clip(0, len(middle_F) - 1)
    away_CK = np.abs(middle_F[near_CK] - middle_C[:, None])
    inside_CK &= away_CK <= FAR
    seen_CD = rows_FD[seeds_C]
    likeness_CK = (rows_FD[near_CK] @ seen_CD[:, :, None])[:, :, 0]
    every = max(1, len(rows_FD) // SAMPLE)
    usual_C1 = _backgrounds(seen_CD @ rows_FD[::every].T)
    likeness_CK = np.minimum(1 + (likeness_CK - 1) / np.maximum(1 - usual_C1, STILL), 1)
    weight_CK = np.exp(-0.5 * (away_CK / AROUND) ** 2 + (likeness_CK - 1) / ALIKE) * inside_CK
    evidence_F: Timeline = np.full(len(similarity_F), -np.inf)
    around_C = (weight_CK * similarity_F[near_CK]).sum(axis=1) / weight_CK.sum(axis=1)
    evidence_F[seeds_C] = (similarity_F[seeds_C] + around_C) / 2
    return evidence_F


def window_around(
    best: int, similarity_F: Timeline, spans_F2: Timeline, rows_FD: Timeline, free_F: NDArray[np.bool_]
) -> tuple[int, int]:
    """First and last position of the moment around `best`, by how well each fits and how alike it looks.

    The moment is looked for in the surroundings; one that fills them is looked for in larger ones.
    """
    middle_F, length_F = _middle(spans_F2), spans_F2[:, 1] - spans_F2[:, 0]
    away_F = np.abs(middle_F - middle_F[best])
    away_F[best] = 0
    look_D = rows_FD[away_F <= LOOK].mean(axis=0)
    alike_F = rows_FD @ (look_D / max(float(np.linalg.norm(look_D)), SHORTEST))
    reach = SURROUNDINGS
    while True:
        around_F = free_F & (away_F <= reach)
        worth_F = (_on_the_way(similarity_F, best, around_F) + _on_the_way(alike_F, best, around_F)) / 2
        gain_F = np.where(around_F, (worth_F - LOOSE) * length_F, -np.inf)
        first, last = grow_window(gain_F, best)
        more_left = first > 0 and free_F[first - 1] and not around_F[first - 1]
        more_right = last + 1 < len(free_F) and free_F[last + 1] and not around_F[last + 1]
        if not (more_left or more_right):
            break
        reach *= 2
    first, last = before_steps(worth_F, length_F, first, last, best)
    gain_F = np.where(around_F, (worth_F - CORE) * length_F, -np.inf)
    core_first, core_last = grow_window(gain_F, best)
    return balanced(spans_F2, first, last, max(first, core_first), min(last, core_last))


def before_steps(worth_F: Timeline, length_F: Timeline, first: int, last: int, best: int) -> tuple[int, int]:
    """What is left of a window when everything behind a clear step down from `best` is cut off.

    A step is clear where two levels, one to either side of it, explain nearly all of the window's spread.
    """
    while first < last:
        inside = slice(first, last + 1)
        length, value = length_F[inside], worth_F[inside]
        sums = length * value
        whole, whole_sum = length.sum(), sums.sum()
        left, left_sum = length.cumsum()[:-1], sums.cumsum()[:-1]
        right, right_sum = whole - left, whole_sum - left_sum
        down = left_sum / left - right_sum / right
        explained = down**2 * left * right / whole
        spread = (length * (value - whole_sum / whole) ** 2).sum()
        cuts = np.arange(first + 1, last + 1)  # the first position to the right of each
        down = np.where(cuts <= best, -down, down)
        clear = (down >= STEP) & (explained >= CLEAR * spread)
        if not clear.any():
            break
        cut = int(cuts[np.where(clear, explained, -np.inf).argmax()])
        first, last = (cut, last) if cut <= best else (first, cut - 1)
    return first, last


def balanced(spans_F2: Timeline, first: int, last: int, core_first: int, core_last: int) -> tuple[int, int]:
    """A window cut on its longer side until its middle lies in the middle half of its core."""
    start, end = float(spans_F2[first, 0]), float(spans_F2[last, 1])
    core_start, core_end = float(spans_F2[core_first, 0]), float(spans_F2[core_last, 1])
    quarter = (core_end - core_start) / 4
    earliest, latest = core_start + quarter, core_end - quarter
    if start + end < 2 * earliest:
        first = min(core_first, int(np.searchsorted(spans_F2[:, 0], 2 * earliest - end - SHORTEST)))
    elif start + end > 2 * latest:
        last = max(
            core_last, int(np.searchsorted(spans_F2[:, 1], 2 * latest - start + SHORTEST, side="right")) - 1
        )
    return first, last


def _on_the_way(value_F: Timeline, best: int, around_F: NDArray[np.bool_]) -> Timeline:
    """How far values lie on the way from the background (0) to the best (1)."""
    background = background_of(value_F)
    if not around_F.all():
        background = min(background, background_of(value_F[around_F]))
    if abs(value_F[best] - background) < STILL:
        background = float(value_F[best]) - STILL  # so little tells nothing apart: all lies close to the best
    height = max(float(value_F[best]) - background, SHORTEST)
    scaled_F: Timeline = np.minimum((value_F - background) / height, 1.0)
    return scaled_F


def background_of(value_F: Timeline) -> float:
    """`np.quantile` in a tenth of its time for so few values: an answer needs it a hundred times."""
    ordered_F = np.sort(value_F)
    position = BACKGROUND * (len(ordered_F) - 1)
    low = int(position)
    below, above = float(ordered_F[low]), float(ordered_F[min(low + 1, len(ordered_F) - 1)])
    return below + (above - below) * (position - low)


def _backgrounds(value_CF: Timeline) -> Timeline:
    """`np.quantile` of each row, C × 1, to the last bit."""
    ordered_CF = np.sort(value_CF, axis=1)
    position = BACKGROUND * (ordered_CF.shape[1] - 1)
    low = int(position)
    below_C1, above_C1 = ordered_CF[:, low : low + 1], ordered_CF[:, low + 1 : low + 2]
    if position == low:
        return below_C1
    between_C1, beyond = above_C1 - below_C1, position - low
    nearer_C1: Timeline = (
        below_C1 + between_C1 * beyond if beyond < 0.5 else above_C1 - between_C1 * (1 - beyond)
    )
    return nearer_C1


def _middle(spans_F2: Timeline) -> Timeline:
    middle_F: Timeline = (spans_F2[:, 0] + spans_F2[:, 1]) / 2
    return middle_F


def best_windows(similarity_NF: Timeline) -> NDArray[np.int64]:
    """First and last position of each timeline's best moment (N × 2); all positions are equally long."""
    background_N1 = np.quantile(similarity_NF, BACKGROUND, axis=1, keepdims=True)
    peak_N1 = similarity_NF.max(axis=1, keepdims=True)
    worth_NF = similarity_NF - (background_N1 + REACH * (peak_N1 - background_N1))
    return grow_windows(worth_NF, similarity_NF.argmax(axis=1))


def grow_window(worth_F: Timeline, best: int) -> tuple[int, int]:
    """The window around `best` that is worth most, the longest among equals: a flat video is one moment."""
    before, after = worth_F[best::-1].cumsum(), worth_F[best:].cumsum()
    return int(before[::-1].argmax()), len(worth_F) - 1 - int(after[::-1].argmax())


def grow_windows(worth_NF: Timeline, best_N: NDArray[np.int64]) -> NDArray[np.int64]:
    """`grow_window` of many timelines, N × 2."""
    positions = worth_NF.shape[1]
    offset_NF = np.arange(positions) - best_N[:, None]
    before_NF = np.cumsum(np.where(offset_NF <= 0, worth_NF, 0)[:, ::-1], axis=1)[:, ::-1]
    after_NF = np.cumsum(np.where(offset_NF >= 0, worth_NF, 0), axis=1)
    first_N = np.where(offset_NF <= 0, before_NF, -np.inf).argmax(axis=1)
    last_N = positions - 1 - np.where(offset_NF >= 0, after_NF, -np.inf)[:, ::-1].argmax(axis=1)
    return np.stack([first_N, last_N], axis=1)
