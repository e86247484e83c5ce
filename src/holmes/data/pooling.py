"""From raw feature rows to what the model sees: 32 clips, at most 128 frames, at most 30 tokens, unit length.

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


def pool_bounds(count: int, length: int) -> NDArray[np.int64]:
    """b_k = min(round(k·n/L), n-1) for k = 0 … L, rounding half to even."""
    positions = np.arange(length + 1) * count / length
    return np.minimum(np.rint(positions).astype(np.int64), count - 1)


def pool_rows(rows_ND: Array, length: int) -> Rows:
    """L rows: the mean of [b_k, b_{k+1}), or row b_k where that is empty (always so for a short video)."""
    rows_ND = np.asarray(rows_ND, np.float32)
    bounds = pool_bounds(len(rows_ND), length)
    # reduceat already gives row b_k for an empty segment; its last segment, from b_L on, is not one of ours.
    sums_LD = np.add.reduceat(rows_ND, bounds, axis=0)[:-1]
    return (sums_LD / np.maximum(np.diff(bounds), 1)[:, None]).astype(np.float32)


def unit_rows(rows_ND: Array) -> Rows:
    """x / (‖x‖ + 1e-5), row by row."""
    rows_ND = np.asarray(rows_ND, np.float32)
    norms_N = np.sqrt(np.einsum("nd,nd->n", rows_ND, rows_ND))
    unit_ND: Rows = rows_ND / (norms_N + np.float32(NORM_GUARD))[:, None]
    return unit_ND


def video_clips(rows_ND: Array, clips: int = CLIPS) -> Rows:
    """Always 32 unit rows, or another number."""
    return unit_rows(pool_rows(rows_ND, clips))


def overlapping_clips(rows_ND: Array, least: float, cuts: Array | None = None) -> Rows:
    """32 unit rows at the places of `video_clips`, each the mean of at least this many rows around its own.

    Where cuts are given, rows that begin something new, no mean reaches across one or beyond the ends: it is
    moved to its own side.
    """
    rows_ND = np.asarray(rows_ND, np.float32)
    count = len(rows_ND)
    middle_L = (np.arange(CLIPS) + 0.5) * count / CLIPS
    half = max(least, count / CLIPS) / 2
    start_L, end_L = (np.rint(middle_L + way * half).astype(np.int64) for way in (-1, 1))
    if cuts is None:
        start_L, end_L = start_L.clip(0, count - 1), end_L.clip(max=count)
        end_L = np.maximum(end_L, start_L + 1)
    else:
        edges, size = np.unique([0, *cuts, count]), max(1, round(2 * half))
        own_L = np.searchsorted(edges, middle_L, side="right")
        from_L, to_L = edges[own_L - 1], edges[own_L]
        start_L = np.maximum(np.minimum(start_L, to_L - size), from_L)
        end_L = np.minimum(start_L + size, to_L)
    sums_ND = np.concatenate([np.zeros_like(rows_ND[:1], np.float64), np.cumsum(rows_ND, 0, np.float64)])
    return unit_rows((sums_ND[end_L] - sums_ND[start_L]) / (end_L - start_L)[:, None])


def find_cuts(rows_ND: Array, around: int, cosine: float) -> NDArray[np.int64]:
    """Rows that begin something new: those from here on and those before, `around` of each, have means whose
    cosine is below `cosine`, and below that of any row nearer than `around`."""
    count = len(rows_ND)
    at_N = np.arange(1, count)
    if not len(at_N):
        return at_N
    sums_ND = np.concatenate([np.zeros_like(rows_ND[:1], np.float64), np.cumsum(rows_ND, 0, np.float64)])
    before_ND = unit_rows(sums_ND[at_N] - sums_ND[np.maximum(at_N - around, 0)])
    after_ND = unit_rows(sums_ND[np.minimum(at_N + around, count)] - sums_ND[at_N])
    cosine_N = np.einsum("nd,nd->n", before_ND, after_ND)
    padded_N = np.pad(cosine_N, around - 1, constant_values=np.inf)
    lowest_N = np.lib.stride_tricks.sliding_window_view(padded_N, 2 * around - 1).min(axis=1)
    found: NDArray[np.int64] = at_N[(cosine_N < cosine) & (cosine_N <= lowest_N)]
    return found


def video_frames(rows_ND: Array, frames: int = FRAMES) -> Rows:
    """The rows as they are up to 128, pooled to 128 beyond, or to another number; unit length."""
    return unit_rows(rows_ND if len(rows_ND) <= frames else pool_rows(rows_ND, frames))


def query_tokens(rows_ND: Array, tokens: int = TOKENS) -> Rows:
    """The first 30 rows, or another number, unit length."""
    return unit_rows(rows_ND[:tokens])
