"""Averages without padding."""

from __future__ import annotations

from torch import Tensor


def masked_mean(values: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Mean of the values under the mask, along `dim` or of all; 0 where the mask is empty."""
    kept = values.masked_fill(~mask, 0)
    if dim is None:
        return kept.sum() / mask.sum().clamp(min=1)
    return kept.sum(dim) / mask.sum(dim).clamp(min=1)
