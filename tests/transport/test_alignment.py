"""Soft query-to-clip alignments, against POT and loops (eq. 19-20)."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import twins
from holmes.losses.intra_video import clip_query_similarity
from holmes.transport.alignment import (
    best_clip_alignment,
    dustbin_score,
    flexible_alignment,
    flexible_plan,
    plain_alignment,
    plain_plan,
    scale_to_unit,
    softmax_alignment,
)
from small import NOISE, assert_close, tensor

ALIGNMENTS = [flexible_alignment, plain_alignment, softmax_alignment, best_clip_alignment]
counts_of_queries = st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple)
seeds = st.integers(0, 10_000)


def ragged(seed: int, counts: tuple[int, ...], clips: int = 8) -> list[np.ndarray]:
    """Similarities in [0, 1] of each video's queries and clips."""
    rng = np.random.default_rng(seed)
    return [rng.random((count, clips)) for count in counts]


def padded(videos: list[np.ndarray], spare: int = 0, dtype: torch.dtype = torch.float64):
    """The same in one tensor with a mask; noise stands in the places of missing queries."""
    places, clips = max(map(len, videos)) + spare, videos[0].shape[1]
    values = NOISE * np.random.default_rng(0).random((len(videos), places, clips))
    for place, video in zip(values, videos, strict=True):
        place[: len(video)] = video
    mask = torch.tensor([[m < len(video) for m in range(places)] for video in videos])
    return torch.tensor(values, dtype=dtype), mask


@given(seeds, counts_of_queries, st.integers(0, 2))
def test_scaling_equals_the_twin_whatever_is_padded(seed, counts, spare):
    rng = np.random.default_rng(seed)
    queries = [rng.normal(size=(count, 5)) for count in counts]
    clips = rng.normal(size=(len(counts), 8, 5))
    vectors, mask = padded(queries, spare, torch.float32)
    ours = clip_query_similarity(vectors, tensor(clips), mask)
    for v, (group, video) in enumerate(zip(queries, clips, strict=True)):
        assert_close(ours[v, : len(group)], twins.scaled_similarity(group, video), 5e-6)
        assert (ours[v, len(group) :] == 0).all()


@given(seeds, counts_of_queries, st.integers(0, 2), st.sampled_from((0.01, 0.1, 0.3, 0.6)))
def test_dustbin_is_the_kth_smallest(seed, counts, spare, ratio):
    videos = ragged(seed, counts)
    ours = dustbin_score(*padded(videos, spare), ratio=ratio)
    assert ours.tolist() == [twins.dustbin(video, ratio) for video in videos]


@pytest.mark.parametrize("queries", range(1, 41))
def test_dustbin_rank_at_the_real_size(queries):
    """32 clips: similarity k/n at rank k + 1 shows which rank is taken, for every number of queries."""
    similarity = torch.arange(32 * queries, dtype=torch.float32).reshape(1, queries, 32)
    rank = dustbin_score(similarity, torch.ones(1, queries, dtype=torch.bool)).item() + 1
    assert rank == max(1, int(0.3 * 32 * queries))


@given(seeds, counts_of_queries, st.integers(0, 2))
def test_flexible_plan_equals_pots_with_a_dustbin(seed, counts, spare):
    videos = ragged(seed, counts)
    plans = flexible_plan(*padded(videos, spare), iterations=1000)
    for plan, video in zip(plans.numpy(), videos, strict=True):
        score, source, target = twins.flexible_problem(video, 0.3)
        reference = twins.pots_plan(source, target, -score, 0.1).T
        real = len(video)
        assert np.abs(plan[:real] - reference[:real]).max() < 1e-6
        assert np.abs(plan[-1] - reference[-1]).max() < 1e-6


@given(seeds, counts_of_queries, st.integers(0, 2))
def test_plain_plan_equals_pots(seed, counts, spare):
    videos = ragged(seed, counts)
    plans = plain_plan(*padded(videos, spare), iterations=1000)
    for plan, video in zip(plans.numpy(), videos, strict=True):
        source, target = np.full(8, 1 / 8), np.full(len(video), 1 / len(video))
        reference = twins.pots_plan(source, target, -video.T, 0.1).T
        assert np.abs(plan[: len(video)] - reference).max() < 1e-6


@given(seeds, counts_of_queries, st.integers(0, 2))
def test_plans_meet_their_marginals(seed, counts, spare):
    """Each clip sends 1/C; a query takes 1/(C+M), the dustbin C/(C+M); plain: a query takes 1/M."""
    videos = ragged(seed, counts)
    similarity, mask = padded(videos, spare, torch.float32)
    flexible = flexible_plan(similarity, mask, iterations=300).numpy()
    plain = plain_plan(similarity, mask, iterations=300).numpy()
    for v, video in enumerate(videos):
        clips, real = 8, len(video)
        assert_close(flexible[v].sum(0), np.full(clips, 1 / clips), 1e-5)
        assert_close(plain[v].sum(0), np.full(clips, 1 / clips), 1e-5)
        assert_close(flexible[v, :real].sum(1), np.full(real, 1 / (clips + real)), 1e-5)
        assert_close(flexible[v, -1].sum(), clips / (clips + real), 1e-5)
        assert_close(plain[v, :real].sum(1), np.full(real, 1 / real), 1e-5)
        assert flexible[v, real:-1].sum() == 0


@given(seeds, counts_of_queries)
def test_alignments_equal_their_twins(seed, counts):
    videos = ragged(seed, counts)
    similarity, mask = padded(videos)
    flexible, plain = flexible_alignment(similarity, mask), plain_alignment(similarity, mask)
    softmax, best = softmax_alignment(similarity, mask), best_clip_alignment(similarity, mask)
    for v, video in enumerate(videos):
        real = len(video)
        # Rows are divided by their sum + 1e-8, sums are about 1.
        assert_close(flexible[v, :real], twins.flexible_alignment(video), 5e-7)
        assert_close(plain[v, :real], twins.plain_alignment(video), 5e-7)
        assert_close(softmax[v, :real], [twins.softmax(row / 0.1) for row in video], 1e-9)
        assert_close(best[v, :real], [[float(c == np.argmax(row)) for c in range(8)] for row in video])


@given(seeds, st.sampled_from((0.05, 0.5)), st.sampled_from((0.1, 0.6)))
def test_epsilon_and_ratio_reach_the_transport(seed, epsilon, ratio):
    (video,) = ragged(seed, (3,))
    ours = flexible_alignment(*padded([video]), entropy_weight=epsilon, dustbin_ratio=ratio)
    assert_close(ours[0], twins.flexible_alignment(video, epsilon, ratio), 5e-7)
    assert_close(
        plain_alignment(*padded([video]), entropy_weight=epsilon)[0], twins.plain_alignment(video, epsilon)
    )


@pytest.mark.parametrize("align", ALIGNMENTS)
@given(seed=seeds, counts=counts_of_queries, spare=st.integers(1, 3))
def test_neither_padding_nor_other_videos_change_an_alignment(align, seed, counts, spare):
    videos = ragged(seed, counts)
    together = align(*padded(videos, spare, torch.float32))
    for row, video in zip(together, videos, strict=True):
        alone = align(*padded([video], dtype=torch.float32))[0]
        assert_close(row[: len(video)], alone, 1e-6)
        assert_close(row[: len(video)].sum(-1), np.ones(len(video)), 1e-6)
        assert (row[len(video) :] == 0).all()


@pytest.mark.parametrize("align", ALIGNMENTS)
def test_no_gradient_flows_through_an_alignment(align):
    similarity = torch.rand(2, 3, 8, requires_grad=True)
    assert not align(similarity, torch.ones(2, 3, dtype=torch.bool)).requires_grad


@pytest.mark.parametrize("align", ALIGNMENTS)
def test_a_video_without_queries_gets_zeros(align):
    similarity, mask = torch.rand(2, 3, 8), torch.tensor([[True, True, False], [False, False, False]])
    aligned = align(scale_to_unit(similarity, mask), mask)
    assert torch.isfinite(aligned).all()
    assert (aligned[1] == 0).all()


def test_the_dustbin_takes_what_no_query_wants():
    """A clip far from every query goes to the dustbin; plain transport must give it to some query."""
    similarity = torch.full((1, 2, 8), 0.9)
    similarity[0, :, 0] = 0.0
    mask = torch.ones(1, 2, dtype=torch.bool)
    flexible = flexible_plan(similarity, mask, dustbin_ratio=0.3)
    assert flexible[0, -1, 0] > 0.99 / 8
    assert flexible_alignment(similarity, mask)[0, :, 0].max() < 0.01
    assert plain_alignment(similarity, mask)[0, :, 0].min() == pytest.approx(1 / 8, rel=1e-3)


def test_gradient_flows_through_the_scaling_and_not_from_padding():
    similarity = torch.rand(2, 3, 8, requires_grad=True)
    mask = torch.tensor([[True, True, False], [False, False, False]])
    scale_to_unit(similarity, mask).square().sum().backward()
    gradient = similarity.grad
    assert torch.isfinite(gradient).all()
    assert (gradient[0, :2] != 0).any()
    assert (gradient[0, 2] == 0).all()
    assert (gradient[1] == 0).all()
    # Scaled values do not change when everything is shifted, so the gradient sums to nothing.
    assert math.isclose(gradient[0].sum().item(), 0, abs_tol=1e-4)
