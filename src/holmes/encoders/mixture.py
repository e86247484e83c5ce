"""MAIM: the weight of each block's output, position by position.

A token that has seen all blocks asks each of them what it has; the answers become weights.

G blocks, N sequences, L positions, D width, H heads, E width of one head
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from holmes.encoders.dropout import dropout, relu_dropout
from holmes.encoders.fused import fused
from holmes.encoders.linear import by_onednn
from holmes.encoders.padding import PADDED


class BlockMixture(nn.Module):
    """G × N × L × D → N × L × D."""

    def __init__(self, length: int, width: int, heads: int, dropout_rate: float, temperature: float) -> None:
        super().__init__()
        self.ask = TokenAttention(width, heads, dropout_rate)
        self.hidden = nn.Linear(width, width)
        self.weigh = nn.Linear(width, length)
        self.dropout_rate = dropout_rate
        self.temperature = temperature

    def forward(self, blocks_GNLD: Tensor, mask_NL: Tensor | None, token_ND: Tensor | None = None) -> Tensor:
        """The weighted sum. The token is the mean of everything unless another one is given."""
        if token_ND is None:
            # The published models average over padding too: the token depends on it, so we keep it.
            token_ND = blocks_GNLD.mean((0, 2))
        weights_GNL = self.shares(blocks_GNLD, mask_NL, token_ND)
        if fused():
            from holmes.encoders.mixture_kernels import weighted_sum_fused

            return weighted_sum_fused(weights_GNL, blocks_GNLD)
        if by_onednn(blocks_GNLD):
            weighted_NLD: Tensor = SumOfBlocks.apply(weights_GNL, blocks_GNLD)
            return weighted_NLD
        return torch.einsum("gnl,gnld->nld", weights_GNL.to(blocks_GNLD.dtype), blocks_GNLD)

    def shares(self, blocks_GNLD: Tensor, mask_NL: Tensor | None, token_ND: Tensor) -> Tensor:
        """How much each block counts, position by position: G × N × L, of sum 1 over the blocks."""
        answer_GND = self.ask(token_ND, blocks_GNLD, mask_NL)
        logits_GNL = self.weigh(relu_dropout(self.hidden(answer_GND), self.dropout_rate, self.training))
        return (logits_GNL.float() / self.temperature).softmax(0)


class SumOfBlocks(torch.autograd.Function):
    """Σ_g w_g · block_g on a CPU, where a product for every position costs more than its numbers."""

    @staticmethod
    def forward(ctx: Any, weights_GNL: Tensor, blocks_GNLD: Tensor) -> Tensor:
        ctx.save_for_backward(weights_GNL, blocks_GNLD)
        sum_NLD = torch.zeros_like(blocks_GNLD[0])
        for weight_NL, block_NLD in zip(weights_GNL, blocks_GNLD, strict=True):
            sum_NLD.addcmul_(weight_NL.unsqueeze(-1), block_NLD)
        return sum_NLD

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        (weights_GNL, blocks_GNLD), (given_NLD,) = ctx.saved_tensors, gradients
        of_weights = torch.stack([(given_NLD * block_NLD).sum(-1) for block_NLD in blocks_GNLD])
        return of_weights, weights_GNL.unsqueeze(-1) * given_NLD


class TokenAttention(nn.Module):
    """A transformer block in which one token attends to a sequence, for every block alike.

    With a single query, keys and values need not be formed: the query is carried through the key weights
    once, and the value weights are applied to the attended mean. Same result, far less work.
    """

    def __init__(self, width: int, heads: int, dropout_rate: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout_rate = dropout_rate
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.attention_norm = nn.LayerNorm(width)
        self.widen = nn.Linear(width, width)
        self.narrow = nn.Linear(width, width)
        self.output_norm = nn.LayerNorm(width)

    def forward(self, token_ND: Tensor, blocks_GNLD: Tensor, mask_NL: Tensor | None) -> Tensor:
        """N × D asks G × N × L × D: G × N × D."""
        context_GND = dropout(self.attend(token_ND, blocks_GNLD, mask_NL), self.dropout_rate, self.training)
        attended_GND = self.attention_norm(token_ND + context_GND)
        inner_GND = relu_dropout(self.widen(attended_GND), self.dropout_rate, self.training)
        change_GND = dropout(self.narrow(inner_GND), self.dropout_rate, self.training)
        return self.output_norm(attended_GND + change_GND)

    def attend(self, token_ND: Tensor, blocks_GNLD: Tensor, mask_NL: Tensor | None) -> Tensor:
        query_NHE = self.query(token_ND).unflatten(-1, (self.heads, -1))
        mean_GNHD, mass_GNH = self.mean_of(query_NHE, blocks_GNLD, mask_NL)
        value_HED = self.value.weight.unflatten(0, (self.heads, -1))
        bias_HE = self.value.bias.unflatten(0, (self.heads, -1))
        context_GNHE = torch.einsum("gnhd,hed->gnhe", mean_GNHD, value_HED) + mass_GNH.unsqueeze(-1) * bias_HE
        return context_GNHE.flatten(-2)

    def mean_of(
        self, query_NHE: Tensor, blocks_GNLD: Tensor, mask_NL: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The attended mean of every block, G × N × H × D, and the sum of its weights: 1 without dropout."""
        key_HED = self.key.weight.unflatten(0, (self.heads, -1))
        folded_NHD = torch.einsum("nhe,hed->nhd", query_NHE, key_HED)
        root = math.sqrt(query_NHE.shape[-1])
        if fused():
            # The keys' bias adds the same to all positions: a softmax does not see it.
            from holmes.encoders.mixture_kernels import token_mean_fused

            rate = self.dropout_rate if self.training else 0.0
            return token_mean_fused(folded_NHD, blocks_GNLD, mask_NL, 1 / root, rate)
        offset_NH = torch.einsum("nhe,he->nh", query_NHE, self.key.bias.unflatten(0, (self.heads, -1)))
        logits_GNHL = folded_NHD @ blocks_GNLD.transpose(-1, -2) + offset_NH.unsqueeze(-1)
        logits_GNHL = logits_GNHL.float() / root
        if mask_NL is not None:
            logits_GNHL = logits_GNHL + torch.where(mask_NL, 0.0, PADDED)[None, :, None, :]
        attention_GNHL = dropout(logits_GNHL.softmax(-1), self.dropout_rate, self.training)
        mean_GNHD = torch.einsum("gnhl,gnld->gnhd", attention_GNHL.to(blocks_GNLD.dtype), blocks_GNLD)
        return mean_GNHD, attention_GNHL.sum(-1)
