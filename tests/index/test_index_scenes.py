"""Scenes of long videos against a search through every segmentation, and clips against their definition."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from holmes.data.pooling import unit_rows
from holmes.index.embedders.scenes import clips_in_scenes, find_scenes
from holmes.index.embedders.zero_shot import ZeroShot
from holmes.index.ingest.parts import part_bounds


def some_rows(count: int, seed: int, noise: float = 0.5) -> np.ndarray:
    """Scenes of twelve rows that look alike."""
    rng = np.random.default_rng(seed)
    looks_ND = rng.normal(size=(count // 12 + 1, 8)).repeat(12, axis=0)[:count]
    return unit_rows(looks_ND + noise * rng.normal(size=looks_ND.shape))


def slow_cost(rows_ND: np.ndarray, price: float, longest: int) -> float:
    """The least cost of all segmentations: the last scene begins anywhere, what precedes it is cut alike."""

    @cache
    def least(end: int) -> float:
        if not end:
            return 0.0
        return min(
            least(start) + cost_of(rows_ND[start:end]) + price for start in range(max(0, end - longest), end)
        )

    return least(len(rows_ND))


def cost_of(scene_ND: np.ndarray) -> float:
    return float(((scene_ND - scene_ND.mean(axis=0)) ** 2).sum())


@pytest.mark.parametrize("count", [1, 2, 13, 40, 97, 200])
@pytest.mark.parametrize("price", [0.0, 0.5, 2.0, 50.0])
@pytest.mark.parametrize("longest", [1, 7, 16])
def test_no_other_way_to_cut_costs_less(count: int, price: float, longest: int) -> None:
    rows_ND = some_rows(count, seed=count)
    edges = find_scenes(rows_ND, price, longest).tolist()
    assert edges[0] == 0 and edges[-1] == count
    assert all(0 < end - start <= longest for start, end in pairwise(edges))
    cost = sum(cost_of(rows_ND[start:end]) + price for start, end in pairwise(edges))
    assert cost == pytest.approx(slow_cost(rows_ND, price, longest), abs=1e-3)


def test_scenes_begin_where_the_looks_change() -> None:
    assert find_scenes(some_rows(240, seed=1), 2.0, 32).tolist() == list(range(0, 241, 12))
    assert find_scenes(some_rows(240, seed=1, noise=0.2), 2.0, 32).tolist() == list(range(0, 241, 12))
    still_ND = np.tile(some_rows(1, seed=2), (100, 1))
    assert find_scenes(still_ND, 2.0, 200).tolist() == [0, 100]
    assert len(find_scenes(still_ND, 2.0, 32)) == 5, "no more scenes than their length asks for"


class Clips:
    """A joint model that is asked for nothing."""

    name, digest, width, rate = "none", "00", 8, 2.0


@pytest.mark.parametrize("rate", [0.5, 2.0, 25.0])
@pytest.mark.parametrize("shot", [9, 33, 35, 65, 100])
def test_shots_of_any_length_are_kept_apart(shot: int, rate: float) -> None:
    """Through the embedder: no clip of a long film mixes two shots, and clips reach beyond their part."""
    rng = np.random.default_rng(shot)
    rows = round(shot * rate)
    looks_SD = np.eye(8)[:5]
    rows_ND = np.repeat(looks_SD, rows, axis=0)
    rows_ND = unit_rows(rows_ND + 0.1 * rng.normal(size=rows_ND.shape))
    count = len(rows_ND)
    parts = part_bounds(count, count / rate, ZeroShot.part_seconds)
    parts += [slice(0, count // 3)] * (len(parts) == 1)  # as if it were too long for one
    (embedded,) = ZeroShot(Clips()).videos([rows_ND], [count / rate], [parts])  # type: ignore[arg-type]
    for part, (_, clips_CD) in zip(parts, embedded, strict=True):
        assert np.sort(clips_CD @ looks_SD.T, axis=1)[:, -2].max() < 0.3, "a third of it is another shot"
        if rate <= 2:  # of more frames only some are looked at, and edges are less exact
            expected_CD = clips_in_scenes(rows_ND, part, 6 * rate, np.arange(6) * rows)
            np.testing.assert_allclose(clips_CD, expected_CD, atol=1e-5)


@pytest.mark.parametrize(
    "part", [slice(0, 64), slice(50, 178), slice(150, 200), slice(191, 200), slice(0, 200)]
)
@pytest.mark.parametrize("edges", [[0, 200], [0, 1, 2, 64, 120, 127, 199, 200], list(range(0, 201, 20))])
@pytest.mark.parametrize("least", [0.4, 5.0, 11.0])
def test_clips_are_means_of_their_own_scene(part: slice, edges: list[int], least: float) -> None:
    """Each is one of the means of its length, or of its whole scene, that lie nearest to its place."""
    rows_ND = np.random.default_rng(1).normal(size=(200, 6)).astype(np.float32)
    count = part.stop - part.start
    size = max(1, round(max(least, count / 32)))
    for number, clip_D in enumerate(clips_in_scenes(rows_ND, part, least, np.array(edges))):
        middle = part.start + (number + 0.5) * count / 32
        low, high = next((a, b) for a, b in pairwise(edges) if a <= middle < b)
        own = min(size, high - low)
        away = {start: abs(start + own / 2 - middle) for start in range(low, high - own + 1)}
        nearest = [start for start, far in away.items() if far <= min(away.values()) + 1e-9]
        means = [rows_ND[start : start + own].mean(axis=0) for start in nearest]
        off = [np.abs(clip_D - mean_D / np.linalg.norm(mean_D)).max() for mean_D in means]
        assert min(off) < 1e-4
