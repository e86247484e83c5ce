"""L_nce, against plain exponentials in loops (appendix B.1)."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import twins
from holmes.losses.contrastive import contrastive_loss
from small import tensor


@given(st.integers(0, 10_000), st.integers(1, 9), st.integers(1, 6), st.integers(0, 3))
def test_loss_equals_the_twin_whatever_is_padded(seed, queries, videos, spare):
    rng = np.random.default_rng(seed)
    dots, owner = rng.normal(size=(queries, videos)) * 3, rng.integers(0, videos, queries)
    padded = tensor(np.concatenate([dots, np.full((spare, videos), 50.0)]))
    owners = torch.from_numpy(np.concatenate([owner, np.zeros(spare, dtype=int)]))
    ours = contrastive_loss(padded, owners, torch.arange(queries + spare) < queries)
    assert ours.item() == pytest.approx(twins.info_nce(dots, owner.tolist()), rel=1e-5, abs=1e-6)


def test_by_hand():
    """Two queries of video 0, none of video 1. Video→text: all of its queries are in the numerator."""
    dots = tensor([[math.log(3.0), 0.0], [math.log(1.0), 0.0]])
    loss = contrastive_loss(dots, torch.tensor([0, 0]), torch.ones(2, dtype=torch.bool))
    assert loss.item() == pytest.approx((math.log(4 / 3) + math.log(2)) / 2 + 0)


def test_unnormalised_scores_of_any_size_stay_finite():
    """Raw dot products have no bound; exp would overflow at 89."""
    dots = torch.tensor([[900.0, -900.0], [0.0, 900.0]], requires_grad=True)
    loss = contrastive_loss(dots, torch.tensor([1, 1]), torch.ones(2, dtype=torch.bool))
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(dots.grad).all()


def test_a_video_without_queries_and_a_batch_of_one():
    dots = torch.tensor([[0.3, 0.7]], requires_grad=True)
    loss = contrastive_loss(dots, torch.tensor([0]), torch.ones(1, dtype=torch.bool))
    loss.backward()
    assert loss.item() == pytest.approx(math.log(1 + math.exp(0.4)))
    assert torch.isfinite(dots.grad).all()
    alone = contrastive_loss(torch.tensor([[5.0]]), torch.tensor([0]), torch.ones(1, dtype=torch.bool))
    assert alone.item() == 0
