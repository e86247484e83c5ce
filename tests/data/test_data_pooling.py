"""Pooling against loops written from the definition, and against numbers of the released configuration."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holmes.data.pooling import (
    overlapping_clips,
    pool_bounds,
    pool_rows,
    query_tokens,
    unit_rows,
    video_clips,
    video_frames,
)

GOLDEN = sorted((Path(__file__).parents[1] / "golden").glob("*_*.npz"))  # not that of training mode
assert GOLDEN


def slow_pool(rows: np.ndarray, length: int) -> np.ndarray:
    """The definition in float64 loops; Python's round is half to even."""
    count = len(rows)
    bounds = [min(round(k * count / length), count - 1) for k in range(length + 1)]
    pooled = []
    for start, end in pairwise(bounds):
        chosen = rows[start:end] if end > start else rows[start : start + 1]
        pooled.append(sum(row.astype(np.float64) for row in chosen) / len(chosen))
    return np.array(pooled)


def slow_unit(rows: np.ndarray) -> np.ndarray:
    return np.array([row / (sum(x * x for x in row.astype(np.float64)) ** 0.5 + 1e-5) for row in rows])


@settings(max_examples=60, deadline=None)
@given(count=st.integers(1, 400), length=st.sampled_from([1, 7, 32, 128]), seed=st.integers(0, 9))
def test_pooling_is_its_definition(count: int, length: int, seed: int) -> None:
    rows = np.random.default_rng(seed).normal(size=(count, 3)).astype(np.float32)
    np.testing.assert_allclose(pool_rows(rows, length), slow_pool(rows, length), rtol=1e-5, atol=1e-5)


def test_bounds_round_half_to_even() -> None:
    # 16 rows to 32: k/2 = 0, .5, 1, 1.5, 2, 2.5 … rounds to 0, 0, 1, 2, 2, 2 …
    assert pool_bounds(16, 32)[:7].tolist() == [0, 0, 1, 2, 2, 2, 3]
    assert pool_bounds(16, 32)[-1] == 15


@pytest.mark.parametrize("count", [1, 2, 31, 32, 33, 127, 128, 129, 300])
def test_clips_are_always_32_and_frames_at_most_128(count: int) -> None:
    rows = np.random.default_rng(count).normal(size=(count, 4)).astype(np.float32)
    frames = rows if count <= 128 else slow_pool(rows, 128)
    np.testing.assert_allclose(video_clips(rows), slow_unit(slow_pool(rows, 32)), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(video_frames(rows), slow_unit(frames), rtol=1e-5, atol=1e-6)


def test_the_guard_keeps_zero_rows_zero_and_shrinks_tiny_ones() -> None:
    rows = np.array([[0, 0], [3e-5, 4e-5]], np.float32)
    np.testing.assert_allclose(unit_rows(rows), [[0, 0], [0.5, 4 / 6]], rtol=1e-5)


def test_tokens_are_cut_to_30() -> None:
    rows = np.random.default_rng(0).normal(size=(41, 4)).astype(np.float32)
    np.testing.assert_allclose(query_tokens(rows), slow_unit(rows[:30]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_released_configuration(path: Path) -> None:
    with np.load(path) as golden:
        for video in range(6):
            rows = golden[f"raw_video/{video}"]
            np.testing.assert_allclose(video_clips(rows), golden[f"sampled_clips/{video}"], atol=1e-6)
            np.testing.assert_allclose(video_frames(rows), golden[f"sampled_frames/{video}"], atol=1e-6)
            for query in range(3):
                tokens = unit_rows(
                    golden[f"raw_query/{video}/{query}"][:12]
                )  # the golden model's longest query
                expected = golden["batch/query_tokens"][3 * video + query]
                np.testing.assert_allclose(tokens, expected[: len(tokens)], atol=1e-6)


@pytest.mark.parametrize(("count", "least"), [(1, 5.0), (7, 1.0), (58, 5.0), (400, 5.0), (400, 40.0)])
def test_overlapping_clips_are_means_around_their_places(count: int, least: float) -> None:
    rows_ND = np.random.default_rng(0).normal(size=(count, 6)).astype(np.float32)
    clips_LD = overlapping_clips(rows_ND, least)
    assert clips_LD.shape == (32, 6)
    for number, clip_D in enumerate(clips_LD):
        middle, half = (number + 0.5) * count / 32, max(least, count / 32) / 2
        start = min(max(round(middle - half), 0), count - 1)
        mean_D = np.mean(rows_ND[start : max(round(middle + half), start + 1)], axis=0)
        np.testing.assert_allclose(clip_D, mean_D / np.linalg.norm(mean_D), atol=1e-4)
