"""Parallel transformer blocks, computed together as batched matrix products.

G blocks, K = 3 (query, key, value), N sequences, L positions, R = N · L rows, D width, I inputs, O outputs
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holmes.encoders.attention_by_heads import attend_by_heads
from holmes.encoders.dropout import dropout, relu_dropout
from holmes.encoders.fused import fused
from holmes.encoders.gaussian import gaussian_attention, gaussian_weights
from holmes.encoders.linear import by_onednn, linear
from holmes.encoders.padding import ValidRows, longest


class BlockLinear(nn.Module):
    """G linear layers in one batched product, without their bias: G × R × I → G × R × O.

    The caller adds the bias, where it can be fused with what comes next.
    """

    # Each of the first `stack_dims` dimensions indexes whole tensors: the optimiser clips them one by one.
    stack_dims = 1

    def __init__(self, blocks: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight_GIO = nn.Parameter(torch.empty(blocks, inputs, outputs).normal_(std=0.02))
        self.bias_GO = nn.Parameter(torch.zeros(blocks, outputs))

    def forward(self, input_GRI: Tensor) -> Tensor:
        return torch.bmm(input_GRI, self.weight_GIO)

    def biased(self, output_GRO: Tensor) -> Tensor:
        return output_GRO + self.bias_GO.unsqueeze(1).to(output_GRO.dtype)

    def rectified(self, output_GRO: Tensor, dropout_rate: float, training: bool) -> Tensor:
        """dropout(relu(output + bias))."""
        if fused():
            from holmes.encoders.block_kernels import relu_dropout_fused

            return relu_dropout_fused(output_GRO, self.bias_GO, dropout_rate if training else 0.0)
        return relu_dropout(self.biased(output_GRO), dropout_rate, training)


class AttentionInput(nn.Module):
    """Query, key and value projections of G blocks over one shared input: a single product, without bias."""

    stack_dims = 2

    def __init__(self, blocks: int, width: int) -> None:
        super().__init__()
        self.weight_KGIO = nn.Parameter(torch.empty(3, blocks, width, width).normal_(std=0.02))
        self.bias_KGO = nn.Parameter(torch.zeros(3, blocks, width))

    def forward(self, input_NLD: Tensor) -> Tensor:
        """N × L × D → N × L × 3 × G × D."""
        weight_IO = self.weight_KGIO.permute(2, 0, 1, 3).flatten(1)
        return linear(input_NLD, weight_IO).unflatten(-1, self.bias_KGO.shape)

    def queries(self, input_RD: Tensor) -> Tensor:
        """… × D → … × G × D, with bias."""
        return self._biased(input_RD, slice(0, 1)).squeeze(-3)

    def keys_and_values(self, input_RD: Tensor) -> Tensor:
        """… × D → … × 2 × G × D, with bias."""
        return self._biased(input_RD, slice(1, 3))

    def _biased(self, input_RD: Tensor, some: slice) -> Tensor:
        weight_IO = self.weight_KGIO[some].permute(2, 0, 1, 3).flatten(1)
        bias_KGO = self.bias_KGO[some]
        return linear(input_RD, weight_IO, bias_KGO.flatten()).unflatten(-1, bias_KGO.shape)


class BlockNorm(nn.Module):
    """G layer norms: one statistic, each block's own scale and shift."""

    stack_dims = 1

    def __init__(self, blocks: int, width: int, tiny: float = 1e-5) -> None:
        super().__init__()
        self.weight_GD = nn.Parameter(torch.ones(blocks, width))
        self.bias_GD = nn.Parameter(torch.zeros(blocks, width))
        self.tiny = tiny

    def forward(self, input_GRD: Tensor) -> Tensor:
        normal_GRD = F.layer_norm(input_GRD.float(), input_GRD.shape[-1:], eps=self.tiny)
        scaled_GRD = torch.addcmul(self.bias_GD.unsqueeze(1), normal_GRD, self.weight_GD.unsqueeze(1))
        return scaled_GRD.to(input_GRD.dtype)

    def of_sum(
        self,
        residual: Tensor,
        change_GRD: Tensor,
        bias_GD: Tensor | None,
        dropout_rate: float,
        training: bool,
    ) -> Tensor:
        """norm(residual + dropout(change + bias)); the residual is G × R × D, or R × D for all blocks."""
        if fused():
            from holmes.encoders.block_kernels import norm_fused

            rate, parameters = dropout_rate if training else 0.0, (self.weight_GD, self.bias_GD, self.tiny)
            return norm_fused(change_GRD, *parameters, change_GRD.dtype, residual, bias_GD, rate)
        if bias_GD is not None:
            change_GRD = change_GRD + bias_GD.unsqueeze(1).to(change_GRD.dtype)
        return self(residual.to(change_GRD.dtype) + dropout(change_GRD, dropout_rate, training))


class GaussianBlocks(nn.Module):
    """The attention of blocks that stand side by side over the same input, one for each Gaussian width."""

    gaussian_GLL: Tensor

    def __init__(
        self, widths: Sequence[float | None], length: int, width: int, heads: int, dropout_rate: float
    ) -> None:
        super().__init__()
        self.heads, self.dropout_rate = heads, dropout_rate
        self.attention_input = AttentionInput(len(widths), width)
        self.register_buffer("gaussian_GLL", gaussian_weights(widths, length), persistent=False)

    def attend(self, input_NLD: Tensor, mask_NL: Tensor | None, window_GLL: Tensor | None = None) -> Tensor:
        """N × L × D → G × N × L × D. `window_GLL` stands in for the windows of the full length."""
        length = input_NLD.shape[1]
        window_GLL = self.gaussian_GLL[:, :length, :length] if window_GLL is None else window_GLL
        project, rate = self.attention_input, self.dropout_rate
        if by_onednn(input_NLD):
            # Keys behind the longest sequence get no attention at all.
            keyed_NSD = input_NLD if mask_NL is None else input_NLD[:, : longest(mask_NL)]
            projected = (project.queries(input_NLD), project.keys_and_values(keyed_NSD))
            return attend_by_heads(*projected, window_GLL, mask_NL, self.heads, rate, self.training)
        how = (window_GLL, mask_NL, self.heads, rate if self.training else 0.0)
        return gaussian_attention(project(input_NLD), project.bias_KGO, *how)


class ParallelBlocks(GaussianBlocks):
    """Post-norm transformer blocks over the same input, one for each Gaussian width.

    Attention has no output projection; the feed-forward part widens `expansion` times, with ReLU. Dropout
    falls on four things: attention weights, attention output, the wide layer and the feed-forward output.
    """

    def __init__(
        self,
        widths: Sequence[float | None],
        length: int,
        width: int,
        heads: int,
        dropout_rate: float,
        expansion: int = 4,
        further: int = 0,  # blocks whose attention a subclass adds
    ) -> None:
        super().__init__(widths, length, width, heads, dropout_rate)
        blocks = len(widths) + further
        self.attention_norm = BlockNorm(blocks, width)
        self.widen = BlockLinear(blocks, width, expansion * width)
        self.narrow = BlockLinear(blocks, expansion * width, width)
        self.output_norm = BlockNorm(blocks, width)

    def forward(self, input_NLD: Tensor, mask_NL: Tensor | None) -> Tensor:
        """N × L × D → G × N × L × D."""
        return self.refine(input_NLD, self.attend(input_NLD, mask_NL))

    def of_rows(self, input_RD: Tensor, rows: ValidRows, mask_NL: Tensor) -> Tensor:
        """`forward` in training on a CPU, of valid positions only: R × D → G × R × D."""
        project, length = self.attention_input, mask_NL.shape[1]
        context_GNLD = attend_by_heads(
            rows.padded(project.queries(input_RD)),
            rows.padded(project.keys_and_values(input_RD)),
            self.gaussian_GLL[:, :length, :length],
            mask_NL,
            self.heads,
            self.dropout_rate,
            self.training,
        )
        return self._one_by_one(input_RD, [rows.of(context_NLD) for context_NLD in context_GNLD.unbind()])

    def refine(self, input_NLD: Tensor, context_GNLD: Tensor) -> Tensor:
        """What follows attention in every block: residual, norm, feed-forward, norm."""
        how, input_RD = (self.dropout_rate, self.training), input_NLD.flatten(0, 1)
        if by_onednn(context_GNLD):
            return self._one_by_one(input_RD, context_GNLD.flatten(1, 2).unbind()).view_as(context_GNLD)
        attended_GRD = self.attention_norm.of_sum(input_RD, context_GNLD.flatten(1, 2), None, *how)
        inner_GRD = self.widen.rectified(self.widen(attended_GRD), *how)
        output_GRD = self.output_norm.of_sum(attended_GRD, self.narrow(inner_GRD), self.narrow.bias_GO, *how)
        return output_GRD.unflatten(1, input_NLD.shape[:2])

    def _one_by_one(self, input_RD: Tensor, contexts_RD: Sequence[Tensor]) -> Tensor:
        """`refine` in training on a CPU, where products of a single block are the fastest."""
        how, tiny, outputs_RD = (self.dropout_rate, self.training), self.output_norm.tiny, []
        parts = (self.attention_norm, self.widen, self.narrow, self.output_norm)
        parameters = [parameter.unbind() for part in parts for parameter in part.parameters()]
        for context_RD, *own in zip(contexts_RD, *parameters, strict=True):
            norm, shift, wide_IO, wide_O, narrow_IO, narrow_O, last_norm, last_shift = own
            attended_RD = F.layer_norm(input_RD + dropout(context_RD, *how), norm.shape, norm, shift, tiny)
            inner_RO = relu_dropout(linear(attended_RD, wide_IO, wide_O), *how)
            change_RD = dropout(linear(inner_RO, narrow_IO, narrow_O), *how)
            outputs_RD.append(F.layer_norm(attended_RD + change_RD, norm.shape, last_norm, last_shift, tiny))
        return torch.stack(outputs_RD)
