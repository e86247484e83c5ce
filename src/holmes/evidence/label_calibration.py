"""Query label calibration: polysemous queries share part of their label with similar videos (eq. 15).

Q queries, V videos of the batch
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from holmes.records import QueryKind


def one_hot_label(owner_Q: Tensor, videos: int) -> Tensor:
    """y: 1 for the annotated video."""
    return F.one_hot(owner_Q, videos).float()


@torch.no_grad()
def calibrated_target(
    label_QV: Tensor, frame_QV: Tensor, clip_QV: Tensor, kinds_Q: Tensor, smoothing: float
) -> Tensor:
    """ŷ = (1 - γ) y + γ/2 (σ(s^f) + σ(s^c)) for polysemous queries, y for the others. No gradient."""
    related_QV = (frame_QV.float().softmax(-1) + clip_QV.float().softmax(-1)) / 2
    softened_QV = (1 - smoothing) * label_QV + smoothing * related_QV
    return torch.where((kinds_Q == QueryKind.POLYSEMOUS).unsqueeze(-1), softened_QV, label_QV)
