"""The paper's quantities on a query's best candidates: opinions, u, ξ, δ and the gap between beliefs.

They depend on the number of candidates, so it is fixed: a smaller gallery is filled up with candidates that
carry no evidence, and of a larger one only the best count.

Q queries, K candidates (best first)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from holmes.evidence.dirichlet import concentration, expected_entropy, opinion, sharp_evidence
from holmes.evidence.fusion import conflict, fuse_evidence
from holmes.records import Opinion, Scores


@dataclass(frozen=True)
class Quantities:
    """The opinions of both branches and of their fusion on each query."""

    frame: Opinion
    clip: Opinion
    fused: Opinion
    entropy_Q: Tensor  # ξ of the fused opinion as a share of log K
    conflict_Q: Tensor  # δ between the branches

    @property
    def uncertainty_Q(self) -> Tensor:
        """u of the fused opinion."""
        return self.fused.uncertainty_Q

    @property
    def agreement_Q(self) -> Tensor:
        """How alike both branches' beliefs are: their cosine, 1 where they believe in the same videos alike.

        δ cannot say it: two opinions that agree in spreading their belief still contradict each other by it.
        """
        return F.cosine_similarity(self.frame.belief_QV, self.clip.belief_QV, dim=-1)


def candidate_quantities(scores: Scores, candidates: int, temperature: float) -> Quantities:
    """Quantities from the scores of the best candidates, with evidence exp(tanh(s) / τ).

    In float64: at small τ the product of both branches' evidence is beyond float32.
    """
    frame_QK = padded_evidence(scores.frame_QV.double(), candidates, temperature)
    clip_QK = padded_evidence(scores.clip_QV.double(), candidates, temperature)
    fused_QK = fuse_evidence(frame_QK, clip_QK)
    frame, clip = opinion(frame_QK), opinion(clip_QK)
    return Quantities(
        frame=frame,
        clip=clip,
        fused=opinion(fused_QK),
        entropy_Q=expected_entropy(concentration(fused_QK)) / math.log(candidates),
        conflict_Q=conflict(frame, clip),
    )


def padded_evidence(similarity_QK: Tensor, candidates: int, temperature: float) -> Tensor:
    """Evidence for exactly this many candidates; a missing one has none."""
    evidence_QK = sharp_evidence(similarity_QK[:, :candidates], temperature)
    return F.pad(evidence_QK, (0, candidates - evidence_QK.shape[1]))


def fit_temperature(scores: Scores, owner_Q: Tensor, candidates: int, choices: tuple[float, ...]) -> float:
    """The τ under which the fused opinion finds the right videos of these queries most probable."""

    def surprise(temperature: float) -> float:
        frame_QV, clip_QV = (
            sharp_evidence(branch_QV.double(), temperature) for branch_QV in (scores.frame_QV, scores.clip_QV)
        )
        alpha_QV = concentration(frame_QV + clip_QV + frame_QV * clip_QV / candidates)
        own_Q = alpha_QV.gather(1, owner_Q.unsqueeze(1)).squeeze(1)
        return (alpha_QV.sum(1).log() - own_Q.log()).mean().item()

    return min(choices, key=surprise)
