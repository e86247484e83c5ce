"""TF-PRVR (NeurIPS 2026), a baseline without training: moments where a video's frames change.

Frames and sentences come from one frozen image-text model. Changes are found at several scales by a wavelet
transform; the segments of all scales exchange what they show; a moment is what lies between two cuts. A
moment's vector does not depend on the query, so a query is scored by the largest product.

n frames, D width, S segments of all levels, P moments
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
BETA = 0.7  # how much of a segment comes from other segments
TINY = 1e-8
# Low-pass filters of the decomposition; the others follow from them.
DAUBECHIES_4 = (
    -0.010597401784997278,
    0.032883011666982945,
    0.030841381835986965,
    -0.18703481171888114,
    -0.02798376941698385,
    0.6308807679295904,
    0.7148465705525415,
    0.23037781330885523,
)
HAAR = (np.sqrt(0.5), np.sqrt(0.5))
WAVELETS = {"db4": DAUBECHIES_4, "haar": HAAR}


@dataclass(frozen=True)
class Segments:
    """The segments of all levels, finest first: spans in frames, and where each level begins."""

    spans_S2: NDArray[np.int64]
    level_offsets: NDArray[np.int64]
    features_SD: Vector

    @property
    def level_S(self) -> NDArray[np.int64]:
        return np.repeat(np.arange(len(self.level_offsets) - 1), np.diff(self.level_offsets))


@dataclass(frozen=True)
class Moments:
    """What lies between neighbouring cuts of any level: span in frames, and vector."""

    spans_P2: NDArray[np.int64]
    features_PD: Vector


def moments_of(frames_nD: NDArray[np.floating], wavelet: str = "db4", beta: float = BETA) -> Moments:
    """The moments of a video from its frame vectors."""
    segments = segments_of(frames_nD, wavelet)
    passed_SD = segments.features_SD
    if beta:
        passed_SD = propagate(segment_graph(segments), passed_SD, beta)
    cuts = np.unique(segments.spans_S2)
    spans_P2 = np.stack([cuts[:-1], cuts[1:]], 1)
    levels = []
    for first, last in zip(segments.level_offsets[:-1], segments.level_offsets[1:], strict=True):
        holder_P = np.searchsorted(segments.spans_S2[first:last, 1], spans_P2[:, 0], side="right")
        levels.append(passed_SD[first + holder_P])
    return Moments(spans_P2, np.mean(levels, axis=0))


def moment_scores(query_QD: NDArray[np.floating], moments: list[Moments]) -> NDArray[np.float32]:
    """Q × V: the largest product of a unit query and a moment."""
    query_QD = unit(np.asarray(query_QD, np.float64))
    sizes = [len(video.features_PD) for video in moments]
    scores_QN = query_QD @ np.concatenate([video.features_PD for video in moments]).T
    return np.maximum.reduceat(scores_QN, np.cumsum([0, *sizes[:-1]]), axis=1).astype(np.float32)


def best_frame_scores(
    query_QD: NDArray[np.floating], videos: list[NDArray[np.floating]]
) -> NDArray[np.float32]:
    """Q × V: the cosine of the best frame, the plain zero-shot score of a joint model."""
    return moment_scores(query_QD, [Moments(np.zeros((0, 2), np.int64), unit(video)) for video in videos])


def segments_of(frames_nD: NDArray[np.floating], wavelet: str = "db4") -> Segments:
    """The video cut at every level where its changes are large; one segment where it is too short."""
    frames_nD = unit(np.asarray(frames_nD, np.float64))
    count = len(frames_nD)
    details = detail_levels(change_signal(frames_nD), WAVELETS[wavelet]) if count > 2 else []
    spans, offsets = [], [0]
    for cuts in [peaks(np.abs(detail)) + 2 for detail in details] or [np.zeros(0, np.int64)]:
        edges = np.unique(np.concatenate([[0], cuts, [count]]))
        spans.append(np.stack([edges[:-1], edges[1:]], 1))
        offsets.append(offsets[-1] + len(edges) - 1)
    spans_S2 = np.concatenate(spans).astype(np.int64)
    sums_nD = np.concatenate([np.zeros((1, frames_nD.shape[1])), np.cumsum(frames_nD, 0)])
    means_SD = (sums_nD[spans_S2[:, 1]] - sums_nD[spans_S2[:, 0]]) / np.diff(spans_S2, axis=1)
    return Segments(spans_S2, np.array(offsets), unit(means_SD))


def change_signal(frames_nD: Vector) -> Vector:
    """1 - cos of neighbouring differences: n - 2 numbers, 0 where nothing moves."""
    steps = np.diff(frames_nD, axis=0)
    lengths = np.linalg.norm(steps, axis=1)
    cosine = (steps[:-1] * steps[1:]).sum(1) / (lengths[:-1] * lengths[1:] + TINY)
    still = (lengths[:-1] <= TINY) & (lengths[1:] <= TINY)
    return np.where(still, 0.0, 1 - cosine)


def peaks(values: Vector) -> NDArray[np.int64]:
    """Strict local maxima above mean + deviation; of a plateau its middle."""
    starts = np.flatnonzero(np.diff(values, prepend=np.nan) != 0)
    ends = np.append(starts[1:], len(values)) - 1
    level = values[starts]
    inner = np.zeros(len(level), bool)
    inner[1:-1] = (level[1:-1] > level[:-2]) & (level[1:-1] > level[2:])
    high = inner & (level > values.mean() + values.std()) & (level > TINY)
    return ((starts + ends) // 2)[high]


@cache
def filters(low_pass: tuple[float, ...]) -> tuple[Vector, Vector, Vector, Vector]:
    """Decomposition low and high pass, reconstruction low and high pass."""
    low = np.array(low_pass)
    high = low[::-1] * np.where(np.arange(len(low)) % 2, 1.0, -1.0)
    return low, high, low[::-1], high[::-1]


def detail_levels(signal: Vector, low_pass: tuple[float, ...]) -> list[Vector]:
    """What each level of a wavelet transform alone adds to the signal, finest first.

    As many levels as the filter fits into; the signal is mirrored at its ends.
    """
    low, high, low_back, high_back = filters(low_pass)
    taps = len(low)
    levels = int(np.floor(np.log2(len(signal) / (taps - 1)))) if len(signal) >= taps - 1 else 0
    details, rest = [], signal
    for _ in range(levels):
        mirrored = np.pad(rest, taps - 1, "symmetric")
        details.append(np.convolve(mirrored, high, "valid")[1::2])
        rest = np.convolve(mirrored, low, "valid")[1::2]

    def back(coefficients: Vector, kernel: Vector) -> Vector:
        spread = np.zeros(2 * len(coefficients) - 1)
        spread[::2] = coefficients
        return np.convolve(spread, kernel)[taps - 2 : 2 * len(coefficients)]

    rebuilt = []
    for level, detail in enumerate(details):
        partial = back(detail, high_back)
        for finer in reversed(details[:level]):
            partial = back(partial[: len(finer)], low_back)
        rebuilt.append(partial[: len(signal)])
    return rebuilt


def segment_graph(segments: Segments) -> Vector:
    """D^-½ W D^-½: within a level what looks alike or lies near, between neighbours what overlaps."""
    spans, level_S = segments.spans_S2.astype(np.float64), segments.level_S
    alike = np.maximum(segments.features_SD @ segments.features_SD.T, 0)
    centre, length = spans.mean(1), spans[:, 1] - spans[:, 0]
    mean_length_S = (np.bincount(level_S, length) / np.bincount(level_S))[level_S]
    near = np.exp(-np.abs(centre[:, None] - centre) / mean_length_S[:, None])
    start, end = np.maximum(spans[:, None, 0], spans[:, 0]), np.minimum(spans[:, None, 1], spans[:, 1])
    shared = np.maximum(end - start, 0)
    overlap = shared / (length[:, None] + length - shared)
    gap_SS = np.abs(level_S[:, None] - level_S)
    weights = np.where(gap_SS == 0, alike + near, np.where(gap_SS == 1, overlap * alike, 0.0))
    np.fill_diagonal(weights, 1.0)
    scale = 1 / np.sqrt(weights.sum(1))
    return np.asarray(scale[:, None] * weights * scale)


def propagate(graph_SS: Vector, features_SD: Vector, beta: float) -> Vector:
    """(1 - β)(I - βG)⁻¹ applied to the segments' vectors."""
    solved_SD = np.linalg.solve(np.eye(len(graph_SS)) - beta * graph_SS, features_SD)
    return np.asarray((1 - beta) * solved_SD, np.float64)


def unit(rows: NDArray[np.floating]) -> Vector:
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, 1e-12), np.float64)
