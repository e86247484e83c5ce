"""Entropic transport, against POT and the iteration of appendix B.5."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import holmes.transport.sinkhorn as sinkhorn_module
import twins
from holmes.transport.sinkhorn import LOG_ZERO, log_marginal, sinkhorn

EPSILON = 0.1


def problem(seed: int, sources: int, targets: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return (
        rng.random((sources, targets)),
        rng.dirichlet(np.full(sources, 3.0)),
        rng.dirichlet(np.full(targets, 3.0)),
    )


def solve(score, source, target, iterations=1000, dtype=torch.float64):
    scaled, log_source, log_target = (
        torch.tensor(x, dtype=dtype).unsqueeze(0) for x in (score / EPSILON, np.log(source), np.log(target))
    )
    return sinkhorn(scaled, log_source, log_target, iterations).squeeze(0)


@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 6))
def test_plan_equals_pots(seed, sources, targets):
    """POT minimises a cost, we maximise a score: the cost is the negative score."""
    score, source, target = problem(seed, sources, targets)
    reference = twins.pots_plan(source, target, -score, EPSILON)
    assert np.abs(solve(score, source, target).numpy() - reference).max() < 1e-6


@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 6), st.integers(1, 50))
def test_iterations_equal_the_twin(seed, sources, targets, iterations):
    """Not only the limit: after any number of iterations the plan is that of the printed updates."""
    score, source, target = problem(seed, sources, targets)
    twin = twins.sinkhorn(score, source, target, EPSILON, iterations)
    np.testing.assert_allclose(solve(score, source, target, iterations), twin, rtol=1e-9, atol=1e-15)


@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 6))
def test_plan_meets_its_marginals(seed, sources, targets):
    score, source, target = problem(seed, sources, targets)
    plan = solve(score, source, target).numpy()
    assert (plan >= 0).all()
    assert np.abs(plan.sum(1) - source).max() < 1e-6
    assert np.abs(plan.sum(0) - target).max() < 1e-6


@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(1, 4))
def test_masked_targets_receive_nothing_and_change_nothing(seed, targets, spare):
    score, source, target = problem(seed, 7, targets)
    padded = np.hstack([score, np.random.default_rng(seed + 1).random((7, spare)) * 5])
    mask = torch.arange(targets + spare) < targets
    log_target = log_marginal(torch.tensor(np.concatenate([target, np.ones(spare)])), mask)
    log_source = torch.tensor(np.log(source))
    plan = sinkhorn(torch.tensor(padded / EPSILON)[None], log_source[None], log_target[None], 50)[0]
    assert plan[:, targets:].abs().max() == 0
    np.testing.assert_allclose(plan[:, :targets], solve(score, source, target, 50), rtol=1e-9)


def test_log_marginal_by_hand():
    ours = log_marginal(torch.tensor([1.0, 0.5, 0.5]), torch.tensor([True, True, False]))
    np.testing.assert_allclose(ours, [0.0, np.log(0.5), LOG_ZERO], rtol=1e-6)


def test_problems_of_a_batch_do_not_meet():
    problems = [problem(seed, 6, 4) for seed in range(3)]
    scores, sources, targets = (torch.tensor(np.stack(x)) for x in zip(*problems, strict=True))
    together = sinkhorn(scores / EPSILON, sources.log(), targets.log(), 50)
    for plan, alone in zip(together, problems, strict=True):
        np.testing.assert_allclose(plan, solve(*alone, iterations=50), rtol=1e-12)


def test_a_problem_without_targets_stays_finite():
    nothing = torch.full((1, 3), LOG_ZERO)
    plan = sinkhorn(torch.rand(1, 5, 3), torch.full((1, 5), 0.2).log(), nothing, 50)
    assert torch.isfinite(plan).all()


@pytest.mark.parametrize("factor", [1.0, 20.0])
def test_both_forms_agree_in_single_precision(factor, monkeypatch):
    """Products of exponentials where scores lie close together, and sums of logarithms where they do not."""
    torch.manual_seed(0)
    scores, mask = factor * 10 * torch.rand(6, 8, 5), torch.rand(6, 5) < 0.7
    mask[:, 0] = True
    given = (torch.full((6, 8), 1 / 8).log(), log_marginal(mask / mask.sum(1, keepdim=True), mask))
    seen, products = [], sinkhorn_module.sinkhorn_by_products

    def watched(*inputs):
        seen.append(1)
        return products(*inputs)

    monkeypatch.setattr(sinkhorn_module, "sinkhorn_by_products", watched)
    plan = sinkhorn(scores, *given)
    assert len(seen) == (factor == 1), "exponentials of scores far apart would be 0"
    monkeypatch.setattr(sinkhorn_module, "LARGEST_SPREAD", -1.0)
    for other in (sinkhorn(scores, *given), sinkhorn(scores.double(), *given)):
        np.testing.assert_allclose(plan, other, atol=1e-5 * plan.max().item())
