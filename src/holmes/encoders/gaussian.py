"""Gaussian attention: neighbours weigh more, with a different width per block (appendix B.6).

`attend` is plain torch; on a GPU its fused twin in `attention_kernel.py` does the same in one pass.

K = 3 (query, key, value), G blocks, N sequences, L positions, H heads, E width of one head, D = H · E
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from holmes.encoders.dropout import dropout
from holmes.encoders.padding import PADDED

if torch.cuda.is_available():  # importing Triton takes a third of a second, and a CPU has no use for it
    from holmes.encoders.attention_kernel import HAS_TRITON, attend_fused
else:
    HAS_TRITON = False

LONGEST_FUSED = 128  # positions: the kernel holds a whole row of blocks of them at once


def gaussian_weights(widths: Sequence[float | None], length: int) -> Tensor:
    """G × L × L weights exp(-(j/(L-1) - i/L)² / 2σ²), σ = max(w, .01)/9, each row's maximum scaled to 1.

    A width of None stands for plain attention: all ones.
    """
    centre_L1 = torch.arange(length, dtype=torch.float64).unsqueeze(1) / length
    position_L = torch.linspace(0, 1, length, dtype=torch.float64, device=centre_L1.device)
    squared_LL = (position_L - centre_L1).square()

    def weights(width: float | None) -> Tensor:
        if width is None:
            return torch.ones(length, length, dtype=torch.float64)
        sigma = max(width, 0.01) / 9
        # Subtracting each row's smallest distance first is the same scaling, without underflow.
        return torch.exp((squared_LL.amin(1, keepdim=True) - squared_LL) / (2 * sigma**2))

    return torch.stack([weights(width) for width in widths]).float()


def gaussian_windows(widths: Sequence[float | None], longest: Tensor, size: int) -> Tensor:
    """`gaussian_weights` for a length that only the device knows, in the first `longest` rows and columns.

    G × size × size; the columns behind `longest` are padding, which the attention masks.
    """
    length = longest.clamp(min=1).double()
    place_L = torch.arange(size, dtype=torch.float64, device=longest.device)
    position_L, centre_L1 = place_L / (length - 1).clamp(min=1), (place_L / length).unsqueeze(1)
    squared_LL = (position_L - centre_L1).square()
    nearest_L1 = squared_LL.masked_fill(place_L >= length, torch.inf).amin(1, keepdim=True)

    def weights(width: float | None) -> Tensor:
        if width is None:
            return torch.ones_like(squared_LL)
        return torch.exp((nearest_L1 - squared_LL).clamp(max=0) / (2 * (max(width, 0.01) / 9) ** 2))

    return torch.stack([weights(width) for width in widths]).float()


def gaussian_attention(
    projected_NLKGD: Tensor,
    bias_KGD: Tensor,
    weights_GLL: Tensor,
    mask_NL: Tensor | None,
    heads: int,
    dropout_rate: float = 0.0,
) -> Tensor:
    """softmax(M_σ ⊙ Q Kᵀ/√d) V, heads side by side: G × N × L × D. `dropout_rate` drops attention weights.

    The Gaussian weight scales the logits before padding is masked.
    """
    fused = HAS_TRITON and projected_NLKGD.is_cuda and projected_NLKGD.shape[1] <= LONGEST_FUSED
    compute = attend_fused if fused else attend
    return compute(projected_NLKGD, bias_KGD, weights_GLL, mask_NL, heads, dropout_rate)


def attend(
    projected_NLKGD: Tensor,
    bias_KGD: Tensor,
    weights_GLL: Tensor,
    mask_NL: Tensor | None,
    heads: int,
    dropout_rate: float,
) -> Tensor:
    """Gaussian attention in plain torch."""
    biased_NLKGHE = (projected_NLKGD + bias_KGD.to(projected_NLKGD.dtype)).unflatten(-1, (heads, -1))
    query, key, value = biased_NLKGHE.permute(2, 3, 0, 4, 1, 5)  # each G × N × H × L × E
    logits = (query @ key.transpose(-1, -2)).float()
    scale = weights_GLL[:, None, None] / math.sqrt(query.shape[-1])
    if mask_NL is None:
        logits = logits * scale
    else:
        logits = torch.addcmul(torch.where(mask_NL, 0.0, PADDED)[None, :, None, None, :], logits, scale)
    attention = dropout(logits.softmax(-1), dropout_rate, training=True)
    context: Tensor = (attention.to(value.dtype) @ value).transpose(2, 3).flatten(-2)
    return context
