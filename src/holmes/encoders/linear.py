"""Linear layers for training and evaluation. On a CPU, oneDNN replaces MKL, which is slow on AMD.

R rows, I inputs, O outputs
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from holmes.encoders.fused import fused


def linear(input_RI: Tensor, weight_IO: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """input · weight + bias, for any leading dimensions of the input."""
    if not by_onednn(input_RI):
        return input_RI @ weight_IO if bias_O is None else F.linear(input_RI, weight_IO.T, bias_O)
    output: Tensor = Linear.apply(input_RI.reshape(-1, input_RI.shape[-1]), weight_IO, bias_O)
    return output.view(*input_RI.shape[:-1], -1)


_MANY_ROWS = ContextVar("many_rows", default=False)


@contextmanager
def many_rows() -> Iterator[None]:
    """Compute in this block as in training: as fast as can be, and equal to searching up to rounding only."""
    before = _MANY_ROWS.set(True)
    try:
        yield
    finally:
        _MANY_ROWS.reset(before)


def by_onednn(values: Tensor) -> bool:
    """In training and evaluation on a CPU. In a search the same rows must give the same bits in any batch."""
    free = torch.is_grad_enabled() or _MANY_ROWS.get()
    on_cpu = values.device.type == "cpu" and values.dtype == torch.float32
    return free and on_cpu and not fused() and torch.backends.mkldnn.is_available()


class Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input_RI: Tensor, weight_IO: Tensor, bias_O: Tensor | None) -> Tensor:
        ctx.save_for_backward(input_RI, weight_IO)
        return product(input_RI, weight_IO, bias_O)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, Tensor | None]:
        (input_RI, weight_IO), gradient_RO = ctx.saved_tensors, gradients[0].contiguous()
        of_input = product(gradient_RO, weight_IO.T) if ctx.needs_input_grad[0] else None
        # Long sums with few columns are slow: the wider of the two gives the columns.
        if weight_IO.shape[0] <= weight_IO.shape[1]:
            of_weight = product(input_RI.T, gradient_RO)
        else:
            of_weight = product(gradient_RO.T, input_RI).T
        return of_input, of_weight, gradient_RO.sum(0) if ctx.needs_input_grad[2] else None


def product(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """left · right + bias by oneDNN, whose operator takes the right side transposed."""
    result: Tensor = torch.ops.mkldnn._linear_pointwise(left, right.T, bias, "none", [], "")
    return result
