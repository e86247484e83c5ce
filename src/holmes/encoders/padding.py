"""Padded positions: masks, attention that ignores them, and rows without them.

N sequences, L positions, R rows of valid positions
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

PADDED = -10000.0  # added to the logit of a padded position, as in the published models


def length_mask(lengths_N: Tensor, length: int) -> Tensor:
    """N × L: true where a position is not padding."""
    return torch.arange(length, device=lengths_N.device) < lengths_N.unsqueeze(1)


def longest(mask_NL: Tensor) -> int:
    """How many positions reach to the last valid one of any sequence; all if none is valid."""
    valid = mask_NL.any(0).nonzero()
    return int(valid[-1]) + 1 if len(valid) else mask_NL.shape[1]


class ValidRows:
    """The valid positions of padded sequences, one after another. A sequence without any keeps its first."""

    def __init__(self, mask_NL: Tensor) -> None:
        kept_NL = mask_NL.clone()
        kept_NL[:, 0] |= ~mask_NL.any(1)
        self.shape = mask_NL.shape
        self.row_R = kept_NL.flatten().nonzero().squeeze(1)
        self.position_R = self.row_R % self.shape[1]

    def of(self, padded: Tensor) -> Tensor:
        """N × L × … → R × …"""
        rows: Tensor = TakeRows.apply(padded.flatten(0, 1), self.row_R)
        return rows

    def padded(self, rows: Tensor) -> Tensor:
        """R × … → N × L × …, with zeros where a position is padding."""
        padded: Tensor = SpreadRows.apply(rows, self.row_R, self.shape.numel())
        return padded.unflatten(0, self.shape)


class TakeRows(torch.autograd.Function):
    """Each row is taken once, so the gradient is copied to its place; nothing is added up."""

    @staticmethod
    def forward(ctx: Any, padded: Tensor, row_R: Tensor) -> Tensor:
        ctx.save_for_backward(row_R)
        ctx.size = len(padded)
        return padded.index_select(0, row_R)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (row_R,) = ctx.saved_tensors
        return spread(gradients[0], row_R, ctx.size), None


class SpreadRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, row_R: Tensor, size: int) -> Tensor:
        ctx.save_for_backward(row_R)
        return spread(rows, row_R, size)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (row_R,) = ctx.saved_tensors
        return gradients[0].index_select(0, row_R), None, None


def spread(rows: Tensor, row_R: Tensor, size: int) -> Tensor:
    return rows.new_zeros((size, *rows.shape[1:])).index_copy_(0, row_R, rows)
