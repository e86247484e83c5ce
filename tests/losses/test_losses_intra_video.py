"""L_intra, against loops over videos, queries and clips (section 3.3)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import twins
from holmes.evidence.dirichlet import bounded_evidence
from holmes.losses.intra_video import clip_query_similarity, intra_video_loss
from holmes.transport.alignment import best_clip_alignment, plain_alignment, softmax_alignment
from small import embedded

counts_of_queries = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


def inputs(world):
    query_VMD, mask_VM = world.owners.by_video(world.query.query_QD, len(world.clips))
    return query_VMD, world.video.clips_VCD, mask_VM


@given(
    st.integers(0, 10_000),
    counts_of_queries,
    st.integers(0, 2),
    st.integers(0, 2),
    st.sampled_from((0.06, 0.08, 0.2)),
)
def test_loss_equals_the_twin(seed, counts, spare_queries, spare_slots, temperature):
    world = embedded(seed, counts, spare_queries=spare_queries, spare_slots=spare_slots)
    twin = twins.intra_video_loss(world.groups, world.clips, temperature)
    assert intra_video_loss(*inputs(world), temperature).item() == pytest.approx(twin, rel=2e-4)


def test_the_printed_evidence_form_is_an_option():
    world = embedded(4)
    twin = twins.intra_video_loss(world.groups, world.clips, 0.1, evidence=twins.printed_evidence)
    ours = intra_video_loss(*inputs(world), 0.1, form=bounded_evidence)
    assert ours.item() == pytest.approx(twin, rel=1e-5)


@pytest.mark.parametrize(
    "align, twin",
    [
        (plain_alignment, twins.plain_alignment),
        (softmax_alignment, lambda s: np.array([twins.softmax(row / 0.1) for row in s])),
        (best_clip_alignment, lambda s: np.eye(s.shape[1])[s.argmax(1)]),
    ],
)
def test_alignments_are_swapped_by_passing_another(align, twin):
    world = embedded(5)
    targets = [twin(twins.scaled_similarity(q, c)) for q, c in zip(world.groups, world.clips, strict=True)]
    expected = twins.intra_video_loss(world.groups, world.clips, 0.2, targets)
    assert intra_video_loss(*inputs(world), 0.2, align).item() == pytest.approx(expected, rel=1e-5)


def test_gradient_flows_through_the_scaling_and_not_through_the_plan():
    """Central differences of the loops in float64 with the plan held fixed."""
    world = embedded(2, counts=(2, 1), width=4, clips=5)
    query_VMD, clips_VCD, mask_VM = inputs(world)
    leaf = query_VMD.clone().requires_grad_()
    intra_video_loss(leaf, clips_VCD, mask_VM, 0.2).backward()
    groups = [group.astype(np.float64) for group in world.groups]
    plans = [
        twins.flexible_alignment(twins.scaled_similarity(q, c))
        for q, c in zip(groups, world.clips, strict=True)
    ]
    step = 1e-5
    for v, group in enumerate(groups):
        for place in np.ndindex(group.shape):
            sides = []
            for sign in (1, -1):
                moved = [g.copy() for g in groups]
                moved[v][place] += sign * step
                sides.append(twins.intra_video_loss(moved, world.clips, 0.2, plans))
            numeric = (sides[0] - sides[1]) / (2 * step)
            assert leaf.grad[v][place].item() == pytest.approx(numeric, abs=2e-4)


@given(st.integers(0, 10_000), counts_of_queries)
def test_videos_do_not_meet(seed, counts):
    """The loss of a batch is the mean of the losses its videos have alone."""
    world = embedded(seed, counts)
    query_VMD, clips_VCD, mask_VM = inputs(world)
    alone = [
        intra_video_loss(query_VMD[v : v + 1], clips_VCD[v : v + 1], mask_VM[v : v + 1], 0.1).item()
        for v in range(len(counts))
    ]
    together = intra_video_loss(query_VMD, clips_VCD, mask_VM, 0.1).item()
    assert together == pytest.approx(np.mean(alone), rel=1e-4)


def test_a_video_without_queries_counts_for_nothing():
    world = embedded(6, counts=(2, 3))
    query_VMD, clips_VCD, mask_VM = inputs(world)
    plain = intra_video_loss(query_VMD, clips_VCD, mask_VM, 0.1)
    more_queries = torch.cat([query_VMD, torch.randn(1, *query_VMD.shape[1:])]).requires_grad_()
    more_clips = torch.cat([clips_VCD, torch.randn(1, *clips_VCD.shape[1:])]).requires_grad_()
    more_mask = torch.cat([mask_VM, torch.zeros_like(mask_VM[:1])])
    loss = intra_video_loss(more_queries, more_clips, more_mask, 0.1)
    assert loss.item() == pytest.approx(plain.item(), rel=1e-6)
    loss.backward()
    assert torch.isfinite(more_queries.grad).all()
    assert (more_clips.grad[2] == 0).all()


def test_clips_exactly_on_and_against_the_query_are_finite():
    """Cosines of ±1 at τ = .04, and a video whose clips are all alike."""
    direction = torch.tensor([1.0, 0.0, 0.0])
    clips = torch.stack([torch.stack([direction, -direction] * 4), direction.expand(8, 3)]).requires_grad_()
    queries = direction.expand(2, 1, 3).clone().requires_grad_()
    mask = torch.ones(2, 1, dtype=torch.bool)
    assert clip_query_similarity(queries, clips, mask)[0].detach().unique().tolist() == [0, 1]
    loss = intra_video_loss(queries, clips, mask, 0.04)
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(queries.grad).all()
    assert torch.isfinite(clips.grad).all()
