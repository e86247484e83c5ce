"""Soft alignments of queries and clips within a video, without gradient (eq. 19-20).

Each takes similarities scaled to [0, 1] and a mask of valid queries and returns, for every valid query, a
distribution over the video's clips.

V videos, M queries of one video, C clips
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from holmes.transport.sinkhorn import log_marginal, sinkhorn

Alignment = Callable[[Tensor, Tensor], Tensor]


def scale_to_unit(similarity_VMC: Tensor, mask_VM: Tensor, tiny: float = 1e-8) -> Tensor:
    """Min-max scaling per video over its valid queries; padded queries become 0."""
    invalid_VM1 = ~mask_VM.unsqueeze(-1)
    low_V11 = similarity_VMC.masked_fill(invalid_VM1, torch.inf).amin((1, 2), keepdim=True)
    high_V11 = similarity_VMC.masked_fill(invalid_VM1, -torch.inf).amax((1, 2), keepdim=True)
    # Zeros stand in before the division so that padding can send no NaN into the gradient.
    safe_VMC = torch.where(invalid_VM1, low_V11, similarity_VMC)
    scaled_VMC = (safe_VMC - low_V11) / (high_V11 - low_V11 + tiny)
    return scaled_VMC.masked_fill(invalid_VM1, 0)


def dustbin_score(similarity_VMC: Tensor, mask_VM: Tensor, ratio: float = 0.3) -> Tensor:
    """z: the k-th smallest valid similarity of each video, k = max(1, ⌊ratio · C · M⌋), eq. 20."""
    ordered_VN = similarity_VMC.masked_fill(~mask_VM.unsqueeze(-1), torch.inf).flatten(1).sort(1).values
    rank_V = (ratio * similarity_VMC.shape[-1] * mask_VM.sum(1).double()).long().clamp(min=1)
    return ordered_VN.gather(1, rank_V.unsqueeze(1) - 1).squeeze(1)


@torch.no_grad()
def flexible_plan(
    similarity_VMC: Tensor,
    mask_VM: Tensor,
    entropy_weight: float = 0.1,
    dustbin_ratio: float = 0.3,
    iterations: int = 50,
) -> Tensor:
    """The whole transport plan, V × (M + 1) × C: the last row is the dustbin that absorbs noisy clips."""
    videos, _, clips = similarity_VMC.shape
    score_V = dustbin_score(similarity_VMC, mask_VM, dustbin_ratio)
    score_V = torch.where(mask_VM.any(1), score_V, 0)
    with_dustbin_VNC = torch.cat([similarity_VMC, score_V[:, None, None].expand(videos, 1, clips)], dim=1)
    queries_V1 = mask_VM.sum(1, keepdim=True)
    share_VM = (1 / (clips + queries_V1)).expand_as(mask_VM)
    source_VN = torch.cat([share_VM, clips / (clips + queries_V1)], dim=1)
    valid_VN = F.pad(mask_VM, (0, 1), value=True)
    return sinkhorn_from_clips(
        with_dustbin_VNC, log_marginal(source_VN, valid_VN), entropy_weight, iterations
    )


@torch.no_grad()
def plain_plan(
    similarity_VMC: Tensor, mask_VM: Tensor, entropy_weight: float = 0.1, iterations: int = 50
) -> Tensor:
    """Standard optimal transport, V × M × C: every clip must serve some query."""
    share_VM = (1 / mask_VM.sum(1, keepdim=True).clamp(min=1)).expand_as(mask_VM)
    return sinkhorn_from_clips(similarity_VMC, log_marginal(share_VM, mask_VM), entropy_weight, iterations)


def sinkhorn_from_clips(
    similarity_VMC: Tensor, log_queries_VM: Tensor, entropy_weight: float, iterations: int
) -> Tensor:
    """Transport with equal mass on every clip."""
    clips = similarity_VMC.shape[-1]
    log_clips_VC = torch.full_like(similarity_VMC[:, 0], 1 / clips).log()
    plan_VCM = sinkhorn(
        similarity_VMC.transpose(1, 2) / entropy_weight, log_clips_VC, log_queries_VM, iterations
    )
    return plan_VCM.transpose(1, 2)


def flexible_alignment(
    similarity_VMC: Tensor,
    mask_VM: Tensor,
    entropy_weight: float = 0.1,
    dustbin_ratio: float = 0.3,
    iterations: int = 50,
) -> Tensor:
    """Flexible optimal transport: the dustbin is dropped, each query's row is normalised."""
    plan_VNC = flexible_plan(similarity_VMC, mask_VM, entropy_weight, dustbin_ratio, iterations)
    return normalised_rows(plan_VNC[:, :-1], mask_VM)


def plain_alignment(
    similarity_VMC: Tensor, mask_VM: Tensor, entropy_weight: float = 0.1, iterations: int = 50
) -> Tensor:
    """Plain optimal transport, rows normalised (ablation 12)."""
    return normalised_rows(plain_plan(similarity_VMC, mask_VM, entropy_weight, iterations), mask_VM)


@torch.no_grad()
def softmax_alignment(similarity_VMC: Tensor, mask_VM: Tensor, entropy_weight: float = 0.1) -> Tensor:
    """Each query by itself: softmax of its similarities at temperature ε (ablation 11)."""
    return (similarity_VMC / entropy_weight).softmax(-1) * mask_VM.unsqueeze(-1)


def best_clip_alignment(similarity_VMC: Tensor, mask_VM: Tensor) -> Tensor:
    """All on the best clip: what plain multiple-instance learning supervises."""
    best_VMC = F.one_hot(similarity_VMC.argmax(-1), similarity_VMC.shape[-1]).to(similarity_VMC.dtype)
    return best_VMC * mask_VM.unsqueeze(-1)


def normalised_rows(plan_VMC: Tensor, mask_VM: Tensor, tiny: float = 1e-8) -> Tensor:
    """A distribution over clips for every valid query, zeros for padded ones."""
    scaled_VMC = plan_VMC * plan_VMC.shape[-1] * mask_VM.unsqueeze(-1)
    return scaled_VMC / (scaled_VMC.sum(-1, keepdim=True) + tiny)
