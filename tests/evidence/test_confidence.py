"""The probability of a hit: by hand, against whole galleries, against worlds that follow the model."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.stats import norm

from holmes.evidence.distribution import (
    Background,
    ScoreEvidence,
    background,
    fit_score_evidence,
    gallery_opinion,
    guessed_background,
    log_unseen,
)

EVIDENCE = ScoreEvidence(temperature=0.1, offset=0.3)


def slow_probabilities(scores: list[float], evidence: ScoreEvidence) -> tuple[list[float], float]:
    """(e + 1) / S for each video of a gallery, and N / S."""
    amounts = [math.exp((s - evidence.offset) / evidence.temperature) for s in scores]
    strength = sum(amounts) + len(scores)
    return [(e + 1) / strength for e in amounts], len(scores) / strength


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=12))
def test_a_gallery_seen_as_a_whole(scores):
    best_first = sorted(scores, reverse=True)
    opinion = gallery_opinion(torch.tensor([best_first]), len(scores), EVIDENCE)
    expected, vacuity = slow_probabilities(best_first, EVIDENCE)
    np.testing.assert_allclose(opinion.probability_QK[0], expected, rtol=2e-5)
    np.testing.assert_allclose(opinion.vacuity_Q[0], vacuity, rtol=2e-5)
    for k in (1, 3, 50):
        np.testing.assert_allclose(opinion.probability_top(k)[0], sum(expected[:k]), rtol=2e-5)
    assert opinion.probability_top(50)[0] == pytest.approx(1)


def test_by_hand():
    """Evidence e, 1 and 1/e: S = 3 + e + 1 + 1/e."""
    opinion = gallery_opinion(torch.tensor([[1.0, 0.0, -1.0]]), 3, ScoreEvidence(1.0, 0.0))
    strength = 4 + math.e + 1 / math.e
    np.testing.assert_allclose(
        opinion.probability_QK[0] * strength, [1 + math.e, 2, 1 + 1 / math.e], rtol=1e-6
    )
    assert opinion.vacuity_Q[0].item() == pytest.approx(3 / strength)


@pytest.mark.parametrize("lowest", [-0.1, 0.2, 0.5])
@pytest.mark.parametrize("temperature", [0.03, 0.1, 0.5])
def test_unseen_videos_against_quadrature(lowest, temperature):
    mean, deviation, videos = 0.15, 0.08, 5000
    evidence = ScoreEvidence(temperature, 0.3)

    def integrand(s: float) -> float:
        density = math.exp(-(((s - mean) / deviation) ** 2) / 2) / (deviation * math.sqrt(2 * math.pi))
        return density * math.exp((s - evidence.offset) / temperature)

    top = mean + deviation**2 / temperature  # where the integrand is largest
    sum_below = quad(integrand, -2, lowest, points=[p for p in (mean, top) if p < lowest], limit=200)[0]
    exact = videos * sum_below / norm.cdf(lowest, mean, deviation)
    ours = log_unseen(
        torch.tensor([lowest]), videos, evidence, Background(torch.tensor([mean]), torch.tensor([deviation]))
    )
    assert ours.item() == pytest.approx(math.log(exact), abs=2e-4)


def normal_gallery(queries: int, videos: int, seed: int = 0) -> torch.Tensor:
    """Each query's scores have a mean and a deviation of their own, and one video stands out."""
    rng = np.random.default_rng(seed)
    mean, deviation = rng.uniform(0, 0.3, (queries, 1)), rng.uniform(0.04, 0.1, (queries, 1))
    scores = mean + deviation * rng.standard_normal((queries, videos))
    scores[:, 0] += rng.uniform(0, 5, queries) * deviation[:, 0]
    return torch.tensor(scores, dtype=torch.float32)


def test_the_best_hundred_and_two_numbers_say_what_the_whole_gallery_says():
    score_QV = normal_gallery(50, 20_000)
    ordered_QV = score_QV.sort(1, descending=True).values
    whole = gallery_opinion(ordered_QV, 20_000, EVIDENCE)
    part = gallery_opinion(ordered_QV[:, :100], 20_000, EVIDENCE, background(score_QV))
    np.testing.assert_allclose(part.log_strength_Q, whole.log_strength_Q, atol=0.02)
    np.testing.assert_allclose(part.probability_QK, whole.probability_QK[:, :100], rtol=0.03)


def test_a_guessed_background_is_near():
    score_QV = normal_gallery(50, 1_000)
    ordered_QV = score_QV.sort(1, descending=True).values
    whole = gallery_opinion(ordered_QV, 1_000, EVIDENCE)
    part = gallery_opinion(ordered_QV[:, :100], 1_000, EVIDENCE)
    np.testing.assert_allclose(part.log_strength_Q, whole.log_strength_Q, atol=0.25)
    guessed, true = guessed_background(ordered_QV[:, :100], 1_000), background(score_QV)
    assert (guessed.mean_Q - true.mean_Q).abs().mean() < 0.03
    assert (guessed.deviation_Q - true.deviation_Q).abs().mean() < 0.02


def test_one_query_equals_its_row_and_the_order_of_queries_does_not_matter():
    score_QV = normal_gallery(7, 300).sort(1, descending=True).values[:, :40]
    every = gallery_opinion(score_QV, 300, EVIDENCE)
    for row in range(7):
        one = gallery_opinion(score_QV[row : row + 1], 300, EVIDENCE)
        torch.testing.assert_close(one.probability_QK[0], every.probability_QK[row])
        torch.testing.assert_close(one.vacuity_Q[0], every.vacuity_Q[row])


def test_equal_scores_and_a_single_video():
    """A collection that scores everything alike knows nothing: each video is as probable as any other."""
    opinion = gallery_opinion(torch.full((1, 100), 0.2), 1_000, EVIDENCE)
    np.testing.assert_allclose(opinion.probability_QK, 1 / 1_000, rtol=0.05)
    alone = gallery_opinion(torch.tensor([[0.2]]), 1, EVIDENCE)
    assert alone.probability_QK.item() == pytest.approx(1)
    assert 0.0 < alone.resized(1).vacuity_Q.item() < 1


def test_another_size_of_gallery_takes_its_share():
    opinion = gallery_opinion(torch.tensor([[0.5, 0.3, 0.3, 0.3]]), 4, EVIDENCE)
    (first, *others), _ = slow_probabilities([0.5, 0.3, 0.3, 0.3], EVIDENCE)
    for videos in (1, 2, 4, 31):
        resized = opinion.resized(videos)
        expected = first / (first + sum(others) / 3 * (videos - 1))
        assert resized.probability_QK.item() == pytest.approx(expected, rel=1e-5)
        _, vacuity = slow_probabilities([0.5] + [0.3] * (videos - 1), EVIDENCE)
        assert resized.vacuity_Q.item() == pytest.approx(vacuity, rel=1e-5)


def drawn_world(queries: int, videos: int, evidence: ScoreEvidence, seed: int):
    """Scores at random, and owners drawn with the very probabilities the model would say."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(0.2, 0.1, (queries, videos))
    alpha = 1 + np.exp((scores - evidence.offset) / evidence.temperature)
    owner = (alpha / alpha.sum(1, keepdims=True)).cumsum(1) > rng.random((queries, 1))
    return torch.tensor(scores), torch.tensor(owner.argmax(1))


def test_fitting_finds_what_the_world_was_made_with():
    truth = ScoreEvidence(0.05, 0.25)
    score_QV, owner_Q = drawn_world(8_000, 60, truth, seed=1)
    found = fit_score_evidence(score_QV, owner_Q)
    assert found.temperature == pytest.approx(truth.temperature, rel=0.08)
    assert found.offset == pytest.approx(truth.offset, abs=0.03)


def test_fitting_is_as_good_as_an_outside_optimiser():
    score_QV, owner_Q = drawn_world(300, 25, ScoreEvidence(0.04, 0.3), seed=2)
    scores, owner = score_QV.numpy(), owner_Q.numpy()

    def surprise(params) -> float:
        log_alpha = np.logaddexp(0, (scores - params[1]) / math.exp(params[0]))
        log_p = log_alpha - np.log(np.exp(log_alpha).sum(1, keepdims=True))
        return -log_p[np.arange(len(owner)), owner].mean()

    starts = [(math.log(t), o) for t in (0.02, 0.05, 0.15) for o in (0.1, 0.3, 0.5)]
    outside = min(minimize(surprise, start, method="Nelder-Mead").fun for start in starts)
    found = fit_score_evidence(score_QV, owner_Q)
    assert surprise((math.log(found.temperature), found.offset)) < outside + 2e-3


def test_what_was_fitted_on_a_small_gallery_holds_in_a_large_one():
    truth = ScoreEvidence(0.04, 0.45)
    found = fit_score_evidence(*drawn_world(4_000, 100, truth, seed=3))
    for videos in (20, 100, 3_000):
        score_QV, owner_Q = drawn_world(2_000, videos, truth, seed=4)
        ordered_QV, order_QV = score_QV.sort(1, descending=True)
        said_Q = gallery_opinion(ordered_QV[:, :100], videos, found, background(score_QV)).probability_QK[
            :, 0
        ]
        right_Q = order_QV[:, 0] == owner_Q
        assert said_Q.mean().item() == pytest.approx(right_Q.double().mean().item(), abs=0.03)


def test_fitting_stays_finite_where_every_query_is_answered_or_none():
    score_QV = torch.zeros(30, 10)
    owner_Q = torch.arange(30) % 10
    perfect = fit_score_evidence(score_QV.scatter(1, owner_Q.unsqueeze(1), 1.0), owner_Q)
    opinion = gallery_opinion(torch.tensor([[1.0] + [0.0] * 9]), 10, perfect)
    assert 0.9 < opinion.probability_QK[0, 0].item() <= 1
    blind = fit_score_evidence(score_QV, owner_Q)
    opinion = gallery_opinion(torch.zeros(1, 10), 10, blind)
    np.testing.assert_allclose(opinion.probability_QK, 0.1, rtol=1e-4)


def test_fitting_works_on_what_evaluation_hands_over():
    """Tensors made in inference mode cannot be differentiated through as they are."""
    with torch.inference_mode():
        score_QV, owner_Q = drawn_world(200, 20, EVIDENCE, seed=5)
        inside = fit_score_evidence(score_QV, owner_Q)
    assert fit_score_evidence(score_QV, owner_Q) == inside
