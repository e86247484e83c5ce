"""L_trip, hard and random, against loops, enumeration and counting (appendix B.1)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

import twins
from holmes.losses.triplet import negative_query, negative_video, triplet_loss
from small import tensor


def batch(seed: int, queries: int = 7, videos: int = 5):
    """Every video has at least one query where there are enough."""
    rng = np.random.default_rng(seed)
    owner = rng.permutation(np.arange(queries) % videos)
    return rng.uniform(-1, 1, (queries, videos)), owner


def ours(similarity, owner, margin=0.2, hard_pool=None, mask=None, uniform=None):
    mask = torch.ones(len(owner), dtype=torch.bool) if mask is None else mask
    uniform = torch.rand(similarity.shape) if uniform is None else uniform
    return triplet_loss(tensor(similarity), torch.as_tensor(owner), mask, uniform, margin, hard_pool).item()


def expected_random_loss(similarity, owner, margin):
    """The mean over every negative a query and a video could have met."""
    queries, videos = similarity.shape
    rows = [
        np.mean(
            [
                max(0, margin + similarity[q, v] - similarity[q, owner[q]])
                for v in range(videos)
                if v != owner[q]
            ]
        )
        for q in range(queries)
    ]
    columns = []
    for v in sorted(set(owner)):
        positive = np.mean([similarity[q, v] for q in range(queries) if owner[q] == v])
        columns.append(
            np.mean([max(0, margin + similarity[q, v] - positive) for q in range(queries) if owner[q] != v])
        )
    return np.mean(rows) + np.mean(columns)


@given(
    st.integers(0, 10_000),
    st.integers(1, 9),
    st.integers(1, 6),
    st.sampled_from((0.1, 0.2)),
    st.integers(0, 3),
)
def test_hardest_negatives_equal_the_twin(seed, queries, videos, margin, spare):
    similarity, owner = batch(seed, queries, videos)
    twin = twins.hard_triplet(similarity, owner, margin)
    padded = np.concatenate([similarity, np.ones((spare, videos))])
    owners = np.concatenate([owner, np.zeros(spare, dtype=int)])
    mask = torch.arange(queries + spare) < queries
    assert ours(padded, owners, margin, hard_pool=1, mask=mask) == pytest.approx(twin, abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_random_negatives_have_the_right_mean(seed):
    """The mean of 3,000 draws equals the mean over all negatives, within 4 standard errors."""
    torch.manual_seed(seed)
    similarity, owner = batch(seed)
    draws = np.array([ours(similarity, owner) for _ in range(3000)])
    error = draws.std() / np.sqrt(len(draws))
    assert abs(draws.mean() - expected_random_loss(similarity, owner, 0.2)) < 4 * error


@pytest.mark.parametrize(
    "pool, allowed", [(None, {1, 2, 3, 4, 5}), (3, {5, 4, 3}), (1, {5}), (9, {1, 2, 3, 4, 5})]
)
def test_a_query_meets_every_allowed_video_equally_often(pool, allowed):
    """Video v scores v/10 and video 0 is the query's own, so the score tells which one was drawn."""
    torch.manual_seed(0)
    draws = 12_000
    similarity = (torch.arange(6) / 10).expand(draws, 6)
    other = torch.tensor([False] + [True] * 5).expand(draws, 6)
    chosen = (negative_video(similarity, other, torch.rand(draws, 6), pool) * 10).round().int().tolist()
    assert set(chosen) == allowed
    assert len(allowed) == 1 or chisquare([chosen.count(v) for v in sorted(allowed)]).pvalue > 1e-3


def test_a_video_meets_every_wrong_query_equally_often_or_the_hardest():
    torch.manual_seed(0)
    draws = 12_000
    similarity = (torch.arange(5) / 10).unsqueeze(1).expand(5, draws)
    other = torch.tensor([True, False, True, True, False]).unsqueeze(1).expand(5, draws)
    uniform = torch.rand(5, draws)
    chosen = (negative_query(similarity, other, uniform, None) * 10).round().int().tolist()
    assert set(chosen) == {0, 2, 3}
    assert chisquare([chosen.count(q) for q in (0, 2, 3)]).pvalue > 1e-3
    assert (negative_query(similarity, other, uniform, 20) == similarity[3]).all()


@given(st.integers(0, 10_000), st.integers(1, 4))
def test_padded_queries_are_never_drawn(seed, spare):
    """They would be the worst negatives of all."""
    similarity, owner = batch(seed)
    torch.manual_seed(seed)
    uniform = torch.rand(7 + spare, 5)
    padded = np.concatenate([similarity, np.full((spare, 5), 99.0)])
    owners = np.concatenate([owner, np.zeros(spare, dtype=int)])
    mask = torch.arange(7 + spare) < 7
    for pool in (None, 1, 3):
        alone = ours(similarity, owner, hard_pool=pool, uniform=uniform[:7])
        assert ours(padded, owners, hard_pool=pool, mask=mask, uniform=uniform) == pytest.approx(
            alone, abs=1e-6
        )


def test_by_hand():
    """Margin .2. Query 0 loses .1 to video 1, query 1 nothing; video 0 loses nothing, video 1 loses .1."""
    similarity = np.array([[0.6, 0.5], [0.1, 0.6]])
    assert ours(similarity, [0, 1], hard_pool=1) == pytest.approx((0.1 + 0.0) / 2 + (0.0 + 0.1) / 2)


@pytest.mark.parametrize("pool", [None, 1, 20])
def test_without_a_negative_there_is_no_loss_and_no_nan(pool):
    """A batch of one video, with one query and with several."""
    for queries in (1, 3):
        similarity = torch.rand(queries, 1, requires_grad=True)
        loss = triplet_loss(
            similarity,
            torch.zeros(queries, dtype=torch.long),
            torch.ones(queries, dtype=torch.bool),
            torch.rand(queries, 1),
            0.2,
            pool,
        )
        loss.backward()
        assert loss.item() == 0
        assert (similarity.grad == 0).all()


def test_gradient_pulls_the_positive_up_and_the_negative_down():
    similarity = torch.tensor([[0.3, 0.4]], requires_grad=True)
    mask = torch.ones(1, dtype=torch.bool)
    triplet_loss(similarity, torch.tensor([0]), mask, torch.rand(1, 2), 0.2, 1).backward()
    assert similarity.grad.tolist() == [[-1, 1]]
