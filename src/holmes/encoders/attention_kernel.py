"""Gaussian attention in one pass on a GPU: one program computes a head's attention, another its gradient.

Sequences have at most 128 positions, so no logit ever leaves the chip: the projections are read once, the
context is written once, and the backward pass computes the attention again instead of reading it. The plain
twin is `holmes.encoders.gaussian.attend`.

K = 3 (query, key, value), G blocks, N sequences, L positions, H heads, E width of one head, D = H · E
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from holmes.encoders.padding import PADDED

try:
    import triton
    import triton.language as tl
except ImportError:  # the CPU builds of torch come without it
    triton = None

HAS_TRITON = triton is not None


def attend_fused(
    projected_NLKGD: Tensor,
    bias_KGD: Tensor,
    weights_GLL: Tensor,
    mask_NL: Tensor | None,
    heads: int,
    dropout_rate: float,
) -> Tensor:
    """Gaussian attention, G × N × L × D."""
    sequences, length = projected_NLKGD.shape[:2]
    device = projected_NLKGD.device
    if mask_NL is None:
        mask_NL = torch.ones(sequences, length, dtype=torch.bool, device=device)
    seed = torch.randint(2**31 - 1, (1,), device=device, dtype=torch.int32)
    result: Tensor = FusedAttention.apply(
        projected_NLKGD, bias_KGD.float(), weights_GLL.contiguous(), mask_NL, seed, heads, dropout_rate
    )
    return result


class FusedAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        projected_NLKGD: Tensor,
        bias_KGD: Tensor,
        weights_GLL: Tensor,
        mask_NL: Tensor,
        seed: Tensor,
        heads: int,
        dropout_rate: float,
    ) -> Tensor:
        projected_NLKGD = projected_NLKGD.contiguous()
        sequences, length, _, blocks, width = projected_NLKGD.shape
        context_GNLD = projected_NLKGD.new_empty((blocks, sequences, length, width))
        inputs = (projected_NLKGD, bias_KGD, weights_GLL, mask_NL, seed)
        ctx.save_for_backward(*inputs)
        ctx.grid, ctx.sizes = launch(projected_NLKGD, heads, dropout_rate)
        forward_kernel[ctx.grid](*inputs, context_GNLD, **ctx.sizes)
        return context_GNLD

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """The bias gets the sums over each sequence, added up."""
        projected_NLKGD = ctx.saved_tensors[0]
        projected_gradient = torch.empty_like(projected_NLKGD)
        bias_shape = (projected_NLKGD.shape[0], *projected_NLKGD.shape[2:])
        bias_gradient_NKGD = projected_NLKGD.new_empty(bias_shape, dtype=torch.float32)
        backward_kernel[ctx.grid](
            gradients[0].contiguous(), *ctx.saved_tensors, projected_gradient, bias_gradient_NKGD, **ctx.sizes
        )
        return projected_gradient, bias_gradient_NKGD.sum(0), None, None, None, None, None


def launch(projected_NLKGD: Tensor, heads: int, dropout_rate: float) -> tuple[tuple[int], dict[str, Any]]:
    """One program for every block, sequence and head."""
    sequences, length, _, blocks, width = projected_NLKGD.shape
    tile = max(16, triton.next_power_of_2(length))
    sizes = {
        "G": blocks,
        "N": sequences,  # at run time, like the dropout: another batch or rate needs no other kernel
        "L": length,
        "H": heads,
        "E": width // heads,
        "TILE_L": tile,
        "TILE_E": max(16, triton.next_power_of_2(width // heads)),
        "SCALE": 1 / math.sqrt(width // heads),
        "threshold": round(dropout_rate * 2**24),
        "DROPS": dropout_rate > 0,
        "PADDED": PADDED,
        "num_warps": 8 if tile >= 128 else 4,
    }
    return (blocks * sequences * heads,), sizes


if HAS_TRITON:

    @triton.jit
    def load_head(rows, bias, inside_LE, inside_E):
        """A head's rows of one projection, with its bias added."""
        rows_LE = tl.load(rows, mask=inside_LE, other=0.0)
        bias_E = tl.load(bias, mask=inside_E, other=0.0)
        return tl.where(inside_LE, rows_LE.to(tl.float32) + bias_E[None, :], 0.0).to(rows_LE.dtype)

    @triton.jit
    def attention_of(query_LE, key_LE, weights_LL, padded_L, inside_L, SCALE: tl.constexpr):
        """softmax(M ⊙ Q Kᵀ/√d), rows over keys."""
        logits_LL = tl.dot(query_LE, tl.trans(key_LE)) * SCALE * weights_LL + padded_L[None, :]
        logits_LL = tl.where(inside_L[None, :], logits_LL, -float("inf"))
        power_LL = tl.exp(logits_LL - tl.max(logits_LL, axis=1)[:, None])
        return power_LL / tl.sum(power_LL, axis=1)[:, None]

    @triton.jit
    def kept(place, seed, threshold):
        """1/(1 - rate) where a value is kept, 0 where it is dropped: a hash is random enough for this."""
        word = (place.to(tl.uint32) * 0x9E3779B1) ^ tl.load(seed).to(tl.uint32)
        word = (word ^ (word >> 16)) * 0x85EBCA6B
        word = (word ^ (word >> 13)) * 0xC2B2AE35
        keep = ((word ^ (word >> 16)) >> 8) >= threshold
        return tl.where(keep, 1.0 / (1.0 - threshold / 16777216.0), 0.0)

    @triton.jit
    def kept_weights(program, seed, threshold, TILE_L: tl.constexpr):
        """`kept` for the attention weights of a head."""
        at_L = tl.arange(0, TILE_L)
        place_LL = program * TILE_L * TILE_L + at_L[:, None] * TILE_L + at_L[None, :]
        return kept(place_LL, seed, threshold)

    @triton.jit
    def places(
        program, N, G: tl.constexpr, L: tl.constexpr, H: tl.constexpr, E: tl.constexpr,
        TILE_L: tl.constexpr, TILE_E: tl.constexpr,
    ):  # fmt: skip
        """Where a program's head lies in the bias, in the projections and in the context.

        A sequence's own start is one number of 64 bits; what lies inside a sequence fits 32.
        """
        head, sequence, block = program % H, (program // H) % N, program // (H * N)
        D: tl.constexpr = H * E
        at_L, at_E = tl.arange(0, TILE_L), tl.arange(0, TILE_E)
        at_bias_E = block * D + head * E + at_E
        from_projected = sequence.to(tl.int64) * L * 3 * G * D
        at_projected_LE = at_L[:, None] * (3 * G * D) + at_bias_E[None, :]
        from_context = (block * N + sequence).to(tl.int64) * L * D + head * E
        at_context_LE = at_L[:, None] * D + at_E[None, :]
        return at_bias_E, from_projected, at_projected_LE, from_context, at_context_LE

    @triton.jit
    def load_weights(program, weights, N, L: tl.constexpr, H: tl.constexpr, TILE_L: tl.constexpr):
        """The Gaussian weights of a head's block."""
        at_L = tl.arange(0, TILE_L)
        at_LL = program // (H * N) * L * L + at_L[:, None] * L + at_L[None, :]
        return tl.load(weights + at_LL, mask=(at_L < L)[:, None] & (at_L < L)[None, :], other=0.0)

    @triton.jit
    def load_inputs(
        program, projected, bias, weights, mask, at_bias_E, at_projected_LE, N,
        G: tl.constexpr, L: tl.constexpr, H: tl.constexpr, E: tl.constexpr,
        TILE_L: tl.constexpr, TILE_E: tl.constexpr, SCALE: tl.constexpr, PADDED: tl.constexpr,
    ):  # fmt: skip
        """Query, key and value of a head, and its attention before dropout."""
        sequence = (program // H) % N
        D: tl.constexpr = H * E
        at_L, at_E = tl.arange(0, TILE_L), tl.arange(0, TILE_E)
        inside_L, inside_E = at_L < L, at_E < E
        inside_LE = inside_L[:, None] & inside_E[None, :]
        query_LE = load_head(projected + at_projected_LE, bias + at_bias_E, inside_LE, inside_E)
        key_LE = load_head(projected + G * D + at_projected_LE, bias + G * D + at_bias_E, inside_LE, inside_E)
        value_LE = load_head(
            projected + 2 * G * D + at_projected_LE, bias + 2 * G * D + at_bias_E, inside_LE, inside_E
        )
        weights_LL = load_weights(program, weights, N, L, H, TILE_L)
        valid_L = tl.load(mask + sequence * L + at_L, mask=inside_L, other=0)
        padded_L = tl.where(valid_L != 0, 0.0, PADDED)
        attention_LL = attention_of(query_LE, key_LE, weights_LL, padded_L, inside_L, SCALE)
        return query_LE, key_LE, value_LE, attention_LL

    @triton.jit(do_not_specialize=["N", "threshold"])
    def forward_kernel(
        projected, bias, weights, mask, seed, context, N, threshold,
        G: tl.constexpr, L: tl.constexpr, H: tl.constexpr, E: tl.constexpr,
        TILE_L: tl.constexpr, TILE_E: tl.constexpr, SCALE: tl.constexpr, DROPS: tl.constexpr,
        PADDED: tl.constexpr,
    ):  # fmt: skip
        program = tl.program_id(0)
        at_bias_E, from_projected, at_projected_LE, from_context, at_context_LE = places(
            program, N, G, L, H, E, TILE_L, TILE_E
        )
        inside_LE = (tl.arange(0, TILE_L) < L)[:, None] & (tl.arange(0, TILE_E) < E)[None, :]
        _, _, value_LE, attention_LL = load_inputs(
            program, projected + from_projected, bias, weights, mask, at_bias_E, at_projected_LE, N,
            G, L, H, E, TILE_L, TILE_E, SCALE, PADDED,
        )  # fmt: skip
        if DROPS:
            attention_LL *= kept_weights(program, seed, threshold, TILE_L)
        context_LE = tl.dot(attention_LL.to(value_LE.dtype), value_LE)
        tl.store(context + from_context + at_context_LE, context_LE, mask=inside_LE)

    @triton.jit(do_not_specialize=["N", "threshold"])
    def backward_kernel(
        gradient, projected, bias, weights, mask, seed, projected_gradient, bias_gradient, N, threshold,
        G: tl.constexpr, L: tl.constexpr, H: tl.constexpr, E: tl.constexpr,
        TILE_L: tl.constexpr, TILE_E: tl.constexpr, SCALE: tl.constexpr, DROPS: tl.constexpr,
        PADDED: tl.constexpr,
    ):  # fmt: skip
        program = tl.program_id(0)
        at_bias_E, from_projected, at_projected_LE, from_context, at_context_LE = places(
            program, N, G, L, H, E, TILE_L, TILE_E
        )
        inside_E = tl.arange(0, TILE_E) < E
        inside_LE = (tl.arange(0, TILE_L) < L)[:, None] & inside_E[None, :]
        query_LE, key_LE, value_LE, attention_LL = load_inputs(
            program, projected + from_projected, bias, weights, mask, at_bias_E, at_projected_LE, N,
            G, L, H, E, TILE_L, TILE_E, SCALE, PADDED,
        )  # fmt: skip
        gradient_LE = tl.load(gradient + from_context + at_context_LE, mask=inside_LE, other=0.0)

        projected_gradient += from_projected
        # Few tables of L × L fit in registers: a weight that was dropped is marked by its sign.
        kept_scale = 1.0 / (1.0 - threshold / 16777216.0) if DROPS else 1.0
        if DROPS:
            keep_LL = kept_weights(program, seed, threshold, TILE_L) > 0
            attention_LL = tl.where(keep_LL, attention_LL, -attention_LL)
        dropped_LL = tl.maximum(attention_LL, 0.0) * kept_scale
        value_gradient_LE = tl.dot(tl.trans(dropped_LL.to(value_LE.dtype)), gradient_LE)
        D: tl.constexpr = H * E
        at_sum_E = (program // H) % N * (3 * G * D) + at_bias_E
        tl.store(projected_gradient + 2 * G * D + at_projected_LE, value_gradient_LE, mask=inside_LE)
        tl.store(bias_gradient + 2 * G * D + at_sum_E, tl.sum(value_gradient_LE, axis=0), mask=inside_E)

        # d softmax, then the Gaussian weight and the scale that stood before it.
        passed_LL = tl.dot(gradient_LE, tl.trans(value_LE)) * kept_scale
        passed_LL = tl.where(attention_LL < 0, 0.0, passed_LL)
        attention_LL = tl.abs(attention_LL)
        mean_L = tl.sum(attention_LL * passed_LL, axis=1)
        logit_gradient_LL = attention_LL * (passed_LL - mean_L[:, None]) * SCALE
        logit_gradient_LL *= load_weights(program, weights, N, L, H, TILE_L)
        logit_gradient_LL = logit_gradient_LL.to(query_LE.dtype)
        query_gradient_LE = tl.dot(logit_gradient_LL, key_LE)
        tl.store(projected_gradient + at_projected_LE, query_gradient_LE, mask=inside_LE)
        tl.store(bias_gradient + at_sum_E, tl.sum(query_gradient_LE, axis=0), mask=inside_E)
        key_gradient_LE = tl.dot(tl.trans(logit_gradient_LL), query_LE)
        tl.store(projected_gradient + G * D + at_projected_LE, key_gradient_LE, mask=inside_LE)
        tl.store(bias_gradient + G * D + at_sum_E, tl.sum(key_gradient_LE, axis=0), mask=inside_E)
