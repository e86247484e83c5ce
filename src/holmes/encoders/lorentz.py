"""HLFormer's attention on the hyperboloid of curvature -1, for parallel blocks.

A point has a time, its first number, and a place in space with time² - |space|² = 1. Products of points lose
digits when time and space cancel, so everything between the projections is computed in float32.

G blocks, K = 3 (query, key, value), N sequences, L positions, H heads, E width of one head, D width,
P numbers of a point, S = P - 1 of them in space
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from holmes.encoders.blocks import BlockLinear, BlockNorm
from holmes.encoders.dropout import dropout
from holmes.encoders.gaussian import gaussian_weights

LEAST_TIME = 1.1  # of a point of a head
LARGEST_ANGLE = 10.0  # of the way to the hyperboloid: its sinh is 11,013
LEAST_EXCESS = 1e-6  # of a time over 1, in the way back
NEVER = -1e18  # the logit of a padded position


class BlockProjection(nn.Module):
    """LayerNorm → dropout → Linear → ReLU for each of G blocks."""

    def __init__(self, blocks: int, inputs: int, outputs: int, dropout_rate: float) -> None:
        super().__init__()
        self.norm = BlockNorm(blocks, inputs)
        self.linear = BlockLinear(blocks, inputs, outputs)
        self.dropout_rate = dropout_rate

    def forward(self, input_GRI: Tensor) -> Tensor:
        """G × R × I, or 1 × R × I where all blocks have the same input → G × R × O."""
        normal_GRI = dropout(self.norm(input_GRI), self.dropout_rate, self.training)
        return torch.relu(self.linear.biased(self.linear(normal_GRI)))


class LorentzLinear(nn.Module):
    """Query, key and value points of all heads from a point: P → H × E numbers, a time first in each head."""

    stack_dims = 2

    def __init__(self, blocks: int, width: int, heads: int, dropout_rate: float) -> None:
        super().__init__()
        self.heads, self.dropout_rate = heads, dropout_rate
        self.weight_KGIO = nn.Parameter(torch.empty(3, blocks, width, width).normal_(std=0.02))
        self.log_time_KG = nn.Parameter(torch.full((3, blocks), 2.3))

    def forward(self, point_GRP: Tensor) -> Tensor:
        """G × R × P → K × G × R × H × E."""
        input_KGRP = dropout(point_GRP.expand(3, -1, -1, -1), self.dropout_rate, self.training)
        turned_KGRHE = (input_KGRP @ self.weight_KGIO).unflatten(-1, (self.heads, -1))
        first, rest = turned_KGRHE[..., :1], turned_KGRHE[..., 1:]
        time = first.sigmoid() * self.log_time_KG.exp()[:, :, None, None, None] + LEAST_TIME
        length = rest.square().sum(-1, keepdim=True).clamp(min=1e-8)
        return torch.cat([time, rest * ((time.square() - 1) / length).sqrt()], -1)


class LorentzAttention(nn.Module):
    """In place of softmax(Q Kᵀ/√d) V: to the hyperboloid, attention between points there, and back."""

    stack_dims = 1
    gaussian_GLL: Tensor

    def __init__(
        self,
        widths: Sequence[float | None],
        length: int,
        width: int,
        points: int,
        heads: int,
        dropout_rate: float,
    ) -> None:
        super().__init__()
        blocks, space = len(widths), points - 1
        self.enter = BlockProjection(blocks, width, space, dropout_rate)
        self.points = LorentzLinear(blocks, points, heads, dropout_rate)
        self.leave = BlockProjection(blocks, space, width, dropout_rate)
        self.log_scale_G = nn.Parameter(torch.full((blocks,), -0.5 * math.log(space)))
        self.divisor_G = nn.Parameter(torch.full((blocks,), math.sqrt(points)))
        self.bias_G = nn.Parameter(torch.zeros(blocks))
        self.register_buffer("gaussian_GLL", gaussian_weights(widths, length), persistent=False)

    def forward(self, input_NLD: Tensor, mask_NL: Tensor | None) -> Tensor:
        """N × L × D → G × N × L × D."""
        shape = input_NLD.shape[:2]
        hidden_GRS = self.enter(input_NLD.flatten(0, 1).unsqueeze(0))
        scale_G11 = self.log_scale_G.clamp(max=0).exp()[:, None, None]
        with torch.autocast(input_NLD.device.type, enabled=False):
            point_GRP = to_hyperboloid(hidden_GRS.float() * scale_G11)
            heads_KGNLHE = self.points(point_GRP).unflatten(2, shape)
            joined_GNLP = self.attend(heads_KGNLHE, mask_NL).flatten(-2)
            space_GRS = from_hyperboloid(joined_GNLP).flatten(1, 2) / scale_G11
        output_GRD: Tensor = self.leave(space_GRS)
        return output_GRD.unflatten(1, shape)

    def attend(self, heads_KGNLHE: Tensor, mask_NL: Tensor | None) -> Tensor:
        """softmax(M_σ ⊙ ((2 + 2⟨q, k⟩)/c + b)), then the mid-point of the values: G × N × L × H × E."""
        query, key, value = heads_KGNLHE.transpose(3, 4)  # each G × N × H × L × E
        flipped = torch.cat([-key[..., :1], key[..., 1:]], -1)  # the Lorentz product: space less time
        length = key.shape[-2]
        divisor, bias = (scalar_G[:, None, None, None, None] for scalar_G in (self.divisor_G, self.bias_G))
        logits = (2 + 2 * (query @ flipped.mT)) / divisor + bias
        logits = logits * self.gaussian_GLL[:, None, None, :length, :length]
        if mask_NL is not None:
            logits = logits.masked_fill(~mask_NL[None, :, None, None, :], NEVER)
        mean = logits.softmax(-1) @ value
        inner = mean[..., 1:].square().sum(-1, keepdim=True) - mean[..., :1].square()
        return (mean / inner.abs().clamp(min=1e-8).sqrt()).transpose(2, 3)


def to_hyperboloid(tangent: Tensor) -> Tensor:
    """sinh(r) u/r with r = |u|, and the time before it."""
    length = tangent.square().sum(-1, keepdim=True).clamp(min=1e-9).sqrt()
    space = torch.sinh(length.clamp(max=LARGEST_ANGLE)) * tangent / length
    return torch.cat([(1 + space.square().sum(-1, keepdim=True)).sqrt(), space], -1)


def from_hyperboloid(point: Tensor) -> Tensor:
    """arcosh(t)/√(t² - 1) times what stands behind the time t.

    The factor is 0/0 at t = 1, where the released code breaks; it tends to 1, which is what it is here.
    """
    excess = (point[..., :1] - 1).clamp(min=LEAST_EXCESS)
    root = (excess * (excess + 2)).sqrt()
    return torch.log1p(excess + root) / root * point[..., 1:]
