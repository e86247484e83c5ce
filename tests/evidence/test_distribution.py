"""The distribution over videos and "none": by hand, against whole galleries, in worlds that follow it."""

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
    Absence,
    Background,
    Contrast,
    GalleryDistribution,
    ScoreEvidence,
    background,
    contrast,
    fit_absence,
    fit_distribution,
    fit_evidence,
    gallery_distribution,
    log_unseen,
)

EVIDENCE = ScoreEvidence(temperature=0.1, offset=0.3)


def gallery_opinion(
    score_QK: torch.Tensor, videos: int, evidence: ScoreEvidence, all_scores: Background | None = None
) -> GalleryDistribution:
    """The distribution if every query has its video."""
    return gallery_distribution(score_QK, videos, evidence, Absence(), all_scores, expect_missing=0)


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
    scores = Background(torch.tensor([mean]), torch.tensor([deviation]))
    ours = log_unseen(torch.tensor([lowest]), videos, evidence, torch.tensor([1 / temperature]), scores)
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


def test_evidence_has_a_ceiling():
    """α = (1 + e) / (1 + e / C), by hand: above C = exp(40) a higher score says nothing more."""
    score_QK = torch.tensor([[7.0, 6.0, 4.3, 4.0, 0.0]])
    found = gallery_opinion(score_QK, 5, EVIDENCE).probability_QK[0].tolist()
    e = [math.exp((s - 0.3) / 0.1) for s in score_QK[0].tolist()]
    alpha = [(1 + x) / (1 + x * math.exp(-40)) for x in e]
    np.testing.assert_allclose(found, [a / sum(alpha) for a in alpha], rtol=2e-4)
    assert found[0] == pytest.approx(found[1], rel=1e-6) and found[1] > 1.9 * found[2]


@pytest.mark.parametrize(("spread_power", "lead_power"), [(0.5, 0.0), (0.0, 0.3), (-0.4, 0.7)])
def test_spread_and_lead_change_the_temperature(spread_power, lead_power):
    """T = T₀ (σ₀ / σ)^γ (z₀ / z)^δ, by hand, and no further than a factor of two in σ and in z."""
    evidence = ScoreEvidence(0.1, 0.3, 0.05, spread_power, 3.0, lead_power)
    for spread, wide in ((0.05, 1.0), (0.08, 1.6), (1.0, 2.0), (0.001, 0.5)):
        for lead, ahead in ((3.0, 1.0), (4.5, 1.5), (60.0, 2.0), (0.1, 0.5)):
            found = evidence.sharpness(Contrast(torch.tensor([spread]), torch.tensor([lead])))
            assert found.item() == pytest.approx(wide**spread_power * ahead**lead_power / 0.1, rel=1e-5)


def test_the_contrast_is_of_the_best_and_all_others():
    score_QV = normal_gallery(20, 50).double()
    others = score_QV.sort(1).values[:, :-1]
    found = contrast(score_QV.amax(1), background(score_QV), 50)
    torch.testing.assert_close(found.spread_Q, others.std(1, correction=0))
    ahead_Q = (score_QV.amax(1) - others.mean(1)) / others.std(1, correction=0)
    torch.testing.assert_close(found.lead_Q, ahead_Q)


def test_none_by_hand():
    """logit P(none) = logit π + a + b (N₀ / N)^ρ (log u - m_N), and the videos share what is left."""
    score_QK, absence = torch.tensor([[0.5, 0.3, 0.1]]), Absence(0.7, 0.4, -1.5, 0.3, outweighs=9, videos=12)
    here, vacuity = slow_probabilities([0.5, 0.3, 0.1], EVIDENCE)
    for prior in (0.05, 0.2, 0.5):
        slope = 0.4 * (12 / 3) ** 0.3
        middle = -1.5 - (math.log(1 + 9 / 3) - math.log(1 + 9 / 12)) / 2
        odds = prior / (1 - prior) * math.exp(0.7 + slope * (math.log(vacuity) - middle))
        none = odds / (1 + odds)
        found = gallery_distribution(score_QK, 3, EVIDENCE, absence, expect_missing=prior)
        assert found.none_Q.item() == pytest.approx(none, rel=1e-5)
        np.testing.assert_allclose(found.probability_QK[0], [(1 - none) * p for p in here], rtol=2e-5)
        assert (found.probability_QK.sum() + found.none_Q).item() == pytest.approx(1, rel=1e-5)
    assert gallery_distribution(score_QK, 3, EVIDENCE, absence, expect_missing=0).none_Q.item() == 0
    tells_nothing = gallery_distribution(score_QK, 3, EVIDENCE, Absence())
    assert tells_nothing.none_Q.item() == pytest.approx(0.2), "without any knowledge, the stated prior"


def drawn_world(queries: int, videos: int, evidence: ScoreEvidence, seed: int):
    """Scores at random, and owners drawn with the very probabilities the model would say."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(0.2, 0.1, (queries, videos))
    alpha = 1 + np.exp((scores - evidence.offset) / evidence.temperature)
    owner = (alpha / alpha.sum(1, keepdims=True)).cumsum(1) > rng.random((queries, 1))
    return torch.tensor(scores), torch.tensor(owner.argmax(1))


def drawn_with_missing(queries: int, videos: int, seed: int):
    """Half of the queries are clear: their video scores far above the others; all others are drawn alike."""
    rng = np.random.default_rng(seed)
    scores, owner = rng.normal(0.2, 0.1, (queries, videos)), rng.integers(0, videos, queries)
    scores[np.arange(queries), owner] += np.where(np.arange(queries) % 2, 0.5, 0.1)
    return torch.tensor(scores), torch.tensor(owner)


def surprise(score_QV, owner_Q, evidence: ScoreEvidence, absence: Absence | None) -> float:
    """In loops: how improbable the videos of queries are, or "none" with them and where they are gone."""
    total, videos, prior = 0.0, score_QV.shape[1], 0.2

    def opinion(values: list[float]) -> list[float]:
        others = sorted(values)[:-1]
        spread = float(np.std(others))
        wide = min(max(spread / evidence.spread, 0.5), 2)
        ahead = min(max((max(values) - float(np.mean(others))) / max(spread, 1e-4) / evidence.lead, 0.5), 2)
        sharp = wide**evidence.spread_power * ahead**evidence.lead_power / evidence.temperature
        amounts = [math.exp((s - evidence.offset) * sharp) for s in values]
        return [(1 + e) / (1 + e * math.exp(-40)) for e in amounts]

    for scores, owner in zip(score_QV.tolist(), owner_Q.tolist(), strict=True):
        if absence is None:
            alpha = opinion(scores)
            total -= math.log(alpha[owner] / sum(alpha))
            continue
        for step in (1, 2, 4):
            gone = sorted((scores[:owner] + scores[owner + 1 :])[::step], reverse=True)
            there = [scores[owner], *gone]
            lacking = gone[round(0.25 * len(gone)) :]
            steeper = (videos / len(there)) ** absence.size_power
            for values, weight in ((there, 1 - prior), (gone, 0.9 * prior), (lacking, 0.1 * prior)):
                vacuity = math.log(len(values) / sum(opinion(values)))
                odds = prior / (1 - prior) * math.exp(absence.shift)
                lower = math.log((1 + absence.outweighs / len(there)) / (1 + absence.outweighs / videos)) / 2
                odds *= math.exp(absence.slope * steeper * (vacuity - absence.middle + lower))
                none = odds / (1 + odds)
                total -= weight / 3 * math.log(1 - none if values is there else none)
    return total / len(owner_Q)


def test_fitting_is_as_good_as_an_outside_optimiser():
    """Of the surprise and the pull of few queries towards usual numbers."""
    score_QV, owner_Q = drawn_with_missing(40, 12, seed=2)
    mean, deviation = score_QV.mean().item(), score_QV.std().item()
    evidence, absence = fit_distribution(score_QV, owner_Q)

    def of_videos(params) -> float:
        offset, wide, by_spread, by_lead = params
        pull = 0.005 * (offset**2 + (wide + 0.5) ** 2) + 10 * by_spread**2
        pull += 2.5 * (by_lead - 0.3) ** 2
        other = ScoreEvidence(
            temperature=deviation * math.exp(wide),
            offset=mean + deviation * offset,
            spread=evidence.spread,
            spread_power=by_spread,
            lead=evidence.lead,
            lead_power=by_lead,
        )
        return surprise(score_QV, owner_Q, other, None) + pull / 40

    def of_none(params) -> float:
        usual = math.log(math.expm1(0.4))
        pull = 0.5 * (params[0] ** 2 + (params[1] - usual) ** 2) + 5 * (params[2] - 0.2) ** 2
        pull += (params[3] - math.log(math.expm1(0.15))) ** 2
        slope, outweighs = (factor * math.log1p(math.exp(params[at])) for factor, at in ((1, 1), (12, 3)))
        other = Absence(params[0], slope, absence.middle, params[2], outweighs, 12)
        return surprise(score_QV, owner_Q, evidence, other) + pull / 40

    wide = math.log(evidence.temperature / deviation)
    powers = evidence.spread_power, evidence.lead_power
    found = (
        ((evidence.offset - mean) / deviation, wide, *powers),
        (
            absence.shift,
            math.log(math.expm1(absence.slope)),
            absence.size_power,
            math.log(math.expm1(absence.outweighs / 12)),
        ),
    )
    starts = (0.5, -0.4, 0.0, 0.0), (0.5, -0.5, 0.0, -1.5)
    for outside, reached, start in zip((of_videos, of_none), found, starts, strict=True):
        best = minimize(outside, start, method="Nelder-Mead", options={"maxiter": 200}).fun
        assert outside(reached) < best + 1e-3


@pytest.mark.parametrize("slope", [0.05, 0.9])
def test_the_fewer_queries_the_more_of_what_a_model_knew_is_kept(slope):
    evidence, absence = ScoreEvidence(0.3, 0.6, lead_power=1.5), Absence(slope=slope, size_power=0.2)
    by_slope = []
    for count, keeps in ((25, True), (2_000, False)):
        queries = drawn_with_missing(count, 40, seed=5)
        new, kept = fit_evidence(*queries), fit_evidence(*queries, evidence)
        usual = Contrast(torch.tensor(new.spread), torch.tensor(new.lead))
        for number in (
            lambda each: each.offset,
            lambda each: each.sharpness(usual).log().item(),  # noqa: B023
            lambda each: each.lead_power,
        ):
            from_known, from_new = (abs(number(kept) - number(other)) for other in (evidence, new))
            assert (from_known < from_new) == keeps
        new_none, kept_none = fit_absence(*queries, EVIDENCE), fit_absence(*queries, EVIDENCE, known=absence)
        by_slope.append((kept_none.slope - new_none.slope) / (slope - new_none.slope))
    assert 1.1 > by_slope[0] > by_slope[1] > 0, "the share of the way to what it knew"
    steep = fit_absence(*queries, EVIDENCE, known=Absence(slope=1e6))
    assert math.isfinite(steep.slope), "a slope that no fit gives"


def test_what_is_fitted_is_true_of_other_queries_and_other_galleries():
    """Of the first hit and of "none", with the right video taken away for a fifth."""
    evidence, absence = fit_distribution(*drawn_with_missing(2_000, 60, seed=3))
    for videos in (5, 30, 60, 600):
        score_QV, owner_Q = drawn_with_missing(2_000, videos, seed=4)
        gone_Q = torch.arange(len(owner_Q)) % 5 == 0
        usual = torch.tensor(np.random.default_rng(9).normal(0.2, 0.1, int(gone_Q.sum())))
        score_QV[gone_Q, owner_Q[gone_Q]] = usual
        ordered_QV, order_QV = score_QV.sort(1, descending=True)
        found = gallery_distribution(ordered_QV, videos, evidence, absence)
        right_Q = (order_QV[:, 0] == owner_Q) & ~gone_Q
        said, none = found.probability_QK[:, 0].mean().item(), found.none_Q.mean().item()
        assert said == pytest.approx(right_Q.double().mean().item(), abs=0.06)
        assert none == pytest.approx(0.2, abs=0.06)
        if videos <= 60:  # one video among many more changes the sum of all evidence by less
            assert found.none_Q[gone_Q].mean() > found.none_Q[~gone_Q].mean() + 0.05


def test_fitting_stays_finite_where_every_query_is_answered_or_none():
    score_QV = torch.zeros(30, 10)
    owner_Q = torch.arange(30) % 10
    perfect, _ = fit_distribution(score_QV.scatter(1, owner_Q.unsqueeze(1), 1.0), owner_Q)
    opinion = gallery_opinion(torch.tensor([[1.0] + [0.0] * 9]), 10, perfect)
    assert 0.9 < opinion.probability_QK[0, 0].item() <= 1
    blind, absence = fit_distribution(score_QV, owner_Q)
    opinion = gallery_opinion(torch.zeros(1, 10), 10, blind)
    np.testing.assert_allclose(opinion.probability_QK, 0.1, rtol=1e-4)
    told = gallery_distribution(torch.zeros(1, 10), 10, blind, absence)
    assert told.none_Q.item() == pytest.approx(0.2, abs=0.02), "scores that tell nothing leave the prior"


def test_fitting_works_on_what_evaluation_hands_over():
    """Tensors made in inference mode cannot be differentiated through as they are."""
    with torch.inference_mode():
        score_QV, owner_Q = drawn_world(200, 20, EVIDENCE, seed=5)
        inside = fit_distribution(score_QV, owner_Q)
    assert fit_distribution(score_QV, owner_Q) == inside
