"""L_U, against eq. 17 letter by letter and against sampling."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import twins
from holmes.evidence.dirichlet import concentration, sharp_evidence
from holmes.evidence.fusion import fuse_evidence
from holmes.losses.evidential import evidential_loss
from small import assert_close, tensor


@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(1, 9), st.floats(0.1, 1e4))
def test_loss_equals_the_printed_formula(seed, queries, classes, size):
    rng = np.random.default_rng(seed)
    alpha = 1 + size * rng.random((queries, classes))
    target = rng.dirichlet(np.ones(classes), queries)
    twin = [twins.evidential_loss(a, y) for a, y in zip(alpha, target, strict=True)]
    assert_close(evidential_loss(torch.from_numpy(alpha), torch.from_numpy(target)), twin, 1e-12)
    assert_close(evidential_loss(tensor(alpha), tensor(target)), twin, 1e-5)


@pytest.mark.parametrize(
    "alpha, target",
    [
        ([1.0, 1.0], [1.0, 0.0]),
        ([1.2, 3.4, 9.0], [0.1, 0.2, 0.7]),
        ([40.0, 1.0, 1.5, 2.0, 1.0], [0.0, 1.0, 0.0, 0.0, 0.0]),
    ],
)
def test_loss_equals_sampling(alpha, target):
    """The mean squared distance of 200,000 Dirichlet samples to the label, within 4 standard errors."""
    p = np.random.default_rng(0).dirichlet(alpha, 200_000)
    squared = ((np.array(target) - p) ** 2).sum(1)
    error = squared.std() / math.sqrt(len(squared))
    ours = evidential_loss(tensor([alpha], torch.float64), tensor([target], torch.float64)).item()
    assert abs(ours - squared.mean()) < 4 * error


def test_by_hand():
    """α = (2, 1), ŷ = (1, 0): m = (2/3, 1/3), squares 2/9, variances 2 · (2/9)/4."""
    assert evidential_loss(tensor([[2.0, 1.0]]), tensor([[1.0, 0.0]])).item() == pytest.approx(3 / 9)


def test_no_overflow_where_the_printed_form_has_one():
    """Both branches at s = .7, τ = .04: S² (S + 1) of the fused opinion overflows float32, ours does not."""
    evidence = sharp_evidence(torch.full((1, 128), 0.7), 0.04)
    alpha = concentration(fuse_evidence(evidence, evidence))
    target = torch.nn.functional.one_hot(torch.tensor([3]), 128).float()
    strength = alpha.sum()
    assert torch.isinf(strength**2 * (strength + 1))
    twin = twins.evidential_loss(alpha[0].double().tolist(), target[0].tolist())
    assert evidential_loss(alpha, target).item() == pytest.approx(twin, rel=1e-5)


@pytest.mark.parametrize("temperature", (0.02, 0.04))
def test_extreme_similarities_have_finite_loss_and_gradient(temperature):
    similarity = torch.tensor([[1.0, -1.0, 1.0], [-1.0, -1.0, -1.0], [1.0, 1.0, 1.0]], requires_grad=True)
    target = torch.eye(3)
    loss = evidential_loss(concentration(sharp_evidence(similarity, temperature)), target).sum()
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(similarity.grad).all()


def test_the_loss_asks_for_evidence_on_the_label_and_none_elsewhere():
    alpha = torch.full((1, 4), 2.0, requires_grad=True)
    evidential_loss(alpha, torch.tensor([[0.0, 1.0, 0.0, 0.0]])).sum().backward()
    assert alpha.grad[0, 1] < 0
    assert (alpha.grad[0, [0, 2, 3]] > 0).all()
