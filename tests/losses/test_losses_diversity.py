"""L_div, against loops over pairs of queries (appendix B.1)."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import twins
from holmes.losses.diversity import diversity_loss
from small import embedded, tensor


@given(
    st.integers(0, 10_000),
    st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple),
    st.integers(0, 3),
    st.integers(0, 2),
    st.sampled_from((0.15, 0.2)),
)
def test_loss_equals_the_twin_whatever_is_padded(seed, counts, spare_queries, spare_slots, margin):
    world = embedded(seed, counts, spare_queries=spare_queries, spare_slots=spare_slots)
    query_VMD, mask_VM = world.owners.by_video(world.query.query_QD, len(counts))
    twin = twins.diversity(world.groups, margin)
    assert diversity_loss(query_VMD, mask_VM, margin).item() == pytest.approx(twin, rel=2e-5, abs=1e-6)


def test_by_hand():
    """Two queries at right angles: 1 · log(1 + e^(32·.2)), both orders, over two queries."""
    queries = tensor([[[2.0, 0.0], [0.0, 5.0]]])
    loss = diversity_loss(queries, torch.ones(1, 2, dtype=torch.bool), margin=0.2)
    assert loss.item() == pytest.approx(math.log(1 + math.exp(6.4)))


def test_alike_queries_cost_most_and_opposite_ones_nothing():
    mask = torch.ones(1, 2, dtype=torch.bool)
    alike = diversity_loss(tensor([[[1.0, 0.0], [1.0, 0.0]]]), mask, 0.2)
    opposite = diversity_loss(tensor([[[1.0, 0.0], [-1.0, 0.0]]]), mask, 0.2)
    assert alike.item() == pytest.approx(2 * 32 * 1.2, rel=1e-5)
    assert opposite.item() == pytest.approx(0, abs=1e-6)


def test_gradient_is_finite_for_alike_queries_and_absent_for_single_ones():
    queries = torch.ones(2, 2, 3, requires_grad=True)
    mask = torch.tensor([[True, True], [True, False]])
    diversity_loss(queries, mask, 0.2).backward()
    assert torch.isfinite(queries.grad).all()
    assert (queries.grad[1] == 0).all()
