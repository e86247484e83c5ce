"""Moments, against planted windows and a search through every window."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holmes.moments import BACKGROUND, background_of, best_windows, grow_moments


def seconds(count: int, step: float = 1.0) -> np.ndarray:
    edges = np.arange(count + 1) * step
    return np.stack([edges[:-1], edges[1:]], axis=1)


def test_a_planted_window_is_found_in_seconds() -> None:
    similarity = np.full(20, 0.1)
    similarity[5:9] = [0.5, 0.6, 0.55, 0.5]
    (moment,) = grow_moments(similarity, seconds(20, 0.5))
    assert (moment.start, moment.end) == (2.5, 4.5)
    assert moment.score == pytest.approx(0.6)


def test_a_dip_is_bridged_when_what_follows_pays_for_it_and_not_otherwise() -> None:
    similarity = np.full(20, 0.1)
    similarity[4:10] = [0.6, 0.6, 0.25, 0.6, 0.6, 0.6]
    (moment,) = grow_moments(similarity, seconds(20))
    assert (moment.start, moment.end) == (4, 10)
    similarity[6:9] = 0.1  # three positions deep, one good one beyond: two moments
    first, second = grow_moments(similarity, seconds(20))
    assert {(first.start, first.end), (second.start, second.end)} == {(4, 6), (9, 10)}


def test_further_moments_come_in_order_and_weak_ones_are_left_out() -> None:
    similarity = np.full(30, 0.1)
    similarity[3:5], similarity[12:15], similarity[22] = 0.9, 0.8, 0.4
    moments = grow_moments(similarity, seconds(30))
    assert [(m.start, m.end, m.score) for m in moments] == [(3, 5, 0.9), (12, 15, 0.8)]
    assert len(grow_moments(similarity, seconds(30), most=1)) == 1


def test_a_flat_video_is_one_moment_and_so_is_a_single_frame() -> None:
    (whole,) = grow_moments(np.full(7, 0.3), seconds(7))
    assert (whole.start, whole.end) == (0, 7)
    (only,) = grow_moments(np.array([0.2]), seconds(1))
    assert (only.start, only.end) == (0, 1)


def test_uneven_positions_count_by_their_length() -> None:
    # The long position is a little too poor, ten times as long as the good one behind it.
    similarity = np.array([0.0, 1.0, 0.3, 0.7, 0.0, 0.0, 0.0])
    spans = np.array([[0, 1], [1, 2], [2, 12], [12, 13], [13, 14], [14, 15], [15, 16]], float)
    assert grow_moments(similarity, spans, most=1)[0].end == 2


timelines = st.lists(st.integers(0, 20), min_size=1, max_size=14).map(lambda values: np.array(values) / 20)


@given(timelines)
def test_the_best_moment_is_worth_most_of_all_windows_around_the_peak(similarity: np.ndarray) -> None:
    moment = grow_moments(similarity, seconds(len(similarity)), reach=0.5)[0]
    background, peak = np.quantile(similarity, BACKGROUND), similarity.argmax()
    worth = similarity - (background + similarity.max()) / 2
    windows = [
        worth[first : last + 1].sum() for first in range(peak + 1) for last in range(peak, len(similarity))
    ]
    assert moment.start <= peak < moment.end
    assert worth[int(moment.start) : int(moment.end)].sum() == pytest.approx(max(windows), abs=1e-9)


@given(timelines)
def test_moments_never_overlap_and_fall_in_score(similarity: np.ndarray) -> None:
    moments = grow_moments(similarity, seconds(len(similarity)))
    in_time = sorted(moments, key=lambda moment: moment.start)
    assert all(a.end <= b.start for a, b in pairwise(in_time))
    assert [m.score for m in moments] == sorted((m.score for m in moments), reverse=True)


@given(timelines)
def test_many_timelines_at_once_give_each_ones_best_moment(similarity: np.ndarray) -> None:
    batch = np.stack([similarity, similarity[::-1], np.roll(similarity, 1)])
    for timeline, (first, last) in zip(batch, best_windows(batch), strict=True):
        moment = grow_moments(timeline, seconds(len(timeline)))[0]
        assert (moment.start, moment.end) == (first, last + 1)


def test_a_cut_ends_a_moment_even_where_the_next_scene_fits_too():
    """Twelve seconds of one scene, then of another, both far better than the rest of the video."""
    looks = np.eye(4)[np.repeat([0, 1, 2, 3], [30, 12, 12, 30])]
    similarity = np.repeat([0.1, 0.9, 0.8, 0.1], [30, 12, 12, 30])
    first, second = grow_moments(similarity, seconds(84), looks, most=2)
    assert (first.start, first.end) == (30, 42) and (second.start, second.end) == (42, 54)
    (whole,) = grow_moments(similarity, seconds(84), most=1)
    assert (whole.start, whole.end) == (30, 54), "similarity alone cannot tell them apart"


def test_a_scene_longer_than_the_surroundings_is_one_moment():
    looks = np.eye(3)[np.repeat([0, 1, 2], [60, 200, 60])]
    similarity = np.repeat([0.1, 0.8, 0.1], [60, 200, 60]) + 0.01 * np.cos(np.arange(320))
    moment = grow_moments(similarity, seconds(320), looks, most=1)[0]
    assert (moment.start, moment.end) == (60, 260)


@given(st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=40))
def test_the_background_is_numpys_quantile(values: list[float]) -> None:
    timeline = np.array(values, np.float32)
    assert background_of(timeline) == pytest.approx(float(np.quantile(timeline.astype(float), BACKGROUND)))
