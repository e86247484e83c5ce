"""Recall, against sorted lists."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import twins
from holmes.evaluation.recall import rank_of_owner, recall
from small import tensor


@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 9), st.sampled_from((2, 4, 1000)))
def test_ranks_equal_sorted_lists_with_ties(seed, queries, videos, levels):
    """Few levels make many ties; a tied video comes before the right one."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, levels, (queries, videos)) / levels - 0.5
    owner = rng.integers(0, videos, queries)
    ours = rank_of_owner(tensor(scores), torch.from_numpy(owner))
    assert ours.tolist() == [twins.worst_rank(row, o) for row, o in zip(scores, owner, strict=True)]


@given(st.lists(st.integers(1, 150), min_size=1, max_size=30))
def test_recall_counts_ranks(ranks):
    ours = recall(torch.tensor(ranks))
    twin = {f"R@{k}": 100 * sum(rank <= k for rank in ranks) / len(ranks) for k in (1, 5, 10, 100)}
    assert ours == pytest.approx(twin | {"SumR": sum(twin.values())})


def test_scores_all_alike_find_nothing():
    ranks = rank_of_owner(torch.zeros(3, 50), torch.tensor([0, 20, 49]))
    assert ranks.tolist() == [50, 50, 50]


def test_negative_scores_are_scores():
    assert rank_of_owner(tensor([[-0.9, -0.2, -0.5]]), torch.tensor([1])).item() == 1


def test_a_model_of_nan_finds_nothing():
    """Comparisons with NaN are false; they must not count as found."""
    scores = torch.tensor([[math.nan, math.nan, math.nan], [0.1, math.nan, 0.3]])
    ranks = rank_of_owner(scores, torch.tensor([0, 2]))
    assert ranks[0] > 100 and ranks[1] == 2
    assert recall(ranks) == {"R@1": 0.0, "R@5": 50.0, "R@10": 50.0, "R@100": 50.0, "SumR": 150.0}


def test_other_cutoffs_and_no_query():
    assert recall(torch.tensor([1, 3]), cutoffs=(2,)) == {"R@2": 50.0, "SumR": 50.0}
    assert math.isnan(recall(torch.tensor([], dtype=torch.long))["SumR"])


@given(st.integers(0, 10_000), st.permutations(range(6)))
def test_the_order_of_videos_does_not_matter(seed, order):
    rng = np.random.default_rng(seed)
    scores, owner = tensor(rng.integers(0, 4, (5, 6))), torch.from_numpy(rng.integers(0, 6, 5))
    place = torch.tensor(np.argsort(order))
    assert torch.equal(rank_of_owner(scores[:, list(order)], place[owner]), rank_of_owner(scores, owner))
