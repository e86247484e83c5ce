"""MS-SL's losses over queries × queries, against loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from holmes.losses.cross_query import (
    cross_query_losses,
    gathered_by_own_query,
    pair_contrastive_loss,
    pair_scores,
    pair_triplet_loss,
)
from holmes.records import VideoEmbedding
from small import embedded

COUNTS = (3, 1, 2)


def world(spare: int = 0):
    """Videos whose frame vectors belong to their clip positions one by one."""
    found = embedded(0, COUNTS, spare_queries=spare, spare_slots=spare)
    frames_VPD = torch.randn(len(COUNTS), 8, 6, generator=torch.Generator().manual_seed(1))
    everyone = torch.ones(len(COUNTS), 8, dtype=torch.bool)
    return found, VideoEmbedding(frames_VPD, everyone, found.video.clips_VCD)


@pytest.mark.parametrize("spare", [0, 2])
def test_vectors_scores_and_losses_equal_the_loops(spare):
    found, video = world(spare)
    queries, owner = found.queries, found.owner
    gathered = []
    for query, own in zip(queries, owner, strict=True):
        clips = video.clips_VCD[own]
        similar = [F.cosine_similarity(torch.tensor(query), clip, dim=0).item() for clip in clips]
        gathered.append(video.frames_VFD[own, int(np.argmax(similar))].numpy())
    ours = gathered_by_own_query(found.query, video, found.owners)[: len(owner)]
    np.testing.assert_allclose(ours, gathered, rtol=1e-6)
    raw = queries @ np.array(gathered).T
    cosine = raw / np.linalg.norm(queries, axis=1)[:, None] / np.linalg.norm(gathered, axis=1)
    count = len(owner)
    triplet, nce = 0.0, 0.0
    for i in range(count):
        others = [j for j in range(count) if j != i]
        triplet += max(0, 0.1 + max(cosine[i, j] for j in others) - cosine[i, i])
        triplet += max(0, 0.1 + max(cosine[j, i] for j in others) - cosine[i, i])
        nce += math.log(sum(math.exp(raw[i, j]) + math.exp(raw[j, i]) for j in range(count))) - raw[i, i]
    uniform = torch.rand(count + spare, 3)
    parts = cross_query_losses(found.query, video, found.owners, uniform, 0.1, 1)
    assert parts["triplet_frame"].item() == pytest.approx(triplet / count, rel=1e-5)
    assert parts["contrastive_frame"].item() == pytest.approx(nce / count, rel=1e-5)


def test_random_negatives_are_uniform_and_never_the_positive():
    """One other query each; over many draws every other one is met equally often."""
    cosine_QQ = torch.arange(16.0).view(4, 4) / 100
    mask_Q = torch.tensor([True, True, True, False])
    met = []
    for uniform in torch.rand(4000, 4, 2, generator=torch.Generator().manual_seed(0)):
        loss = pair_triplet_loss(cosine_QQ, mask_Q, uniform, 10.0, None)
        met.append(loss.item())
    rows = [[cosine_QQ[i, j] - cosine_QQ[i, i] for j in range(3) if j != i] for i in range(3)]
    columns = [[cosine_QQ[j, i] - cosine_QQ[i, i] for j in range(3) if j != i] for i in range(3)]
    assert np.mean(met) == pytest.approx(20 + np.mean(rows) + np.mean(columns), abs=2e-3)
    assert max(met) <= 20 + np.mean(np.max(rows, 1)) + np.mean(np.max(columns, 1)) + 1e-5


def test_one_query_alone_and_padding_leave_finite_gradients():
    query_QD = torch.randn(3, 4, requires_grad=True)
    mask_Q = torch.tensor([True, False, False])
    cosine_QQ, dot_QQ = pair_scores(query_QD, torch.randn(3, 4))
    total = pair_triplet_loss(cosine_QQ, mask_Q, torch.rand(3, 1), 0.1, 2)
    total = total + pair_contrastive_loss(dot_QQ, mask_Q)
    total.backward()
    assert torch.isfinite(total) and torch.isfinite(query_QD.grad).all()
