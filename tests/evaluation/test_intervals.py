"""Bootstrap intervals and paired differences, against loops and against what must be."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from holmes.evaluation.comparison import System, compare_systems, decided_queries, won_and_lost
from holmes.evaluation.confidence.metrics import calibration_error
from holmes.evaluation.intervals import (
    METRICS,
    SavedRanks,
    bootstrap_counts,
    draw_videos,
    drawn_recall,
    estimate,
    over_seeds,
    paired_differences,
    read_ranks,
    recall_intervals,
    save_ranks,
    saved_summary,
)
from holmes.evaluation.recall import CUTOFFS, Fits, rank_of_fitting, recall


def some_ranks(seed: int, seeds: int = 2, queries: int = 40) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 60, (seeds, queries))


VIDEO_Q = np.sort(np.random.default_rng(0).integers(0, 11, 40))


def test_every_draw_is_the_recall_of_the_drawn_queries_and_seeds():
    """Row by row: repeat each query as often as its video was drawn, for each seed by its share."""
    rank_SQ, draws = some_ranks(1), draw_videos(VIDEO_Q, repeats=7, seed=3)
    ours_BK = drawn_recall(rank_SQ, draws, system=4)
    weights_BS = draws.seeds(2, 4)
    for b in range(8):
        times_Q = draws.videos_BV[b][draws.video_Q].astype(int)
        for k, cutoff in enumerate(CUTOFFS):
            expected = 0.0
            for s in range(2):
                repeated = np.repeat(rank_SQ[s], times_Q)
                expected += weights_BS[b, s] * 100 * np.mean(repeated <= cutoff)
            assert ours_BK[b, k] == pytest.approx(expected)
        assert ours_BK[b, -1] == pytest.approx(ours_BK[b, :-1].sum())


def test_the_value_is_the_plain_mean_and_lies_in_its_interval():
    rank_SQ = some_ranks(2)
    found = recall_intervals(rank_SQ, draw_videos(VIDEO_Q))
    for name in METRICS:
        mean = np.mean([recall(torch.from_numpy(row))[name] for row in rank_SQ])
        assert found[name].value == pytest.approx(mean)
        assert found[name].low <= mean <= found[name].high


def test_intervals_have_the_width_that_theory_gives():
    """400 videos of one query each: the binomial's standard error; of five alike, the same, not √5 less."""
    hit_V = np.random.default_rng(0).random(400) < 0.3
    for copies in (1, 5):
        rank = np.where(np.repeat(hit_V, copies), 1, 500)[None]
        found = recall_intervals(rank, draw_videos(np.repeat(np.arange(400), copies)))["R@1"]
        p = hit_V.mean()
        width = 2 * 1.96 * 100 * np.sqrt(p * (1 - p) / 400)
        assert found.high - found.low == pytest.approx(width, rel=0.1)


def test_pairs_are_drawn_together_and_a_system_equals_itself():
    rank_SQ, draws = some_ranks(3, seeds=1), draw_videos(VIDEO_Q)
    same = paired_differences(rank_SQ, rank_SQ, draws)
    for part in same.values():
        assert (part.value, part.low, part.high, part.p) == (0, 0, 0, 1)
    better = paired_differences(np.maximum(rank_SQ // 2, 1), rank_SQ, draws)
    assert better["SumR"].low > 0 and better["SumR"].p < 0.01
    worse = paired_differences(rank_SQ, np.maximum(rank_SQ // 2, 1), draws, systems=(0, 1))
    assert worse["SumR"].high < 0 and worse["SumR"].p == better["SumR"].p


def test_p_is_uniform_where_nothing_differs():
    """Two systems of equal quality: p falls under .1 about as often as it says."""
    small = 0
    for seed in range(200):
        generator = np.random.default_rng(seed)
        ours, theirs = generator.integers(1, 20, (2, 1, 120))
        draws = draw_videos(np.arange(120), repeats=200, seed=seed)
        small += paired_differences(ours, theirs, draws)["R@10"].p < 0.1
    assert 8 <= small <= 36  # 20 of 200, give or take 3.8 standard errors


def test_a_handful_of_videos_has_no_interval():
    """Four videos, however many queries: draws would agree with each other and mean nothing."""
    rank_SQ, draws = some_ranks(6, seeds=1), draw_videos(np.arange(40) // 10)
    assert recall_intervals(rank_SQ, draws)["R@5"].bounds() == [None, None]
    alone = np.arange(40) == 3
    part = paired_differences(np.ones_like(rank_SQ), np.full_like(rank_SQ, 500), draws, alone)["R@1"]
    assert part.value == 100 and part.p == 1 and part.to_json()["low"] is None
    figures = over_seeds([recall(torch.from_numpy(rank_SQ[0]))], rank_SQ, np.arange(40) // 10)
    assert figures["R@1"].low is None


def test_another_seed_widens_the_interval():
    steady = np.repeat(some_ranks(4, seeds=1), 2, 0)
    moody = np.stack([np.ones(40, int), np.full(40, 500)])
    one = recall_intervals(steady, draw_videos(VIDEO_Q))["R@1"]
    other = recall_intervals(moody, draw_videos(VIDEO_Q))["R@1"]
    assert other.value == 50 and other.high - other.low == pytest.approx(100)
    assert one.high - one.low < 60


def test_a_figure_that_draws_make_larger_still_lies_in_its_interval():
    """The gaps of a perfect calibration cancel in the data, not in draws: their quantiles are all above."""
    rng = np.random.default_rng(0)
    probability_Q = np.repeat(np.linspace(0.05, 0.95, 10), 100)
    right_Q = np.concatenate([np.arange(100) < round(100 * p) for p in np.linspace(0.05, 0.95, 10)])
    values_B = calibration_error(probability_Q, right_Q, bootstrap_counts(np.arange(1000), 500))
    found = estimate(values_B)
    assert np.quantile(values_B[1:], 0.025) > found.value, "the plain quantiles leave it out"
    assert 0 <= found.low <= found.value < found.high
    plain = np.concatenate([[5.0], 5 + rng.normal(size=4000)])  # without bias nothing is moved
    assert [estimate(plain).low, estimate(plain).high] == np.quantile(plain[1:], [0.025, 0.975]).tolist()


def test_ranks_are_kept_and_a_damaged_file_is_none(tmp_path):
    save_ranks(tmp_path / "ranks.npz", [3, 1, 2], [0, 0, 1])
    found = read_ranks(tmp_path / "ranks.npz")
    assert found.rank_Q.tolist() == [3, 1, 2] and found.video_Q.tolist() == [0, 0, 1]
    assert found.fitting_Q is None
    save_ranks(tmp_path / "ranks.npz", [3, 1, 2], [0, 0, 1], [2, 1, 1])
    assert read_ranks(tmp_path / "ranks.npz").fitting_Q.tolist() == [2, 1, 1]
    (tmp_path / "ranks.npz").write_bytes(b"PK no archive")
    assert read_ranks(tmp_path / "ranks.npz") is None and read_ranks(tmp_path / "none.npz") is None


def test_figures_over_seeds_have_their_interval():
    rank_SQ = some_ranks(5)
    metrics = [recall(torch.from_numpy(row)) for row in rank_SQ]
    found = over_seeds(metrics, rank_SQ, VIDEO_Q)["R@10"]
    assert found.value == pytest.approx(np.mean([one["R@10"] for one in metrics]))
    assert found.low < found.value < found.high


def test_figures_of_saved_ranks_know_what_fits_only_if_every_run_does():
    rank_SQ = some_ranks(5)
    fitting_SQ = np.maximum(rank_SQ // 2, 1)
    metrics = [recall(torch.from_numpy(row)) for row in rank_SQ]
    runs = [SavedRanks(*rows) for rows in zip(rank_SQ, [VIDEO_Q] * len(rank_SQ), fitting_SQ, strict=True)]
    found = saved_summary(metrics, runs)
    assert found["metrics"]["R@10"]["mean"] == pytest.approx(np.mean([one["R@10"] for one in metrics]))
    fitting = found["metrics_fitting"]["R@10"]
    assert fitting["mean"] == pytest.approx(100 * (fitting_SQ <= 10).mean())
    assert fitting["low"] < fitting["mean"] < fitting["high"]
    assert saved_summary(metrics, [runs[0]._replace(fitting_Q=None), *runs[1:]]).keys() == {"metrics"}
    without = saved_summary(metrics, [None, *runs[1:]])
    assert without.keys() == {"metrics"} and without["metrics"]["R@10"]["low"] is None


# What fits counts as right


@pytest.mark.parametrize("processes", [2, 3])
def test_what_fits_is_shared_among_processes(processes):
    fits, size = Fits(torch.tensor([0, 0, 3, 4]), torch.tensor([2, 3, 1, 0])), -(-5 // processes)
    parts = [fits.of_rows(rank * size, size) for rank in range(processes)]
    back = torch.cat([part.query_N + rank * size for rank, part in enumerate(parts)])
    assert back.tolist() == [0, 0, 3, 4] and torch.cat([part.video_N for part in parts]).tolist() == [
        2,
        3,
        1,
        0,
    ]
    assert all((part.query_N < size).all() for part in parts)


def test_recall_that_knows_what_fits_by_hand():
    scores = torch.tensor([[0.1, 0.9, 0.5, 0.4], [0.3, 0.3, 0.8, 0.2], [0.5, 0.5, 0.5, 0.1]])
    owner = torch.tensor([0, 3, 0])
    fits = Fits(torch.tensor([0, 0, 2]), torch.tensor([2, 3, 1]))
    # Of query 0 videos 0, 2 and 3 fit: the best of them is second. Query 1 has only its own, the last.
    # Of query 2 two fitting videos tie with a wrong one, which counts against them once.
    assert rank_of_fitting(scores, owner, fits).tolist() == [2, 4, 2]


def test_recall_that_knows_what_fits_equals_loops():
    generator = np.random.default_rng(0)
    scores = generator.integers(0, 6, (30, 8)) / 6  # many ties
    owner = generator.integers(0, 8, 30)
    pairs = [(q, v) for q in range(30) for v in range(8) if v != owner[q] and generator.random() < 0.2]
    ours = rank_of_fitting(
        torch.from_numpy(scores), torch.from_numpy(owner), Fits(*torch.tensor(pairs).T)
    ).tolist()
    for q in range(30):
        fitting = {owner[q], *(v for p, v in pairs if p == q)}
        best = max(scores[q][v] for v in fitting)
        before = sum(scores[q][v] >= best for v in range(8) if v not in fitting)
        assert ours[q] == 1 + before


# Systems


def test_a_comparison_says_who_won_what():
    first = System("first", np.array([[1, 5, 1, 9]]))
    second = System("second", np.array([[1, 1, 7, 2]]))
    shares = won_and_lost(second, first)["R@1"]
    assert shares == {"won": 25.0, "lost": 25.0, "both": 25.0, "neither": 25.0}
    assert decided_queries(second, first, 2) == ([1, 3], [2])
    everyone = {"kind": {"all": np.ones(4, bool), "some": np.array([True, True, False, False])}}
    found = compare_systems([first, second], np.array([0, 0, 1, 1]), everyone)
    assert [system["name"] for system in found["systems"]] == ["first", "second"]
    assert found["systems"][0]["difference"] is None
    assert found["systems"][1]["difference"]["R@5"]["value"] == 0
    assert found["systems"][1]["by"]["kind"]["some"]["difference"]["R@1"]["value"] == pytest.approx(50)
    assert found["systems"][1]["by"]["kind"]["all"]["metrics"] == found["systems"][1]["metrics"]
