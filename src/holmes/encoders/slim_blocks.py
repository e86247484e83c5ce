"""Parallel attention blocks without a feed-forward part, for MS-SL and GMMFormer.

G blocks, N sequences, L positions, D width, I input width
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from holmes.encoders.blocks import BlockLinear, BlockNorm, GaussianBlocks
from holmes.encoders.dropout import dropout
from holmes.encoders.projection import InputProjection, LearnedPositions


class SlimBlocks(GaussianBlocks):
    """LayerNorm(x + dropout(Linear(attention(x)))), one for each Gaussian width, over the same input."""

    def __init__(
        self, widths: Sequence[float | None], length: int, width: int, heads: int, dropout_rate: float
    ) -> None:
        super().__init__(widths, length, width, heads, dropout_rate)
        self.project = BlockLinear(len(widths), width, width)
        self.norm = BlockNorm(len(widths), width)

    def forward(self, input_NLD: Tensor, mask_NL: Tensor | None, window_GLL: Tensor | None = None) -> Tensor:
        """N × L × D → N × L × D: the mean of the blocks."""
        context_GRD = self.attend(input_NLD, mask_NL, window_GLL).flatten(1, 2)
        projected_GRD = self.project.biased(self.project(context_GRD))
        projected_GRD = dropout(projected_GRD, self.dropout_rate, self.training)
        residual_RD = input_NLD.flatten(0, 1).to(projected_GRD.dtype)
        return self.norm(residual_RD + projected_GRD).mean(0).unflatten(0, input_NLD.shape[:2])


class SlimTokenEncoder(nn.Module):
    """Projection and one plain block over the tokens of a query."""

    def __init__(self, inputs: int, tokens: int, width: int, heads: int, dropout_rate: float) -> None:
        super().__init__()
        self.project = InputProjection(inputs, width, dropout_rate)
        self.block = SlimBlocks([None], tokens, width, heads, dropout_rate)

    def forward(self, tokens_QTI: Tensor, mask_QT: Tensor, place: LearnedPositions) -> Tensor:
        return self.block(place(self.project(tokens_QTI)), mask_QT)


class SlimBranch(nn.Module):
    """Projection, positions, and layers of blocks over the frames or clips of a video."""

    def __init__(
        self,
        inputs: int,
        length: int,
        width: int,
        heads: int,
        widths: Sequence[float | None],
        dropout_rate: float,
        layers: int,
    ) -> None:
        super().__init__()
        self.project = InputProjection(inputs, width, dropout_rate)
        self.place = LearnedPositions(length, width, dropout_rate)
        self.layers = nn.ModuleList(
            SlimBlocks(widths, length, width, heads, dropout_rate) for _ in range(layers)
        )

    def forward(
        self, features_VLI: Tensor, mask_VL: Tensor | None = None, window_GLL: Tensor | None = None
    ) -> Tensor:
        """V × L × I → V × L × D."""
        hidden_VLD = self.place(self.project(features_VLI))
        for layer in self.layers:
            hidden_VLD = layer(hidden_VLD, mask_VL, window_GLL)
        return hidden_VLD
