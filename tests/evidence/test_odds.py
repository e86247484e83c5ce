"""The correction of log-odds: against SciPy, where the truth is known, and in galleries of other sizes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import expit, log_expit, logit

from holmes.evidence.distribution import (
    ODDS_PRIOR,
    OddsCorrection,
    ScoreEvidence,
    fit_odds_correction,
    gallery_opinion,
)


def said_and_right(slope: float, shift: float, queries: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    """What is said, where the truth is shift + slope · log-odds of it."""
    rng = np.random.default_rng(0)
    said = expit(rng.normal(-1.5, 1.5, queries))
    return said, rng.random(queries) < expit(shift + slope * logit(said))


@pytest.mark.parametrize(("slope", "shift"), [(1.0, 0.0), (1.4, 0.3), (0.6, -0.4)])
def test_the_line_is_that_of_scipy(slope: float, shift: float) -> None:
    said, right = said_and_right(slope, shift)

    def loss(line: np.ndarray) -> float:
        odds = line[0] + line[1] * logit(said)
        penalty = ODDS_PRIOR / 2 * (line[0] ** 2 + (line[1] - 1) ** 2)
        return float(-log_expit(np.where(right, odds, -odds)).sum() + penalty)

    expected = minimize(loss, [0.0, 1.0]).x
    found = fit_odds_correction(torch.from_numpy(said), torch.from_numpy(right), 100)
    np.testing.assert_allclose([found.shift, found.slope], expected, atol=1e-4)
    assert (found.shift, found.slope) == pytest.approx((shift, slope), abs=0.15)


def test_what_was_said_becomes_true() -> None:
    said, right = said_and_right(1.5, 0.2)
    corrected = fit_odds_correction(torch.from_numpy(said), torch.from_numpy(right), 100).of(
        torch.from_numpy(said), 100
    )
    for group in np.array_split(np.argsort(said), 8):
        assert corrected[group].mean().item() == pytest.approx(right[group].mean(), abs=0.06)


def test_few_queries_change_little_and_none_go_wrong() -> None:
    few = fit_odds_correction(torch.tensor([0.3, 0.4]), torch.tensor([True, False]), 10)
    assert few.slope == pytest.approx(1, abs=0.1) and few.shift == pytest.approx(0, abs=0.1)
    always = fit_odds_correction(torch.full((500,), 0.999), torch.ones(500) > 0, 10)
    assert np.isfinite([always.shift, always.slope]).all()
    assert always.of(torch.tensor([0.0, 1.0]), 10).isfinite().all()


def test_twice_the_videos_halve_the_odds_whatever_the_line() -> None:
    """More videos of the same kind take their share, which has nothing to do with calibration."""
    correction = OddsCorrection(0.3, 1.5, 101)
    plain = torch.tensor([0.2, 0.5])
    in_more = torch.sigmoid(torch.logit(plain) - np.log(2))
    odds, odds_in_more = (torch.logit(correction.of(p, n)) for p, n in ((plain, 101), (in_more, 201)))
    torch.testing.assert_close(odds - odds_in_more, torch.full((2,), np.log(2)).float(), atol=1e-5, rtol=0)


@pytest.mark.parametrize("slope", [0.5, 1.0, 2.0])
def test_a_corrected_opinion_is_still_one(slope: float) -> None:
    score_QK = torch.randn(50, 20, generator=torch.Generator().manual_seed(0)).sort(1, descending=True).values
    plain = gallery_opinion(score_QK, 20, ScoreEvidence(0.5, 0.5))
    corrected = gallery_opinion(
        score_QK, 20, ScoreEvidence(0.5, 0.5), correction=OddsCorrection(-0.2, slope, 20)
    )
    probability_QK = corrected.probability_QK
    assert (probability_QK >= 0).all() and (probability_QK.sum(1) <= 1 + 1e-5).all()
    assert (probability_QK[:, 1:] <= probability_QK[:, :1]).all()
    assert torch.equal(probability_QK[:, 0].argsort(), plain.probability_QK[:, 0].argsort())
    torch.testing.assert_close(corrected.vacuity_Q, plain.vacuity_Q)
    torch.testing.assert_close(
        corrected.fits_Q, (plain.probability_QK >= plain.probability_QK[:, :1] / 2).sum(1)
    )
