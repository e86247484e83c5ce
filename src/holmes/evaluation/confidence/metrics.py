"""Metrics of confidence: does it rank right answers first (AURC, AUROC), is it calibrated (ECE)?

Every figure is computed for B weightings of the queries at once: all ones give the value, counts of a
bootstrap its interval, and the same counts for two confidences the interval of their difference.

Q queries, B weightings, G groups of equal confidence, V videos
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holmes.evaluation.intervals import Counts

Floats = NDArray[np.float64]

BINS = 10


def auroc(score_Q: ArrayLike, positive_Q: ArrayLike, counts_BQ: Counts) -> Floats:
    """The chance that a positive has a higher score than a negative, ties counting half; NaN without both."""
    positive_BG, negative_BG = _grouped(-np.asarray(score_Q), np.asarray(positive_Q, bool), counts_BQ)
    above_BG = np.cumsum(positive_BG, 1) - positive_BG
    wins_B = ((above_BG + positive_BG / 2) * negative_BG).sum(1)
    pairs_B = positive_BG.sum(1) * negative_BG.sum(1)
    return np.divide(wins_B, pairs_B, out=np.full(len(wins_B), np.nan), where=pairs_B > 0)


def auroc_within(
    score_Q: ArrayLike, positive_Q: ArrayLike, stratum_Q: ArrayLike, counts_BQ: Counts
) -> Floats:
    """AUROC over pairs from the same stratum only: what is left when the stratum is held fixed."""
    score_Q, positive_Q, stratum_Q = np.asarray(score_Q), np.asarray(positive_Q, bool), np.asarray(stratum_Q)
    wins_B, pairs_B = np.zeros((2, len(counts_BQ)))
    for stratum in np.unique(stratum_Q):
        here = stratum_Q == stratum
        some_BQ = counts_BQ[:, here]
        positives_B = some_BQ[:, positive_Q[here]].sum(1)
        here_B = positives_B * (some_BQ.sum(1) - positives_B)
        wins_B += here_B * np.nan_to_num(auroc(score_Q[here], positive_Q[here], some_BQ))
        pairs_B += here_B
    return np.divide(wins_B, pairs_B, out=np.full(len(wins_B), np.nan), where=pairs_B > 0)


def area_under_risk_coverage(confidence_Q: ArrayLike, correct_Q: ArrayLike, counts_BQ: Counts) -> Floats:
    """AURC: the mean error over all coverages, most confident first. Ties are averaged over their orders.

    Within a group of g equals after n answers with w errors, errors rise by r per query on average, so that
    Σ_j (w + j r) / (n + j) = g r + (w - n r) (H(n + g) - H(n)) with the harmonic numbers H.
    """
    right_BG, wrong_BG = _grouped(-np.asarray(confidence_Q), np.asarray(correct_Q, bool), counts_BQ)
    size_BG = right_BG + wrong_BG
    before_BG, errors_BG = np.cumsum(size_BG, 1) - size_BG, np.cumsum(wrong_BG, 1) - wrong_BG
    total_B = size_BG.sum(1)
    harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, total_B.max() + 1))])
    rate_BG = wrong_BG / np.maximum(size_BG, 1)
    steps_BG = harmonic[before_BG + size_BG] - harmonic[before_BG]
    return ((size_BG * rate_BG + (errors_BG - before_BG * rate_BG) * steps_BG).sum(1)) / total_B


def risk_coverage(confidence_Q: ArrayLike, correct_Q: ArrayLike, points: int = 101) -> tuple[Floats, Floats]:
    """The curve behind AURC: the error among the most confident share of queries, for each share."""
    order_Q = np.argsort(-np.asarray(confidence_Q), kind="stable")
    wrong_Q = 1.0 - np.asarray(correct_Q, float)[order_Q]
    answered = np.unique(np.ceil(np.linspace(0, 1, points)[1:] * len(wrong_Q)).astype(int))
    return answered / len(wrong_Q), np.cumsum(wrong_Q)[answered - 1] / answered


@dataclass(frozen=True)
class Reliability:
    """Said and true probability in bins of equally many queries."""

    said: Floats
    true: Floats
    queries: Counts


def equal_bins(probability_Q: ArrayLike, bins: int = BINS) -> Counts:
    """Bin of each query, of equal numbers by rising probability; equal probabilities stay together.

    Bins of equal width would put nearly every query of a hard collection into the first one.
    """
    _, group_Q, size_G = np.unique(np.asarray(probability_Q), return_inverse=True, return_counts=True)
    middle_G = np.cumsum(size_G) - size_G / 2
    return (middle_G * bins / len(group_Q)).astype(np.int64).clip(max=bins - 1)[group_Q]


def calibration_error(
    probability_Q: ArrayLike, correct_Q: ArrayLike, counts_BQ: Counts, bins: int = BINS
) -> Floats:
    """ECE: the mean gap between said and true probability over bins of equally many queries."""
    gap_Q = np.asarray(probability_Q, float) - np.asarray(correct_Q, float)
    inside_QN = equal_bins(probability_Q, bins)[:, None] == np.arange(bins)
    return np.abs(counts_BQ @ (gap_Q[:, None] * inside_QN)).sum(1) / counts_BQ.sum(1)


def reliability(probability_Q: ArrayLike, correct_Q: ArrayLike, bins: int = BINS) -> Reliability:
    bin_Q = equal_bins(probability_Q, bins)
    queries_N = np.bincount(bin_Q, minlength=bins)
    kept = queries_N > 0
    said_N = np.bincount(bin_Q, np.asarray(probability_Q, float), bins)[kept] / queries_N[kept]
    true_N = np.bincount(bin_Q, np.asarray(correct_Q, float), bins)[kept] / queries_N[kept]
    return Reliability(said_N, true_N, queries_N[kept])


def _grouped(key_Q: Floats, mark_Q: NDArray[np.bool_], counts_BQ: Counts) -> tuple[Counts, Counts]:
    """Weight of the marked and of the other queries in each group of equal keys, by rising key."""
    order_Q = np.argsort(key_Q, kind="stable")
    sorted_Q = key_Q[order_Q]
    starts_G = np.flatnonzero(np.concatenate([[True], sorted_Q[1:] != sorted_Q[:-1]]))
    counts_BQ, mark_Q = counts_BQ[:, order_Q], mark_Q[order_Q]
    marked_BG, every_BG = counts_BQ * mark_Q, counts_BQ
    if len(starts_G) < len(sorted_Q):  # without equals, the sums would copy everything slowly
        marked_BG, every_BG = (np.add.reduceat(some_BQ, starts_G, 1) for some_BQ in (marked_BG, every_BG))
    return marked_BG, every_BG - marked_BG
