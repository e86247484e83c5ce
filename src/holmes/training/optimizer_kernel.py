"""The optimiser's step as three GPU kernels on the flat buffers: squares, norms, update.

The buffers are cut into chunks, none of which crosses from one clipped tensor into the next, so a program
needs its tensor's number and weight decay once instead of once for every element. Sums are added in a fixed
order: the same step gives the same bits. The plain twin is `FlatAdam.step` with `adam_update`.

C chunks, N clipped tensors
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # the CPU builds of torch come without it
    triton = None

HAS_TRITON = triton is not None
CHUNK = 4096  # elements


@dataclass(frozen=True)
class Chunks:
    """Where each chunk starts, how long it is and whose it is; each tensor's first chunk, and the end.

    Places and sizes are counted in `unit` elements: 4 where all are multiples, for loads of 16 bytes.
    """

    unit: int
    start_C: Tensor
    size_C: Tensor
    tensor_C: Tensor
    decay_C: Tensor
    first_N: Tensor


def cut(starts: list[int], sizes: list[int], decays: list[float], device: torch.device) -> Chunks:
    """Chunks of the clipped tensors that lie at these places of a flat buffer."""
    unit = 4 if all(number % 4 == 0 for number in (*starts, *sizes)) else 1
    rows, first = [], [0]
    for tensor, (start, size, decay) in enumerate(zip(starts, sizes, decays, strict=True)):
        places = range(0, size, CHUNK)
        rows += [
            ((start + place) // unit, min(CHUNK, size - place) // unit, tensor, decay) for place in places
        ]
        first.append(len(rows))
    start_C, size_C, tensor_C, decay_C = zip(*rows, strict=True)

    def table(values: tuple[float, ...] | list[int], dtype: torch.dtype) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=device)

    return Chunks(
        unit,
        table(start_C, torch.int64),
        table(size_C, torch.int32),
        table(tensor_C, torch.int32),
        table(decay_C, torch.float32),
        table(first, torch.int32),
    )


def clipped_update_fused(
    values: Tensor,
    gradients: Tensor,
    first: Tensor,
    second: Tensor,
    chunks: Chunks,
    learning_rate: Tensor,
    gradient_norm: float,
    betas: tuple[float, float],
    tiny: float,
) -> Tensor:
    """One update in place; returns each tensor's gradient norm before clipping."""
    count, tensors = len(chunks.start_C), len(chunks.first_N) - 1
    squares_C, norms_N = values.new_empty(count), values.new_empty(tensors)
    sizes = {"UNIT": chunks.unit, "CHUNK": CHUNK}
    squares_kernel[(count,)](gradients, chunks.start_C, chunks.size_C, squares_C, **sizes)
    norms_kernel[(tensors,)](squares_C, chunks.first_N, norms_N, TILE=1024)
    update_kernel[(count,)](
        values, gradients, first, second,
        chunks.start_C, chunks.size_C, chunks.tensor_C, chunks.decay_C, norms_N, learning_rate,
        NORM=gradient_norm, BETA_FIRST=betas[0], BETA_SECOND=betas[1], TINY=tiny, **sizes, num_warps=8,
    )  # fmt: skip
    return norms_N


if HAS_TRITON:

    @triton.jit
    def places(start, size, chunk, UNIT: tl.constexpr, CHUNK: tl.constexpr):
        at = tl.arange(0, CHUNK)
        return tl.load(start + chunk) * UNIT + at, at < tl.load(size + chunk) * UNIT

    @triton.jit
    def squares_kernel(gradients, start, size, squares, UNIT: tl.constexpr, CHUNK: tl.constexpr):
        chunk = tl.program_id(0)
        place, inside = places(start, size, chunk, UNIT, CHUNK)
        gradient = tl.load(gradients + place, mask=inside, other=0.0)
        tl.store(squares + chunk, tl.sum(gradient * gradient))

    @triton.jit
    def norms_kernel(squares, first, norms, TILE: tl.constexpr):
        tensor, at = tl.program_id(0), tl.arange(0, TILE)
        end = tl.load(first + tensor + 1)
        sums = tl.zeros((TILE,), tl.float32)
        for chunk in range(tl.load(first + tensor), end, TILE):
            sums += tl.load(squares + chunk + at, mask=chunk + at < end, other=0.0)
        tl.store(norms + tensor, tl.sqrt(tl.sum(sums)))

    @triton.jit
    def update_kernel(
        values, gradients, first, second, start, size, tensor, decay, norms, learning_rate,
        NORM: tl.constexpr, BETA_FIRST: tl.constexpr, BETA_SECOND: tl.constexpr, TINY: tl.constexpr,
        UNIT: tl.constexpr, CHUNK: tl.constexpr,
    ):  # fmt: skip
        chunk = tl.program_id(0)
        place, inside = places(start, size, chunk, UNIT, CHUNK)
        norm = tl.load(norms + tl.load(tensor + chunk))
        # A ratio that is NaN must stay NaN: it is compared, not put through a minimum.
        ratio = NORM / (norm + 1e-6)
        clipped = tl.load(gradients + place, mask=inside, other=0.0) * tl.where(ratio > 1.0, 1.0, ratio)
        value = tl.load(values + place, mask=inside, other=0.0)
        moment = tl.load(first + place, mask=inside, other=0.0) * BETA_FIRST + clipped * (1.0 - BETA_FIRST)
        square = tl.load(second + place, mask=inside, other=0.0) * BETA_SECOND
        square += clipped * clipped * (1.0 - BETA_SECOND)
        change = moment / (tl.sqrt(square) + TINY) + tl.load(decay + chunk) * value
        tl.store(first + place, moment, mask=inside)
        tl.store(second + place, square, mask=inside)
        tl.store(values + place, value - tl.load(learning_rate) * change, mask=inside)
