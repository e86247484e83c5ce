"""Uncertainty-guided identification: precise, polysemous or under-determined (eq. 7, 10-14).

Masks keep padded queries out of every threshold, and nothing here waits for the device: sets are masks,
medians are sorts.

Q queries, V videos of the batch
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from holmes.records import QueryKind


@dataclass(frozen=True)
class Thresholds:
    """β_u and β_p, adapted to a batch."""

    uncertainty_ceiling: Tensor
    consistency_floor: Tensor


ThresholdRule = Callable[[Tensor, Tensor, Tensor, float], Thresholds]
MedianRule = Callable[[Tensor, Tensor, Tensor], Tensor]
PartitionFusion = Callable[[Tensor, Tensor], Tensor]


def label_consistency(similarity_QV: Tensor, owner_Q: Tensor) -> Tensor:
    """c = max(0, s · y), eq. 7: the response of the annotated video."""
    return similarity_QV.gather(1, owner_Q.unsqueeze(1)).squeeze(1).clamp(min=0)


def adaptive_thresholds(
    uncertainty_Q: Tensor, label_consistency_Q: Tensor, correct_Q: Tensor, beta: float
) -> Thresholds:
    """β_u = min(max u, 1 - β) and β_p = max(β, min c) over correctly matched queries, eq. 11.

    With no correct query the bounds stand alone.
    """
    highest_u = uncertainty_Q.masked_fill(~correct_Q, -torch.inf).amax()
    lowest_c = label_consistency_Q.masked_fill(~correct_Q, torch.inf).amin()
    any_correct = correct_Q.any()
    return Thresholds(
        torch.where(any_correct, highest_u.clamp(max=1 - beta), 1 - beta),
        torch.where(any_correct, lowest_c.clamp(min=beta), beta),
    )


def relative_thresholds(
    uncertainty_Q: Tensor, label_consistency_Q: Tensor, correct_Q: Tensor, beta: float
) -> Thresholds:
    """Ours, free of scale: β_u leaves the share β of the correctly matched queries above it, β_p below it.

    With no correct query nothing is known of either quantity: no query is under-determined, none is precise.
    """
    return Thresholds(
        masked_quantile(uncertainty_Q, correct_Q, 1 - beta, of_none=torch.inf),
        masked_quantile(label_consistency_Q, correct_Q, beta, of_none=torch.inf),
    )


def below_batch_median(entropy_Q: Tensor, candidate_Q: Tensor, mask_Q: Tensor) -> Tensor:
    """Candidates whose ξ is at most the lower median of the whole batch: the published numbers' rule."""
    return candidate_Q & (entropy_Q <= masked_median(entropy_Q, mask_Q, lower=True))


def below_candidate_median(entropy_Q: Tensor, candidate_Q: Tensor, mask_Q: Tensor) -> Tensor:
    """Candidates whose ξ is under the candidates' own median, eq. 12 as printed."""
    return candidate_Q & (entropy_Q < masked_median(entropy_Q, candidate_Q, lower=False))


def keep_candidates(entropy_Q: Tensor, candidate_Q: Tensor, mask_Q: Tensor) -> Tensor:
    """No refinement: only the initial polysemous set S̃_n counts as polysemous (ablation 9)."""
    return candidate_Q


def identify(
    uncertainty_Q: Tensor,
    label_consistency_Q: Tensor,
    entropy_Q: Tensor,
    correct_Q: Tensor,
    mask_Q: Tensor,
    beta: float = 0.3,
    refine: MedianRule = below_batch_median,
    thresholds: ThresholdRule = adaptive_thresholds,
) -> Tensor:
    """A branch's partition as QueryKind values: split on the c-u plane (eq. 10), refine along ξ (eq. 12)."""
    limits = thresholds(uncertainty_Q, label_consistency_Q, correct_Q & mask_Q, beta)
    underdetermined_Q = uncertainty_Q > limits.uncertainty_ceiling
    candidate_Q = mask_Q & ~underdetermined_Q & (label_consistency_Q >= limits.consistency_floor)
    precise_Q = refine(entropy_Q, candidate_Q, mask_Q)
    kinds_Q = torch.full_like(underdetermined_Q, QueryKind.POLYSEMOUS, dtype=torch.long)
    kinds_Q = kinds_Q.masked_fill(precise_Q, QueryKind.PRECISE)
    return kinds_Q.masked_fill(underdetermined_Q, QueryKind.UNDERDETERMINED)


def uncertainty_dominance(frame_Q: Tensor, clip_Q: Tensor) -> Tensor:
    """The more uncertain branch decides, eq. 14: S_p ≺ S_n ≺ S_u is the order of the enum."""
    return torch.maximum(frame_Q, clip_Q)


def confidence_dominance(frame_Q: Tensor, clip_Q: Tensor) -> Tensor:
    """The more confident branch decides (ablation 7)."""
    return torch.minimum(frame_Q, clip_Q)


def trust_frame(frame_Q: Tensor, clip_Q: Tensor) -> Tensor:
    """The frame branch decides (ablation 5)."""
    return frame_Q


def trust_clip(frame_Q: Tensor, clip_Q: Tensor) -> Tensor:
    """The clip branch decides (ablation 6)."""
    return clip_Q


def masked_median(values_Q: Tensor, mask_Q: Tensor, lower: bool) -> Tensor:
    """Median of the values under the mask; of an even number the lower one, or their mean."""
    ordered_Q = values_Q.masked_fill(~mask_Q, torch.inf).sort().values
    count = mask_Q.sum()
    low = ordered_Q[((count - 1) // 2).clamp(min=0).unsqueeze(0)]
    high = low if lower else ordered_Q[(count // 2).unsqueeze(0).clamp(max=len(values_Q) - 1)]
    return ((low + high) / 2).squeeze(0)


def masked_quantile(values_Q: Tensor, mask_Q: Tensor, share: float, of_none: float) -> Tensor:
    """The value under the mask that has this share of the others below it; the lower one between two."""
    ordered_Q = values_Q.masked_fill(~mask_Q, torch.inf).sort().values
    count = mask_Q.sum()
    position = (share * (count - 1)).floor().long().clamp(min=0)
    return torch.where(count > 0, ordered_Q[position.unsqueeze(0)].squeeze(0), of_none)
