"""Evidence, opinions and expected entropy, against SciPy and sampling (eq. 3-5, 9)."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import twins
from holmes.evidence.dirichlet import (
    bounded_evidence,
    concentration,
    expected_entropy,
    opinion,
    sharp_evidence,
    strength,
)
from small import assert_close, tensor

TEMPERATURES = (0.04, 0.05, 0.08, 0.1, 0.2, 0.5)
similarities = arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(1, 9)), elements=st.floats(-1, 1))
evidences = arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(1, 9)), elements=st.floats(0, 1e9))


@given(similarities, st.sampled_from(TEMPERATURES))
def test_both_forms_equal_their_formula(similarity, temperature):
    """exp(tanh(s)/τ), released, and exp(tanh(s/τ)), printed: both exist and differ."""
    released = [[twins.released_evidence(s, temperature) for s in row] for row in similarity]
    printed = [[twins.printed_evidence(s, temperature) for s in row] for row in similarity]
    ours = torch.from_numpy(similarity)
    np.testing.assert_allclose(sharp_evidence(ours, temperature), released, rtol=1e-12)
    np.testing.assert_allclose(bounded_evidence(ours, temperature), printed, rtol=1e-12)
    np.testing.assert_allclose(sharp_evidence(ours.float(), temperature), released, rtol=1e-4)


def test_the_printed_form_bounds_uncertainty():
    """u lies in [1/(1+e), 1/(1+1/e)] = [.269, .731] whatever s is; the released form reaches 0."""
    for similarity, bound in ((1.0, 0.2689414), (-1.0, 0.7310586)):
        everywhere = torch.full((1, 128), similarity, dtype=torch.float64)
        assert opinion(bounded_evidence(everywhere, 0.01)).uncertainty_Q.item() == pytest.approx(bound)
    assert opinion(sharp_evidence(torch.ones(1, 128), 0.04)).uncertainty_Q.item() < 1e-7


@given(evidences)
def test_opinion_equals_the_twin_and_sums_to_one(evidence):
    ours = opinion(torch.from_numpy(evidence))
    belief, uncertainty = zip(*(twins.opinion(row) for row in evidence), strict=True)
    assert_close(ours.belief_QV, belief, 1e-12)
    np.testing.assert_allclose(ours.uncertainty_Q, uncertainty, rtol=1e-12)
    assert_close(ours.belief_QV.sum(-1) + ours.uncertainty_Q, np.ones(len(evidence)), 1e-12)
    single = opinion(tensor(evidence))
    assert_close(single.belief_QV.sum(-1) + single.uncertainty_Q, np.ones(len(evidence)), 1e-6)


def test_small_evidence_is_not_lost_to_rounding():
    """In float32 (e + 1) - 1 would be 0 here."""
    belief = opinion(tensor([[1e-9, 1e-9]])).belief_QV
    np.testing.assert_allclose(belief, [[5e-10, 5e-10]], rtol=1e-5)


def test_concentration_and_strength_by_hand():
    alpha = concentration(tensor([[0.0, 1.0, 4.0]]))
    assert alpha.tolist() == [[1, 2, 5]]
    assert strength(alpha).tolist() == [8]


@given(evidences)
def test_expected_entropy_equals_scipys_digamma(evidence):
    twin = [twins.expected_entropy(row + 1) for row in evidence]
    assert_close(expected_entropy(torch.from_numpy(evidence + 1)), twin, 1e-9)
    assert_close(expected_entropy(tensor(evidence + 1)), twin, 2e-5)


@pytest.mark.parametrize("alpha", [[1.0, 1.0], [1.2, 3.4, 9.0], [40.0, 1.0, 1.5, 2.0, 1.0], [1.01] * 12])
def test_expected_entropy_equals_sampling(alpha):
    """The mean entropy of 200,000 Dirichlet samples, within 4 standard errors."""
    p = np.random.default_rng(0).dirichlet(alpha, 200_000)
    entropy = -(p * np.log(np.maximum(p, 1e-300))).sum(1)
    error = entropy.std() / math.sqrt(len(entropy))
    assert abs(expected_entropy(tensor([alpha], torch.float64)).item() - entropy.mean()) < 4 * error


def test_entropy_tells_one_candidate_from_many():
    one, many = expected_entropy(tensor([[1000.0, 1.0, 1.0, 1.0], [250.0, 251.0, 250.0, 252.0]]))
    assert one < 0.1 < 1.3 < many < math.log(4)


def test_low_uncertainty_does_not_mean_right():
    """The counter-example of appendix B.2: all evidence on a wrong video, and u goes to nothing."""
    wrong = opinion(tensor([[0.0, 1e6, 0.0, 0.0]]))
    assert wrong.uncertainty_Q.item() < 1e-5
    assert wrong.belief_QV.argmax().item() == 1


@pytest.mark.parametrize("form", [sharp_evidence, bounded_evidence])
def test_half_precision_is_lifted_and_double_is_kept(form):
    assert form(torch.ones(1, dtype=torch.bfloat16), 0.04).dtype == torch.float32
    assert form(torch.ones(1, dtype=torch.float16), 0.04).dtype == torch.float32
    assert form(torch.ones(1, dtype=torch.float64), 0.04).dtype == torch.float64


@pytest.mark.parametrize("form", [sharp_evidence, bounded_evidence])
def test_extremes_are_finite_with_finite_gradients(form):
    similarity = torch.tensor([[1.0, -1.0, 1.0, 0.0], [-1.0, -1.0, -1.0, -1.0]], requires_grad=True)
    evidence = form(similarity, 0.04)
    view = opinion(evidence)
    total = view.belief_QV.sum() + view.uncertainty_Q.sum() + expected_entropy(concentration(evidence)).sum()
    total.backward()
    assert torch.isfinite(total)
    assert torch.isfinite(similarity.grad).all()


@given(evidences, st.integers(0, 3))
def test_leading_shapes_are_free(evidence, extra):
    """The same functions serve queries × videos and videos × queries × clips."""
    flat = torch.from_numpy(evidence)
    deep = flat.expand(extra + 1, *flat.shape)
    assert_close(expected_entropy(deep + 1)[-1], expected_entropy(flat + 1), 1e-12)
    assert_close(opinion(deep).belief_QV[0], opinion(flat).belief_QV, 1e-12)
