"""Bootstrap intervals over videos and seeds, for single figures and paired differences.

The queries of one video succeed and fail together, so videos are drawn, not queries; where there are several
runs, seeds are drawn too. Systems that are compared are measured on the same drawn videos.

S seeds, Q queries, V videos, B draws, K figures
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from holmes.base.files import atomic_file, read_file
from holmes.evaluation.recall import CUTOFFS, recall
from holmes.results import METRICS, Interval, PairedDifference, summary_of

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Ranks = NDArray[np.int64]

LEVEL = 0.95  # the coverage of every interval
REPEATS = 2000
CHANCE = 4.0  # standard errors of the draws' mean that count as chance
FEWEST_VIDEOS = 5  # fewest videos for an interval

LARGEST_RANKS = 512 << 20  # bytes that a file of ranks may have when unpacked


def estimate(values_B: Floats) -> Interval:
    """Row 0 is the value, the others are draws; those in which the figure does not exist are left out.

    Some figures are larger in draws than in the data: gaps of a calibration, for one, never cancel there. The
    interval is moved by that bias, so that it contains its value; it stays within what the figure can be.
    """
    value, drawn = values_B[0], values_B[1:][np.isfinite(values_B[1:])]
    if len(drawn) == 0 or not np.isfinite(value):
        return Interval(finite(value))
    bias = drawn.mean() - value
    if abs(bias) < CHANCE * drawn.std() / np.sqrt(len(drawn)):  # no more than the number of draws explains
        bias = 0.0
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]) - bias
    least = 0.0 if drawn.min() >= 0 else -np.inf
    low, high = max(low, least), min(high, max(drawn.max(), value))
    return Interval(float(value), float(min(low, value)), float(max(high, value)))


def finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def bootstrap_counts(video_Q: ArrayLike, repeats: int, seed: int = 0) -> Counts:
    """How often each query counts, B × Q: in row 0 once; each further row draws videos with replacement."""
    names, video_Q = np.unique(np.asarray(video_Q), return_inverse=True)
    drawn_BV = np.random.default_rng(seed).multinomial(
        len(names), np.full(len(names), 1 / len(names)), size=repeats
    )
    return np.concatenate([np.ones((1, len(video_Q)), np.int64), drawn_BV[:, video_Q]])


@dataclass(frozen=True)
class Draws:
    """Videos and seeds drawn with replacement; draw 0 has everything once."""

    videos_BV: Floats
    video_Q: NDArray[np.int64]
    repeats: int
    seed: int

    def seeds(self, count: int, system: int) -> Floats:
        """The shares of the seeds in each draw, B × S; every system draws its own."""
        generator = np.random.default_rng([self.seed, 1, system])
        drawn_BS = generator.multinomial(count, np.full(count, 1 / count), size=self.repeats) / count
        return np.concatenate([np.full((1, count), 1 / count), drawn_BS])


def draw_videos(video_Q: ArrayLike, repeats: int = REPEATS, seed: int = 0) -> Draws:
    names, video_Q = np.unique(np.asarray(video_Q), return_inverse=True)
    videos = len(names)
    drawn_BV = np.random.default_rng([seed, 0]).multinomial(videos, np.full(videos, 1 / videos), size=repeats)
    return Draws(np.concatenate([np.ones((1, videos)), drawn_BV]), video_Q, repeats, seed)


def drawn_recall(
    rank_SQ: Ranks, draws: Draws, member_Q: NDArray[np.bool_] | None = None, system: int = 0
) -> Floats:
    """R@1 … SumR in percent for every draw, B × K; NaN where a draw has none of the queries.

    Draws from a handful of videos say nothing: for fewer than five, only draw 0 has figures.
    """
    member_Q = np.ones(rank_SQ.shape[1], bool) if member_Q is None else member_Q
    videos = draws.videos_BV.shape[1]
    queries_B = draws.videos_BV @ np.bincount(draws.video_Q[member_Q], minlength=videos)
    weights_BS = draws.seeds(len(rank_SQ), system)
    values = []
    for cutoff in CUTOFFS:
        hits_SV = np.stack(
            [np.bincount(draws.video_Q[member_Q], row[member_Q] <= cutoff, videos) for row in rank_SQ]
        )
        hits_B = ((draws.videos_BV @ hits_SV.T) * weights_BS).sum(1)
        values.append(
            100 * np.divide(hits_B, queries_B, out=np.full_like(hits_B, np.nan), where=queries_B > 0)
        )
    drawn_BK = np.stack([*values, np.sum(values, axis=0)], 1)
    if len(np.unique(draws.video_Q[member_Q])) < FEWEST_VIDEOS:
        drawn_BK[1:] = np.nan
    return drawn_BK


def recall_intervals(
    rank_SQ: Ranks, draws: Draws, member_Q: NDArray[np.bool_] | None = None
) -> dict[str, Interval]:
    """Each figure with the interval in which 95% of the draws lie."""
    drawn_BK = drawn_recall(rank_SQ, draws, member_Q)
    return {name: estimate(drawn_BK[:, k]) for k, name in enumerate(METRICS)}


def over_seeds(
    metrics: Sequence[dict[str, float]],
    rank_SQ: Ranks | None = None,
    video_Q: ArrayLike = (),
) -> dict[str, Interval]:
    """Mean and deviation over seeds, and where the ranks are known the interval over videos and seeds."""
    drawn = {} if rank_SQ is None else recall_intervals(rank_SQ, draw_videos(video_Q))
    figures = {}
    for name in metrics[0]:
        values = [run[name] for run in metrics]
        deviation = statistics.stdev(values) if len(values) > 1 else None
        found = drawn.get(name, Interval(None))
        figures[name] = Interval(statistics.fmean(values), found.low, found.high, deviation)
    return figures


class SavedRanks(NamedTuple):
    """Of a run's queries: the ranks of the right videos, these videos, and the ranks of the best that fit."""

    rank_Q: Ranks
    video_Q: NDArray[np.int64]
    fitting_Q: Ranks | None = None  # None where no further video is known to fit, and for older runs


def saved_summary(
    metrics: Sequence[dict[str, float]], saved: Sequence[SavedRanks | None]
) -> dict[str, dict[str, dict[str, Any]]]:
    """The `metrics` of a setting over its seeds, and `metrics_fitting` where every run knows what fits."""
    known = [each for each in saved if each is not None]
    if len(known) < len(saved):  # runs of an earlier version
        return {"metrics": summary_of(over_seeds(metrics))}
    video_Q = known[0].video_Q
    found = {"metrics": summary_of(over_seeds(metrics, np.stack([each.rank_Q for each in known]), video_Q))}
    fitting = [each.fitting_Q for each in known if each.fitting_Q is not None]
    if len(fitting) == len(known):
        figures = [recall(torch.from_numpy(rank_Q)) for rank_Q in fitting]
        found["metrics_fitting"] = summary_of(over_seeds(figures, np.stack(fitting), video_Q))
    return found


def save_ranks(path: Path, rank_Q: ArrayLike, video_Q: ArrayLike, fitting_Q: ArrayLike | None = None) -> None:
    given = {"rank": rank_Q, "video": video_Q, "fitting": fitting_Q}
    arrays: dict[str, Any] = {n: np.asarray(rows, np.int64) for n, rows in given.items() if rows is not None}
    with atomic_file(path) as file:
        np.savez_compressed(file, **arrays)


def read_ranks(path: Path) -> SavedRanks | None:
    """What `save_ranks` wrote; None where a run has none or they cannot be read."""
    try:
        with np.load(BytesIO(read_file(path)), allow_pickle=False) as saved:
            if sum(part.file_size for part in saved.zip.infolist()) > LARGEST_RANKS:
                return None
            found = [saved[name] for name in ("rank", "video", "fitting") if name in saved.files]
    except Exception:  # whatever goes wrong while reading it, the figures do without intervals
        return None
    if len(found) < 2 or found[0].ndim != 1 or not len(found[0]):
        return None
    if any(each.shape != found[0].shape or each.dtype != np.int64 or each.min() < 0 for each in found):
        return None
    return SavedRanks(*found)


def paired_differences(
    ours_SQ: Ranks,
    theirs_SQ: Ranks,
    draws: Draws,
    member_Q: NDArray[np.bool_] | None = None,
    systems: Sequence[int] = (1, 0),
) -> dict[str, PairedDifference]:
    """Ours minus theirs; p is twice the share of draws on the other side of 0."""
    ours_BK = drawn_recall(ours_SQ, draws, member_Q, systems[0])
    theirs_BK = drawn_recall(theirs_SQ, draws, member_Q, systems[1])
    found = {}
    for k, name in enumerate(METRICS):
        difference_B = ours_BK[:, k] - theirs_BK[:, k]
        spread_B = difference_B[1:][np.isfinite(difference_B[1:])]
        smaller = min((spread_B <= 0).sum(), (spread_B >= 0).sum())
        value, p = estimate(difference_B), min(1.0, 2 * (smaller + 1) / (len(spread_B) + 1))
        found[name] = PairedDifference(value.value, value.low, value.high, p=p)
    return found
