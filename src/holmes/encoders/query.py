"""The query encoder: one transformer block over the tokens, then a pooled vector or weighted tokens.

Q queries, T tokens, I input width, D width
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holmes.encoders.blocks import ParallelBlocks
from holmes.encoders.linear import by_onednn
from holmes.encoders.padding import PADDED, ValidRows
from holmes.encoders.projection import InputProjection, LearnedPositions


class TokenEncoder(nn.Module):
    """Projection and one block; positions are given, because two encoders may share them."""

    def __init__(self, inputs: int, tokens: int, width: int, heads: int, dropout_rate: float) -> None:
        super().__init__()
        self.project = InputProjection(inputs, width, dropout_rate)
        self.block = ParallelBlocks([None], tokens, width, heads, dropout_rate)

    def forward(self, tokens_QTI: Tensor, mask_QT: Tensor, place: LearnedPositions) -> Tensor:
        if by_onednn(tokens_QTI):
            return self._of_valid(tokens_QTI, mask_QT, place)
        return self.block(place(self.project(tokens_QTI)), mask_QT).squeeze(0)

    def _of_valid(self, tokens_QTI: Tensor, mask_QT: Tensor, place: LearnedPositions) -> Tensor:
        """In training on a CPU only tokens that are not padding are encoded; the others become 0."""
        rows = ValidRows(mask_QT)
        placed_RD = place.at(self.project(rows.of(tokens_QTI)), rows.position_R)
        return rows.padded(self.block.of_rows(placed_RD, rows, mask_QT).squeeze(0))


class AttentionPooling(nn.Module):
    """softmax over tokens of a learned vector's response, then the weighted sum."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.response = nn.Linear(width, 1, bias=False)

    def forward(self, tokens_QTD: Tensor, mask_QT: Tensor) -> Tensor:
        logits_QT = self.response(tokens_QTD).squeeze(-1).float() + torch.where(mask_QT, 0.0, PADDED)
        return torch.einsum("qt,qtd->qd", logits_QT.softmax(-1).to(tokens_QTD.dtype), tokens_QTD)


class TokenWeights(nn.Module):
    """How much each token counts in the dual-query frame branch: softmax over valid tokens."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(width, width)
        self.weigh = nn.Linear(width, 1)

    def forward(self, tokens_QTD: Tensor, mask_QT: Tensor) -> Tensor:
        logits_QT = self.weigh(F.relu(self.hidden(tokens_QTD))).squeeze(-1).float()
        # A padded query has no token at all: its weights become 0 instead of NaN.
        weights_QT = logits_QT.masked_fill(~mask_QT, torch.finfo(torch.float32).min).softmax(-1)
        return weights_QT.masked_fill(~mask_QT, 0)
