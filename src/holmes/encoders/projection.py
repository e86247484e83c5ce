"""Features projected to the model's width, and an embedding for every position.

N sequences, L positions, I input width, D width
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from holmes.encoders.dropout import dropout


class InputProjection(nn.Module):
    """LayerNorm → dropout → Linear → ReLU."""

    def __init__(self, inputs: int, width: int, dropout_rate: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(inputs)
        self.dropout_rate = dropout_rate
        self.linear = nn.Linear(inputs, width)

    def forward(self, features_NLI: Tensor) -> Tensor:
        return F.relu(self.linear(dropout(self.norm(features_NLI.float()), self.dropout_rate, self.training)))


class LearnedPositions(nn.Module):
    """LayerNorm(x + position) → dropout."""

    def __init__(self, length: int, width: int, dropout_rate: float) -> None:
        super().__init__()
        self.positions = nn.Embedding(length, width)
        self.norm = nn.LayerNorm(width)
        self.dropout_rate = dropout_rate

    def forward(self, input_NLD: Tensor) -> Tensor:
        place_LD = self.positions.weight[: input_NLD.shape[1]]
        return dropout(self.norm(input_NLD + place_LD), self.dropout_rate, self.training)
