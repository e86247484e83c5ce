"""Combine two opinions: Dempster's rule, in general and in closed form for Dirichlet evidence (eq. 16).

Q queries, V candidates
"""

from __future__ import annotations

from torch import Tensor

from holmes.records import Opinion


def conflict(one: Opinion, other: Opinion) -> Tensor:
    """δ = Σ_{i≠j} b_i b'_j: how much two opinions contradict each other."""
    agreement_Q = (one.belief_QV * other.belief_QV).sum(-1)
    return one.belief_QV.sum(-1) * other.belief_QV.sum(-1) - agreement_Q


def dempster_combine(one: Opinion, other: Opinion) -> Opinion:
    """b_k ∝ b_k b'_k + b_k u' + b'_k u and u ∝ u u', both over 1 - δ."""
    one_u_Q1, other_u_Q1 = one.uncertainty_Q.unsqueeze(-1), other.uncertainty_Q.unsqueeze(-1)
    belief_QV = one.belief_QV * other.belief_QV + one.belief_QV * other_u_Q1 + other.belief_QV * one_u_Q1
    uncertainty_Q = one.uncertainty_Q * other.uncertainty_Q
    # 1 - δ is what survives the combination; summing it avoids the cancellation when conflict is near 1.
    surviving_Q = belief_QV.sum(-1) + uncertainty_Q
    return Opinion(belief_QV / surviving_Q.unsqueeze(-1), uncertainty_Q / surviving_Q)


def fuse_evidence(one_QV: Tensor, other_QV: Tensor) -> Tensor:
    """e_o = e_f + e_c + e_f e_c / K: the evidence whose opinion Dempster's rule would give."""
    return one_QV + other_QV + one_QV * other_QV / one_QV.shape[-1]
