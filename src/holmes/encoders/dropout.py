"""Dropout from random bytes: one random word makes eight decisions.

Drawing a word for every decision costs more than the decision's own arithmetic. A byte resolves the rate to
1/256; what is kept is scaled by the rate really used, so expectations stay exact.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

WORD_BYTES = 8


def dropout(values: Tensor, dropout_rate: float, training: bool) -> Tensor:
    """Zero each value with probability `dropout_rate` and scale up the others."""
    if not training or dropout_rate == 0:
        return values
    if values.device.type == "cpu":
        return values * cpu_mask(values, dropout_rate)
    threshold = byte_threshold(dropout_rate)
    keep = random_bytes(values.shape, values.device) >= threshold
    return values * keep * kept_scale(threshold)


def cpu_mask(values: Tensor, dropout_rate: float) -> Tensor:
    """The scale where a value is kept, 0 elsewhere: on a CPU, multiplying by bools costs twice as much."""
    threshold = byte_threshold(dropout_rate)
    mask = torch.empty_like(values, requires_grad=False)
    torch.ge(random_bytes(values.shape, values.device), threshold, out=mask)
    return mask.mul_(kept_scale(threshold))


def kept_bytes(values: Tensor, dropout_rate: float, training: bool) -> Tensor | None:
    """A random byte for every value, to compare with `byte_threshold` later; None if nothing is dropped."""
    return random_bytes(values.shape, values.device) if training and byte_threshold(dropout_rate) else None


def relu_dropout(values: Tensor, dropout_rate: float, training: bool) -> Tensor:
    """dropout(relu(x)), remembering nothing but its own output."""
    if not training or dropout_rate == 0:
        return torch.relu(values)
    result: Tensor = ReluDropout.apply(values, dropout_rate)
    return result


class ReluDropout(torch.autograd.Function):
    """The output is positive exactly where the gradient passes, so neither mask nor input need be kept."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, dropout_rate: float) -> Tensor:
        threshold = byte_threshold(dropout_rate)
        ctx.scale = kept_scale(threshold)
        if values.device.type == "cpu":
            output = torch.relu(values).mul_(cpu_mask(values, dropout_rate))
            ctx.save_for_backward(output)
            return output
        keep = random_bytes(values.shape, values.device) >= threshold
        output = torch.relu(values) * keep * ctx.scale
        ctx.save_for_backward(output)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (output,) = ctx.saved_tensors
        return torch.ops.aten.threshold_backward(gradients[0], output, 0) * ctx.scale, None


def byte_threshold(dropout_rate: float) -> int:
    """Bytes below this are dropped; a rate below 1 always keeps something."""
    return min(255, round(256 * dropout_rate))


def kept_scale(threshold: int) -> float:
    return 256 / (256 - threshold)


def random_bytes(shape: torch.Size, device: torch.device) -> Tensor:
    count = math.prod(shape)
    words = torch.randint(-(2**63), 2**63 - 1, (-(-count // WORD_BYTES),), device=device)
    return words.view(torch.uint8)[:count].view(shape)
