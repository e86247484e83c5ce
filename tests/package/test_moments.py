"""Moments, against planted windows and a search through every window."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holmes import moments
from holmes.moments import (
    BACKGROUND,
    Moment,
    background_of,
    balanced,
    before_steps,
    best_windows,
    evidence_along,
    grow_moments,
    joined,
    shown_moments,
)


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
    found = grow_moments(similarity, seconds(30))
    assert [(m.start, m.end, m.score) for m in found] == [(3, 5, 0.9), (12, 15, 0.8)]
    assert len(grow_moments(similarity, seconds(30), most=1)) == 1


def test_a_flat_video_is_one_moment_and_so_is_a_single_frame() -> None:
    (whole,) = grow_moments(np.full(7, 0.3), seconds(7))
    assert (whole.start, whole.end) == (0, 7)
    (only,) = grow_moments(np.array([0.2]), seconds(1))
    assert (only.start, only.end) == (0, 1)


@pytest.mark.parametrize("seed", range(5))
def test_a_still_picture_is_one_moment_whatever_its_rounding(seed: int) -> None:
    """Rows of an index are float16: those of a still picture differ in their last digits, and a little more
    where it is coded anew."""
    rng = np.random.default_rng(seed)
    look_D = rng.normal(size=256)
    looks_FD = look_D / np.linalg.norm(look_D) + rng.uniform(-3e-5, 3e-5, (120, 256))
    looks_FD = looks_FD.astype(np.float16).astype(np.float32)
    similarity = looks_FD @ rng.permutation(looks_FD[0]) + np.float32(0.2)
    similarity[70:] -= np.float32(0.003)
    assert np.isfinite(evidence_along(similarity, seconds(120), looks_FD, least=-1.0)).all()
    (moment,) = grow_moments(similarity, seconds(120), looks_FD)
    assert (moment.start, moment.end) == (0, 120)


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
    found = grow_moments(similarity, seconds(len(similarity)))
    in_time = sorted(found, key=lambda moment: moment.start)
    assert all(a.end <= b.start for a, b in pairwise(in_time))
    assert [m.score for m in found] == sorted((m.score for m in found), reverse=True)


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


def scene(seed: int, count: int = 40) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Similarities, uneven seconds and looks of chance: neighbours look alike."""
    rng = np.random.default_rng(seed)
    edges = np.concatenate([[0.0], np.cumsum(rng.uniform(0.3, 2.0, count))])
    looks = np.cumsum(rng.normal(size=(count, 5)), axis=0) + rng.normal(size=5)
    looks /= np.linalg.norm(looks, axis=1, keepdims=True)
    return rng.uniform(-0.2, 0.8, count), np.stack([edges[:-1], edges[1:]], axis=1), looks


@pytest.mark.parametrize("seed", range(5))
def test_evidence_is_half_its_own_and_half_that_of_alike_surroundings(seed: int) -> None:
    similarity, spans, looks = scene(seed)
    found = evidence_along(similarity, spans, looks, least=0.4)
    for at in range(len(similarity)):
        if similarity[at] < 0.4:
            assert found[at] == -np.inf
            continue
        usual = np.quantile([float(looks[at] @ other) for other in looks], 0.25)
        total = weights = 0.0
        for other in range(len(similarity)):
            away = (sum(spans[other]) - sum(spans[at])) / 2
            if abs(away) > 9:
                continue
            likeness = (looks[at] @ looks[other] - usual) / (1 - usual)
            weight = np.exp(-(away**2) / 18 + (likeness - 1) / 0.4)
            total, weights = total + weight * similarity[other], weights + weight
        assert found[at] == pytest.approx((similarity[at] + total / weights) / 2)


def test_only_the_most_similar_positions_begin_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moments, "SEEDS", 3)
    similarity, spans, looks = scene(0)
    found = evidence_along(similarity, spans, looks, least=-1.0)
    assert set(np.flatnonzero(np.isfinite(found))) == set(np.argsort(similarity)[-3:])


def test_one_good_frame_elsewhere_does_not_outweigh_a_scene() -> None:
    looks = np.eye(3)[np.repeat([0, 1, 0, 2, 0], [30, 12, 30, 1, 30])]
    similarity = np.repeat([0.1, 0.8, 0.1, 0.85, 0.1], [30, 12, 30, 1, 30])
    first, second = grow_moments(similarity, seconds(103), looks, most=2)
    assert (first.start, first.end) == (30, 42) and first.score == pytest.approx(0.8)
    assert (second.start, second.end) == (72, 73) and second.score == pytest.approx(0.85)


def slow_before_steps(worth: list[float], first: int, last: int, best: int) -> tuple[int, int]:
    """The same for positions of equal length, by squared errors and one cut after the other."""

    def errors(values: list[float]) -> float:
        return sum((value - sum(values) / len(values)) ** 2 for value in values)

    while True:
        choices = []
        for cut in range(first + 1, last + 1):
            left, right = worth[first:cut], worth[cut : last + 1]
            near, far = (right, left) if cut <= best else (left, right)
            remaining, spread = errors(left) + errors(right), errors(worth[first : last + 1])
            if sum(near) / len(near) - sum(far) / len(far) >= 0.1 and remaining <= 0.1 * spread:
                choices.append((remaining, cut))
        if not choices:
            return first, last
        cut = min(choices)[1]
        first, last = (cut, last) if cut <= best else (first, cut - 1)


@pytest.mark.parametrize("seed", range(60))
def test_a_window_is_cut_at_clear_steps_only(seed: int) -> None:
    rng = np.random.default_rng(seed)
    levels = np.repeat(rng.uniform(0, 1, 4), rng.integers(2, 6, 4))
    worth = levels + rng.normal(scale=rng.choice([0.001, 0.05, 0.15]), size=len(levels))
    best = int(worth.argmax())
    found = before_steps(worth, np.full(len(worth), 0.5), 1, len(worth) - 1, max(best, 1))
    assert found == slow_before_steps(worth.tolist(), 1, len(worth) - 1, max(best, 1))


def test_steps_are_found_by_seconds_not_by_positions() -> None:
    worth, length = np.array([1.0, 1.0, 0.5, 0.5, 0.5]), np.array([1.0, 0.5, 3.0, 0.1, 2.0])
    assert before_steps(worth, length, 0, 4, 0) == (0, 1)
    assert before_steps(worth[::-1].copy(), length[::-1].copy(), 0, 4, 4) == (3, 4)
    assert before_steps(np.array([1.0, 1.0, 0.85]), length[:3], 0, 2, 0) == (0, 1)
    assert before_steps(np.array([1.0, 0.95, 0.95]), length[:3], 0, 2, 0) == (0, 2), "no step worth a cut"
    assert before_steps(worth, length, 0, 4, 3) == (0, 4), "a step up from the best is none"


@pytest.mark.parametrize("seed", range(40))
def test_a_balanced_window_is_the_longest_whose_middle_lies_in_the_middle_of_its_core(seed: int) -> None:
    rng = np.random.default_rng(seed)
    edges = np.concatenate([[0.0], np.cumsum(rng.uniform(0.2, 2.0, 30))])
    spans = np.stack([edges[:-1], edges[1:]], axis=1)
    first, core_first, core_last, last = sorted(rng.integers(0, 30, 4).tolist())
    found = balanced(spans, first, last, core_first, core_last)
    core = edges[core_first], edges[core_last + 1]

    def fits(a: int, b: int) -> bool:
        middle = (edges[a] + edges[b + 1]) / 2
        return core[0] + (core[1] - core[0]) / 4 <= middle <= core[1] - (core[1] - core[0]) / 4

    # Only one side is ever shortened: one position after the other, never into the core.
    a, b = first, last
    while not fits(a, b):
        middle = edges[a] + edges[b + 1]
        if middle < sum(core) and a < core_first:
            a += 1
        elif middle > sum(core) and b > core_last:
            b -= 1
        else:
            break
    assert found == (a, b)


def test_the_middle_of_a_moment_lies_where_it_fits_best_not_in_what_resembles_it() -> None:
    """A scene of eight seconds, and twenty of one that fits and looks half as much, in no clear step."""
    half = np.tile([0.62, 0.32], 10)
    closeness = np.concatenate([np.zeros(40), np.ones(8), half, np.zeros(40)])
    away = np.sqrt(1 - closeness**2)
    looks = np.stack([closeness, away], axis=1)
    moment = grow_moments(0.1 + 0.6 * closeness, seconds(len(closeness)), looks, most=1)[0]
    assert 40 <= (moment.start + moment.end) / 2 <= 48
    assert moment.start == 40 and moment.end >= 48


def test_neighbours_are_one_moment_and_none_is_shorter_than_two_seconds() -> None:
    best, beside, far = Moment(8.5, 11, 0.6), Moment(11, 11.5, 0.55), Moment(20, 20.5, 0.58)
    assert joined([best, beside, far], 0, 30) == (Moment(8.5, 12.25, 0.6), Moment(19.25, 21.25, 0.58))
    assert joined([far, best], 0, 30)[0] == Moment(19.25, 21.25, 0.58), "the best stays first"
    weaker = Moment(11, 15, 0.3)
    assert joined([best, weaker], 0, 30) == (best,), "what fits far less and lies beside it is left out"
    assert joined([weaker, best], 0, 30) == (weaker,), "the one with more evidence is left"
    assert joined([Moment(0, 0.5, 0.6)], 0, 30) == (Moment(0, 2, 0.6),)
    assert joined([Moment(29.8, 30, 0.6)], 0, 30) == (Moment(28, 30, 0.6),)
    assert joined([Moment(0.2, 0.4, 0.6)], 0, 1) == (Moment(0, 1, 0.6),), "a short clip is one moment"


@given(
    st.lists(st.tuples(st.integers(0, 56), st.integers(1, 12), st.floats(-0.2, 0.8)), min_size=1, max_size=8)
)
def test_no_moment_lies_beside_another(pieces: list[tuple[int, int, float]]) -> None:
    moments = [Moment(at / 2, min(30.0, (at + long) / 2), score) for at, long, score in pieces]
    shown = joined(moments, 0, 30)
    assert all(moment.end - moment.start >= 2 and moment.start >= 0 and moment.end <= 30 for moment in shown)
    in_time = sorted(shown, key=lambda moment: moment.start)
    assert all(later.start > earlier.end + 1 for earlier, later in pairwise(in_time))
    best = moments[0]
    assert best.start >= shown[0].start and best.end <= shown[0].end, "the best is always there, and first"


def test_a_clip_that_fits_throughout_is_one_moment() -> None:
    rng = np.random.default_rng(0)
    rows = np.eye(4)[rng.integers(0, 4, 40)]
    throughout = 0.5 + 0.02 * rng.standard_normal(40)
    (moment,) = shown_moments(throughout, seconds(40, 0.5), rows)
    assert (moment.start, moment.end) == (0, 20)
    once = np.where(np.arange(40) < 8, 0.6, 0.1)
    rows = np.repeat(np.eye(2), [8, 32], axis=0)
    (moment,) = shown_moments(once, seconds(40, 0.5), rows)
    assert (moment.start, moment.end) == (0, 4)
