"""Pool raw features to the model's input: 32 clips, at most 128 frames, at most 30 tokens, unit length.

N raw rows, L pooled rows, D width
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from holmes.records import CLIPS, FRAMES, TOKENS

Array = NDArray[Any]
Rows = NDArray[np.float32]
NORM_GUARD = 1e-5  # added to every norm; part of the published numbers
FEW_ROWS = 8  # reduceat adds more in another order


def pool_bounds(count: int, length: int) -> NDArray[np.int64]:
    """b_k = min(round(k·n/L), n-1) for k = 0 … L, rounding half to even."""
    positions = np.arange(length + 1) * count / length
    return np.minimum(np.rint(positions).astype(np.int64), count - 1)


def pool_rows(rows_ND: Array, length: int) -> Rows:
    """L rows: the mean of [b_k, b_{k+1}), or row b_k where that is empty (always so for a short video)."""
    rows_ND = np.asarray(rows_ND, np.float32)
    bounds = pool_bounds(len(rows_ND), length)
    size_L = np.maximum(np.diff(bounds), 1)
    if size_L.max() <= FEW_ROWS:
        sums_LD = short_sums(rows_ND, bounds[:-1], size_L)
    else:
        # reduceat gives row b_k for an empty segment; its last segment, from b_L on, is not one of ours.
        sums_LD = np.add.reduceat(rows_ND, bounds, axis=0)[:-1]
    return (sums_LD / size_L[:, None]).astype(np.float32)


def short_sums(rows_ND: Rows, start_L: NDArray[np.int64], size_L: NDArray[np.int64]) -> Rows:
    """What reduceat gives for at most `FEW_ROWS` rows, in its order of additions, but faster."""
    rest_LD = np.zeros((len(start_L), rows_ND.shape[1]), np.float32)
    for offset in range(1, int(size_L.max())):
        longer = np.flatnonzero(size_L > offset)
        rest_LD[longer] += rows_ND[start_L[longer] + offset]
    rest_LD += rows_ND[start_L]
    return rest_LD


def unit_rows(rows_ND: Array) -> Rows:
    """x / (‖x‖ + 1e-5), row by row."""
    rows_ND = np.asarray(rows_ND, np.float32)
    norms_N = np.sqrt(np.einsum("nd,nd->n", rows_ND, rows_ND))
    unit_ND: Rows = rows_ND / (norms_N + np.float32(NORM_GUARD))[:, None]
    return unit_ND


def video_clips(rows_ND: Array, clips: int = CLIPS) -> Rows:
    """Always 32 unit rows, or another number."""
    return unit_rows(pool_rows(rows_ND, clips))


def overlapping_clips(rows_ND: Array, least: float) -> Rows:
    """32 unit rows, spaced as by `video_clips`, each the mean of at least `least` rows around it."""
    rows_ND = np.asarray(rows_ND, np.float32)
    count = len(rows_ND)
    middle_L = (np.arange(CLIPS) + 0.5) * count / CLIPS
    half = max(least, count / CLIPS) / 2
    start_L = np.rint(middle_L - half).clip(0, count - 1).astype(np.int64)
    end_L = np.maximum(np.rint(middle_L + half).clip(max=count).astype(np.int64), start_L + 1)
    return unit_means(rows_ND, start_L, end_L)


def unit_means(rows_ND: Array, start_L: Array, end_L: Array) -> Rows:
    """The means of rows from each start to before its end, unit length."""
    sums_ND = running_sums(rows_ND)
    return unit_rows((sums_ND[end_L] - sums_ND[start_L]) / (end_L - start_L)[:, None])


def running_sums(rows_ND: Array) -> NDArray[np.float64]:
    """N + 1 rows: before each row, and after the last, the sum of all before."""
    return np.concatenate([np.zeros_like(rows_ND[:1], np.float64), np.cumsum(rows_ND, 0, np.float64)])


def video_frames(rows_ND: Array, frames: int = FRAMES) -> Rows:
    """The rows as they are up to 128, pooled to 128 beyond, or to another number; unit length."""
    return unit_rows(rows_ND if len(rows_ND) <= frames else pool_rows(rows_ND, frames))


def query_tokens(rows_ND: Array, tokens: int = TOKENS) -> Rows:
    """The first 30 rows, or another number, unit length."""
    return unit_rows(rows_ND[:tokens])
