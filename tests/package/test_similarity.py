"""The reference scorer and training's fast one, against loops over positions (eq. 1-2)."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import twins
from holmes.records import QueryEmbedding, Scores, VideoEmbedding
from holmes.similarity import (
    cosine_and_dot,
    masked_max_cosine,
    masked_max_dot,
    reference_scores,
)
from small import assert_close, embedded, tensor

seeds = st.integers(0, 10_000)


def twin_scores(world, measure, raw):
    """Frame and clip scores of a batch by the slow way."""
    clip = twins.scores(world.queries, world.clips, measure)
    if world.query.tokens_QTD is None:
        return twins.scores(world.queries, world.frames, measure), clip
    weights = world.raw_weights if raw else world.weights
    return twins.token_scores(world.tokens, weights, world.frames, measure), clip


def test_by_hand():
    """Two positions at 0° and 90°, a query at 60°: the best cosine is sin 60°, of twice the length."""
    query = tensor([[0.5, 3**0.5 / 2]])
    video = tensor([[[2.0, 0.0], [0.0, 2.0]]])
    assert masked_max_cosine(query, video).item() == pytest.approx(3**0.5 / 2)
    assert masked_max_dot(query, video).item() == pytest.approx(3**0.5)


@given(seeds, st.booleans())
def test_branches_equal_the_twin(seed, dual):
    world = embedded(seed, dual=dual)
    for normalised, measure in ((True, twins.cosine), (False, twins.dot)):
        ours = reference_scores(world.query, world.video, normalised)
        frame, clip = twin_scores(world, measure, raw=not normalised)
        assert_close(ours.frame_QV, frame)
        assert_close(ours.clip_QV, clip)


@given(seeds, st.booleans())
def test_one_product_gives_cosines_and_dot_products(seed, dual):
    world = embedded(seed, dual=dual)
    cosine, dot = cosine_and_dot(world.query, world.video)
    for ours, measure, raw in ((cosine, twins.cosine, False), (dot, twins.dot, True)):
        frame, clip = twin_scores(world, measure, raw)
        assert_close(ours.frame_QV, frame)
        assert_close(ours.clip_QV, clip)


@given(seeds)
def test_pooled_functions_equal_the_twin(seed):
    world = embedded(seed)
    video = world.video
    ours = masked_max_cosine(world.query.query_QD, video.frames_VFD, video.frame_mask_VF)
    assert_close(ours, twins.scores(world.queries, world.frames, twins.cosine))
    ours = masked_max_dot(world.query.query_QD, video.frames_VFD, video.frame_mask_VF)
    assert_close(ours, twins.scores(world.queries, world.frames, twins.dot))


def test_padding_cannot_win():
    """All real frames point away from the query; a padded frame, even a zero, must not beat them."""
    query = tensor([[1.0, 0.0]])
    frames = tensor([[[-1.0, 0.0], [0.0, 0.0], [9.0, 0.0]]])
    mask = torch.tensor([[True, False, False]])
    assert masked_max_cosine(query, frames, mask).item() == -1
    assert masked_max_dot(query, frames, mask).item() == -1
    video = VideoEmbedding(frames, mask, frames)
    weight = tensor([[1.0]])
    dual = QueryEmbedding(query, query.unsqueeze(1), weight, weight)
    assert reference_scores(dual, video).frame_QV.item() == -1
    assert cosine_and_dot(QueryEmbedding(query), video)[0].frame_QV.item() == -1
    assert reference_scores(QueryEmbedding(query), video).frame_QV.item() == -1


@given(seeds, st.booleans(), st.integers(0, 3), st.integers(0, 3), st.integers(0, 3))
def test_more_padding_changes_nothing(seed, dual, spare_queries, spare_frames, spare_tokens):
    plain = embedded(seed, dual=dual)
    padded = embedded(
        seed, dual=dual, spare_queries=spare_queries, spare_frames=spare_frames, spare_tokens=spare_tokens
    )
    real = len(plain.owner)
    for score in (
        lambda w: (reference_scores(w.query, w.video),),
        lambda w: cosine_and_dot(w.query, w.video),
    ):
        for one, other in zip(score(plain), score(padded), strict=True):
            assert_close(other.frame_QV[:real], one.frame_QV)
            assert_close(other.clip_QV[:real], one.clip_QV)


def tensors_of(record):
    """The fields of an embedding, without what only a loss of its encoder needs."""
    return {name: value for name, value in vars(record).items() if name != "extra"}


@given(seeds, st.booleans())
def test_a_query_alone_equals_its_row(seed, dual):
    world = embedded(seed, dual=dual)
    whole = cosine_and_dot(world.query, world.video)[0]
    fields = tensors_of(world.query)
    for i in range(len(world.owner)):
        alone = QueryEmbedding(**{k: None if v is None else v[i : i + 1] for k, v in fields.items()})
        row = cosine_and_dot(alone, world.video)[0]
        assert_close(row.frame_QV[0], whole.frame_QV[i])
        assert_close(row.clip_QV[0], whole.clip_QV[i])


@given(seeds, st.booleans(), st.permutations(range(4)))
def test_permuted_videos_permute_scores(seed, dual, order):
    world = embedded(seed, dual=dual)
    moved = replace(world.video, **{name: value[order] for name, value in tensors_of(world.video).items()})
    for one, other in zip(
        cosine_and_dot(world.query, world.video), cosine_and_dot(world.query, moved), strict=True
    ):
        assert_close(other.frame_QV, one.frame_QV[:, order])
        assert_close(other.clip_QV, one.clip_QV[:, order])


def test_overall_score_by_hand():
    """Eq. 2 with unequal weights, so that swapping them would show."""
    scores = Scores(frame_QV=tensor([[0.5, -0.2]]), clip_QV=tensor([[0.1, 0.3]]))
    assert_close(scores.combined(frame_weight=0.4, clip_weight=0.6), [[0.26, 0.10]])


def test_a_zero_vector_scores_zero_and_keeps_gradients_finite():
    query = torch.zeros(1, 3, requires_grad=True)
    video = VideoEmbedding(torch.ones(2, 4, 3), torch.ones(2, 4, dtype=torch.bool), torch.ones(2, 4, 3))
    cosine, dot = cosine_and_dot(QueryEmbedding(query), video)
    assert cosine.clip_QV.abs().max() == 0
    (cosine.clip_QV.sum() + cosine.frame_QV.sum() + dot.clip_QV.sum()).backward()
    assert torch.isfinite(query.grad).all()
