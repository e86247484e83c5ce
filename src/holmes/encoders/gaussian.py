"""Gaussian attention: neighbours count more, by a width that differs from block to block (appendix B.6).

N sequences, G blocks, H heads, L positions, E width of one head
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

PADDED = -10000.0  # logit of a padded position, as in the published models


def gaussian_weights(widths: Sequence[float | None], length: int) -> Tensor:
    """G × L × L weights exp(-(j/(L-1) - i/L)² / 2σ²), σ = max(w, .01)/9, each row's maximum scaled to 1.

    A width of None stands for plain attention: all ones.
    """
    centre_L1 = torch.arange(length, dtype=torch.float64).unsqueeze(1) / length
    position_L = torch.linspace(0, 1, length, dtype=torch.float64)
    squared_LL = (position_L - centre_L1).square()

    def weights(width: float | None) -> Tensor:
        if width is None:
            return torch.ones(length, length, dtype=torch.float64)
        sigma = max(width, 0.01) / 9
        # Subtracting each row's smallest distance first is the same scaling, without underflow.
        return torch.exp((squared_LL.amin(1, keepdim=True) - squared_LL) / (2 * sigma**2))

    return torch.stack([weights(width) for width in widths]).float()


def gaussian_attention(
    query_GNHLE: Tensor,
    key_GNHLE: Tensor,
    value_GNHLE: Tensor,
    weights_GLL: Tensor,
    mask_NL: Tensor | None,
    dropout: float = 0.0,
) -> Tensor:
    """softmax(M_σ ⊙ Q Kᵀ/√d) V: the Gaussian weight scales the logits before padding is masked."""
    logits = query_GNHLE @ key_GNHLE.transpose(-1, -2) / math.sqrt(query_GNHLE.shape[-1])
    logits = logits.float() * weights_GLL[:, None, None]
    if mask_NL is not None:
        logits = logits + torch.where(mask_NL, 0.0, PADDED)[None, :, None, None, :]
    attention = F.dropout(logits.softmax(-1), dropout, training=dropout > 0)
    return attention.to(value_GNHLE.dtype) @ value_GNHLE
