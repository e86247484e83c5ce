"""Transformer blocks that stand side by side and are computed together, as batched matrix products.

G blocks, N sequences, L positions, D width, I inputs, O outputs
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holmes.encoders.gaussian import gaussian_attention, gaussian_weights


class BlockLinear(nn.Module):
    """G linear layers in one batched product: G × rows × I → G × rows × O."""

    # Each of the first `stack_dims` dimensions indexes whole tensors: the optimiser clips them one by one.
    stack_dims = 1

    def __init__(self, blocks: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight_GIO = nn.Parameter(torch.empty(blocks, inputs, outputs).normal_(std=0.02))
        self.bias_GO = nn.Parameter(torch.zeros(blocks, outputs))

    def forward(self, input_GRI: Tensor) -> Tensor:
        return torch.baddbmm(self.bias_GO.unsqueeze(1), input_GRI, self.weight_GIO)


class BlockNorm(nn.Module):
    """G layer norms: one statistic, each block's own scale and shift."""

    stack_dims = 1

    def __init__(self, blocks: int, width: int, tiny: float = 1e-5) -> None:
        super().__init__()
        self.weight_GD = nn.Parameter(torch.ones(blocks, width))
        self.bias_GD = nn.Parameter(torch.zeros(blocks, width))
        self.tiny = tiny

    def forward(self, input_GRD: Tensor) -> Tensor:
        normal_GRD = F.layer_norm(input_GRD, input_GRD.shape[-1:], eps=self.tiny)
        return normal_GRD * self.weight_GD.unsqueeze(1) + self.bias_GD.unsqueeze(1)


class ParallelBlocks(nn.Module):
    """Post-norm transformer blocks over the same input, one for each Gaussian width.

    Attention has no output projection; the feed-forward part widens `expansion` times, with ReLU.
    """

    gaussian_GLL: Tensor

    def __init__(
        self,
        widths: Sequence[float | None],
        length: int,
        width: int,
        heads: int,
        dropout: float,
        expansion: int = 4,
    ) -> None:
        super().__init__()
        blocks = len(widths)
        self.heads = heads
        self.dropout = dropout
        self.query = BlockLinear(blocks, width, width)
        self.key = BlockLinear(blocks, width, width)
        self.value = BlockLinear(blocks, width, width)
        self.attention_norm = BlockNorm(blocks, width)
        self.widen = BlockLinear(blocks, width, expansion * width)
        self.narrow = BlockLinear(blocks, expansion * width, width)
        self.output_norm = BlockNorm(blocks, width)
        self.register_buffer("gaussian_GLL", gaussian_weights(widths, length), persistent=False)

    def forward(self, input_NLD: Tensor, mask_NL: Tensor | None) -> Tensor:
        """N × L × D → G × N × L × D."""
        sequences, length, width = input_NLD.shape
        blocks = self.gaussian_GLL.shape[0]
        input_GRD = input_NLD.reshape(1, -1, width).expand(blocks, -1, -1)

        def heads(rows_GRD: Tensor) -> Tensor:
            return rows_GRD.reshape(blocks, sequences, length, self.heads, -1).transpose(2, 3)

        context = gaussian_attention(
            heads(self.query(input_GRD)),
            heads(self.key(input_GRD)),
            heads(self.value(input_GRD)),
            self.gaussian_GLL[:, :length, :length],
            mask_NL,
            self.dropout if self.training else 0.0,
        )
        context_GRD = context.transpose(2, 3).reshape(blocks, -1, width)
        attended_GRD = self.attention_norm(input_GRD + context_GRD)
        inner = F.dropout(F.relu(self.widen(attended_GRD)), self.dropout, self.training)
        output_GRD = self.output_norm(attended_GRD + self.narrow(inner))
        return output_GRD.reshape(blocks, sequences, length, width)
