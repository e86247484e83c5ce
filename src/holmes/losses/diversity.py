"""L_div: queries of one video should differ (appendix B.1).

V videos, M queries of one video, D width
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def diversity_loss(query_VMD: Tensor, mask_VM: Tensor, margin: float, scale: float = 32.0) -> Tensor:
    """1/n Σ_{i≠j of one video} (1 + cos) log(1 + exp(α (cos + δ))), both orders of a pair counted."""
    cosine_VMM, pairs_VMM = cosines_of_pairs(query_VMD, mask_VM)
    closeness_VMM = (1 + cosine_VMM) * F.softplus(scale * (cosine_VMM + margin))
    return closeness_VMM.masked_fill(~pairs_VMM, 0).sum() / mask_VM.sum().clamp(min=1)


def pooled_diversity_loss(query_VMD: Tensor, mask_VM: Tensor, margin: float, scale: float = 32.0) -> Tensor:
    """1/n Σ_i log(1 + Σ_{j≠i of its video} exp(α (cos + δ))): GMMFormer's form."""
    cosine_VMM, pairs_VMM = cosines_of_pairs(query_VMD, mask_VM)
    exponent_VMM = (scale * (cosine_VMM + margin)).masked_fill(~pairs_VMM, -torch.inf)
    # log(1 + Σ exp x) = logsumexp(0, x): finite where a query has no partner, and for close ones too.
    with_zero_VMM = F.pad(exponent_VMM, (1, 0))
    return with_zero_VMM.logsumexp(-1).sum() / mask_VM.sum().clamp(min=1)


def cosines_of_pairs(query_VMD: Tensor, mask_VM: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines of all pairs of a video's queries, and which of them are two different ones."""
    unit_VMD = F.normalize(query_VMD.float(), dim=-1)
    cosine_VMM = (unit_VMD @ unit_VMD.transpose(1, 2)).float()  # autocast would leave a half-precision sum
    different_MM = ~torch.eye(mask_VM.shape[1], dtype=torch.bool, device=mask_VM.device)
    return cosine_VMM, mask_VM.unsqueeze(1) & mask_VM.unsqueeze(2) & different_MM
