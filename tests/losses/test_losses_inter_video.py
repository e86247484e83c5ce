"""L_inter, against its three terms in loops (eq. 18), Dempster's rule by enumeration among them."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import twins
from holmes.evidence.dirichlet import sharp_evidence
from holmes.losses.inter_video import TERMS, inter_video_loss
from small import assert_close, tensor

SUBSETS = [subset for size in (1, 2, 3) for subset in combinations(TERMS, size)]


def scores(seed: int, queries: int = 5, videos: int = 4):
    rng = np.random.default_rng(seed)
    frame, clip = rng.uniform(-1, 1, (2, queries, videos))
    return frame, clip, rng.dirichlet(np.ones(videos), queries)


def ours(frame, clip, target, mask=None, terms=TERMS, temperature=0.2):
    frame, clip, target = (torch.as_tensor(x) for x in (frame, clip, target))
    mask = torch.ones(len(frame), dtype=torch.bool) if mask is None else mask
    return inter_video_loss(
        sharp_evidence(frame, temperature), sharp_evidence(clip, temperature), target, mask, terms
    )


@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(2, 6), st.sampled_from((0.1, 0.2, 0.5)))
def test_terms_equal_the_twin(seed, queries, videos, temperature):
    frame, clip, target = scores(seed, queries, videos)
    twin = twins.inter_video_terms(frame, clip, target, temperature)
    parts = ours(frame, clip, target, temperature=temperature)
    assert {name: pytest.approx(value.item(), rel=1e-8) for name, value in parts.items()} == {
        f"inter_{name}": value for name, value in twin.items()
    }


@pytest.mark.parametrize("terms", SUBSETS, ids="+".join)
def test_any_subset_of_terms(terms):
    batch = scores(3)
    everything, some = ours(*batch), ours(*batch, terms=terms)
    assert set(some) == {f"inter_{term}" for term in terms}
    for name, value in some.items():
        assert value.item() == pytest.approx(everything[name].item(), rel=1e-12)


@given(st.integers(0, 10_000), st.integers(1, 4))
def test_padded_queries_count_for_nothing(seed, spare):
    frame, clip, target = scores(seed)
    padded = [np.concatenate([x, np.ones((spare, 4))]) for x in (frame, clip, target)]
    mask = torch.arange(5 + spare) < 5
    assert_close(list(ours(*padded, mask=mask).values()), list(ours(frame, clip, target).values()), 1e-12)


def test_gradient_equals_differences_of_the_twin():
    """Central differences of the loops in float64, label held fixed."""
    frame, clip, target = scores(1, queries=2, videos=3)
    leaf = torch.tensor(frame, requires_grad=True)
    sum(ours(leaf, clip, target).values()).backward()
    step, numeric = 1e-6, np.zeros_like(frame)
    for place in np.ndindex(frame.shape):
        sides = []
        for sign in (1, -1):
            moved = frame.copy()
            moved[place] += sign * step
            sides.append(sum(twins.inter_video_terms(moved, clip, target, 0.2).values()))
        numeric[place] = (sides[0] - sides[1]) / (2 * step)
    assert_close(leaf.grad, numeric, 1e-6)


def test_extremes_are_finite():
    frame = tensor([[1.0, -1.0], [-1.0, 1.0]]).requires_grad_()
    clip = tensor([[-1.0, 1.0], [-1.0, -1.0]]).requires_grad_()
    total = sum(ours(frame, clip, torch.eye(2), temperature=0.04).values())
    total.backward()
    assert torch.isfinite(total)
    assert torch.isfinite(frame.grad).all()
    assert torch.isfinite(clip.grad).all()
