"""Calibrated labels, against eq. 15 in loops."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

import twins
from holmes.evidence.label_calibration import calibrated_target, one_hot_label
from holmes.records import QueryKind
from small import assert_close, tensor


@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 6), st.floats(0, 1))
def test_targets_equal_the_twin(seed, queries, videos, gamma):
    rng = np.random.default_rng(seed)
    frame, clip = rng.uniform(-1, 1, (2, queries, videos))
    owner, kinds = rng.integers(0, videos, queries), rng.integers(0, 3, queries)
    label = one_hot_label(torch.from_numpy(owner), videos)
    ours = calibrated_target(label, tensor(frame), tensor(clip), torch.from_numpy(kinds), gamma)
    twin = [twins.calibrated_label(frame[q], clip[q], owner[q], kinds[q], gamma) for q in range(queries)]
    assert_close(ours, twin)
    assert_close(ours.sum(1), np.ones(queries))


def test_only_polysemous_queries_are_softened():
    label = one_hot_label(torch.tensor([0, 0, 0]), 2)
    scores = tensor([[0.0, 0.0]] * 3)
    kinds = torch.tensor([QueryKind.PRECISE, QueryKind.POLYSEMOUS, QueryKind.UNDERDETERMINED])
    target = calibrated_target(label, scores, scores, kinds, smoothing=0.2)
    assert_close(target, [[1, 0], [0.9, 0.1], [1, 0]])


def test_branches_share_the_softening_equally():
    """One branch is sure of each video; only a half-and-half mean leaves the shares equal."""
    label = one_hot_label(torch.tensor([0]), 2)
    target = calibrated_target(
        label, tensor([[40.0, -40.0]]), tensor([[-40.0, 40.0]]), torch.tensor([QueryKind.POLYSEMOUS]), 0.2
    )
    assert_close(target, [[0.9, 0.1]])


def test_no_gradient_flows_into_a_target():
    frame, clip = torch.rand(2, 3, requires_grad=True), torch.rand(2, 3, requires_grad=True)
    label = one_hot_label(torch.tensor([0, 1]), 3)
    target = calibrated_target(label, frame, clip, torch.tensor([1, 1]), 0.2)
    assert not target.requires_grad


def test_half_precision_scores_give_float32_targets():
    scores = torch.rand(2, 3, dtype=torch.bfloat16)
    label = one_hot_label(torch.tensor([0, 1]), 3)
    assert calibrated_target(label, scores, scores, torch.tensor([1, 0]), 0.2).dtype == torch.float32
