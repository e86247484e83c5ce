"""The assignment of queries to clips against SciPy's, and the loss by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment

from holmes.losses.matching import best_assignment, matching_loss


@pytest.mark.parametrize("queries, clips", [(1, 4), (3, 1), (5, 8), (8, 8), (12, 8), (20, 32)])
def test_the_assignment_has_the_largest_total(queries, clips):
    """As many pairs as SciPy's, all different, with the same sum; queries that are padding get none."""
    generator = torch.Generator().manual_seed(queries * 100 + clips)
    score_VMC = torch.rand(25, queries, clips, generator=generator) * 2 - 1
    mask_VM = torch.rand(25, queries, generator=generator) > 0.3
    clip_VM = best_assignment(score_VMC, mask_VM)
    for score_MC, mask_M, clip_M in zip(score_VMC, mask_VM, clip_VM, strict=True):
        rows, columns = linear_sum_assignment(-score_MC[mask_M].numpy())
        pairs = [(row, int(clip)) for row, clip in enumerate(clip_M) if clip >= 0]
        assert all(mask_M[row] for row, _ in pairs)
        assert len({clip for _, clip in pairs}) == len(pairs) == len(rows)
        total = sum(score_MC[pair].item() for pair in pairs)
        assert total == pytest.approx(score_MC[mask_M].numpy()[rows, columns].sum(), abs=1e-5)


def test_the_loss_leaves_out_videos_with_one_query():
    rng = np.random.default_rng(0)
    queries, clips = rng.normal(size=(3, 2, 5)), rng.normal(size=(3, 4, 5))
    mask = np.array([[True, True], [True, False], [True, True]])
    unit = lambda rows: rows / np.linalg.norm(rows, axis=-1, keepdims=True)  # noqa: E731
    found = []
    for video in (0, 2):
        cosine = unit(queries[video]) @ unit(clips[video]).T
        rows, columns = linear_sum_assignment(-cosine)
        found += list(cosine[rows, columns])
    query_VMD = torch.tensor(queries, dtype=torch.float32, requires_grad=True)
    ours = matching_loss(query_VMD, torch.tensor(clips, dtype=torch.float32), torch.tensor(mask))
    assert ours.item() == pytest.approx(1 - np.mean(found), rel=1e-5)
    ours.backward()
    assert torch.isfinite(query_VMD.grad).all() and (query_VMD.grad[1] == 0).all()


def test_a_batch_without_pairs_costs_nothing():
    query_VMD = torch.randn(3, 2, 5, requires_grad=True)
    mask_VM = torch.tensor([[True, False]] * 3)
    loss = matching_loss(query_VMD, torch.randn(3, 4, 5), mask_VM)
    loss.backward()
    assert loss.item() == 0 and (query_VMD.grad == 0).all()
