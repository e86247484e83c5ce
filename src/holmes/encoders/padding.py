"""Padded positions: where they are, and how attention leaves them out."""

from __future__ import annotations

import torch
from torch import Tensor

PADDED = -10000.0  # added to the logit of a padded position, as in the published models


def length_mask(lengths_N: Tensor, length: int) -> Tensor:
    """N × L: true where a position is not padding."""
    return torch.arange(length, device=lengths_N.device) < lengths_N.unsqueeze(1)
