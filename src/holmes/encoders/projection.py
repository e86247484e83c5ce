"""Project features to the model's width, and add an embedding for each position.

N sequences, L positions, I input width, D width
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holmes.encoders.dropout import dropout
from holmes.encoders.fused import fused
from holmes.encoders.linear import linear


class InputProjection(nn.Module):
    """LayerNorm → dropout → Linear → ReLU."""

    def __init__(self, inputs: int, width: int, dropout_rate: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(inputs)
        self.dropout_rate = dropout_rate
        self.linear = nn.Linear(inputs, width)

    def forward(self, features_NLI: Tensor) -> Tensor:
        input_NLI = normalised(features_NLI, self.norm, self.dropout_rate, self.training)
        return F.relu(linear(input_NLI, self.linear.weight.T, self.linear.bias))


class LearnedPositions(nn.Module):
    """LayerNorm(x + position) → dropout."""

    def __init__(self, length: int, width: int, dropout_rate: float) -> None:
        super().__init__()
        self.positions = nn.Embedding(length, width)
        self.norm = nn.LayerNorm(width)
        self.dropout_rate = dropout_rate

    def forward(self, input_NLD: Tensor) -> Tensor:
        place_LD = self.positions.weight[: input_NLD.shape[1]]
        return normalised(input_NLD + place_LD, self.norm, self.dropout_rate, self.training)

    def at(self, input_RD: Tensor, position_R: Tensor) -> Tensor:
        """`forward` of rows whose positions are given."""
        return normalised(input_RD + self.positions(position_R), self.norm, self.dropout_rate, self.training)


def normalised(input_NLD: Tensor, norm: nn.LayerNorm, dropout_rate: float, training: bool) -> Tensor:
    """dropout(norm(input))."""
    if not fused():
        return dropout(norm(input_NLD.float()), dropout_rate, training)
    from holmes.encoders.block_kernels import norm_fused

    device = input_NLD.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else torch.float32
    input_1RD, parameters = input_NLD.flatten(0, 1)[None], (norm.weight[None], norm.bias[None], norm.eps)
    rate = dropout_rate if training else 0.0
    return norm_fused(input_1RD, *parameters, dtype, dropout_rate=rate, drop_after=True).view_as(input_NLD)
