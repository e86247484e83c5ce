"""Fusion of opinions, against an enumeration of Dempster's rule over focal sets (eq. 16)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import twins
from holmes.evidence.dirichlet import opinion, sharp_evidence
from holmes.evidence.fusion import conflict, dempster_combine, fuse_evidence
from holmes.records import Opinion
from small import assert_close, tensor


@st.composite
def evidence_pairs(draw, largest: float = 1e6):
    shape = (draw(st.integers(1, 4)), draw(st.integers(2, 7)))
    one, other = (draw(arrays(np.float64, shape, elements=st.floats(0, largest))) for _ in range(2))
    return torch.from_numpy(one), torch.from_numpy(other)


def enumerated(one, other):
    rows = [
        twins.dempster(twins.opinion(a), twins.opinion(b))
        for a, b in zip(one.numpy(), other.numpy(), strict=True)
    ]
    belief, uncertainty, contradiction = zip(*rows, strict=True)
    return belief, uncertainty, contradiction


@given(evidence_pairs(largest=1e3))
def test_rule_conflict_and_closed_form_equal_the_enumeration(pair):
    belief, uncertainty, contradiction = enumerated(*pair)
    combined = dempster_combine(opinion(pair[0]), opinion(pair[1]))
    fused = opinion(fuse_evidence(*pair))
    for ours in (combined, fused):
        assert_close(ours.belief_QV, belief, 1e-9)
        np.testing.assert_allclose(ours.uncertainty_Q, uncertainty, rtol=1e-8)
    assert_close(conflict(opinion(pair[0]), opinion(pair[1])), contradiction, 1e-12)


def test_by_hand():
    """Beliefs .4/.2 with u .4 and .1/.6 with u .3: conflict .4·.6 + .2·.1 = .26."""
    one = Opinion(tensor([[0.4, 0.2]]), tensor([0.4]))
    other = Opinion(tensor([[0.1, 0.6]]), tensor([0.3]))
    assert conflict(one, other).item() == pytest.approx(0.26)
    fused = dempster_combine(one, other)
    assert_close(fused.belief_QV, [[(0.04 + 0.12 + 0.04) / 0.74, (0.12 + 0.06 + 0.24) / 0.74]])
    assert fused.uncertainty_Q.item() == pytest.approx(0.12 / 0.74)


@given(evidence_pairs())
def test_fused_uncertainty_is_at_most_the_smaller(pair):
    smaller = torch.minimum(opinion(pair[0]).uncertainty_Q, opinion(pair[1]).uncertainty_Q)
    for fused in (opinion(fuse_evidence(*pair)), dempster_combine(opinion(pair[0]), opinion(pair[1]))):
        assert (fused.uncertainty_Q <= smaller * (1 + 1e-12)).all()
        assert_close(fused.belief_QV.sum(-1) + fused.uncertainty_Q, np.ones(len(smaller)), 1e-9)


@given(evidence_pairs())
def test_a_vacuous_opinion_changes_nothing(pair):
    one = pair[0]
    nothing = torch.zeros_like(one)
    assert torch.equal(fuse_evidence(one, nothing), one)
    assert torch.equal(fuse_evidence(nothing, one), one)
    combined = dempster_combine(opinion(one), opinion(nothing))
    assert_close(combined.belief_QV, opinion(one).belief_QV, 1e-12)
    assert_close(combined.uncertainty_Q, opinion(one).uncertainty_Q, 1e-12)


@given(evidence_pairs())
def test_order_does_not_matter(pair):
    assert_close(fuse_evidence(*pair), fuse_evidence(pair[1], pair[0]), 1e-12)
    one, other = opinion(pair[0]), opinion(pair[1])
    assert_close(conflict(one, other), conflict(other, one), 1e-12)


def test_opposite_certainties_stay_finite():
    """Full conflict at τ = .04: 1 - δ is near 0, and the rule still gives an opinion."""
    frame = sharp_evidence(tensor([[1.0, -1.0]]), 0.04)
    clip = sharp_evidence(tensor([[-1.0, 1.0]]), 0.04)
    one, other = opinion(frame), opinion(clip)
    assert conflict(one, other).item() == pytest.approx(1, abs=1e-6)
    for fused in (dempster_combine(one, other), opinion(fuse_evidence(frame, clip))):
        assert_close(fused.belief_QV, [[0.5, 0.5]], 1e-5)
        assert 0 <= fused.uncertainty_Q.item() < 1e-7
