"""GPU kernels of the block mixture: the mean of the token, and the weighted sum.

Both read the blocks once from memory, forward and backward. The plain twins are `TokenAttention.mean_of` and
the sum in `BlockMixture.forward` of `mixture.py`.

G blocks, N sequences, L positions, R = N · L rows, D width, H heads
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from holmes.encoders.attention_kernel import kept
from holmes.encoders.block_kernels import WARP, new_seed
from holmes.encoders.padding import PADDED

try:
    import triton
    import triton.language as tl
except ImportError:  # the CPU builds of torch come without it
    triton = None

HAS_TRITON = triton is not None
TILE_H = 16  # heads, filled up to what a matrix unit takes


def weighted_sum_fused(weights_GNL: Tensor, blocks_GNLD: Tensor) -> Tensor:
    """Σ_g w_g · block_g, N × L × D."""
    result: Tensor = WeightedSum.apply(weights_GNL, blocks_GNLD)
    return result


def token_mean_fused(
    folded_NHD: Tensor, blocks_GNLD: Tensor, mask_NL: Tensor | None, scale: float, dropout_rate: float
) -> tuple[Tensor, Tensor]:
    """dropout(softmax(scale · folded · block)) · block, G × N × H × D, and the weights' sum, G × N × H."""
    if mask_NL is None:
        mask_NL = torch.ones(blocks_GNLD.shape[1:3], dtype=torch.bool, device=blocks_GNLD.device)
    found: tuple[Tensor, Tensor] = TokenMean.apply(
        folded_NHD, blocks_GNLD, mask_NL, new_seed(blocks_GNLD.device), scale, dropout_rate
    )
    return found


class WeightedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights_GNL: Tensor, blocks_GNLD: Tensor) -> Tensor:
        weights_GNL, blocks_GNLD = weights_GNL.contiguous(), blocks_GNLD.contiguous()
        ctx.save_for_backward(weights_GNL, blocks_GNLD)
        grid, sizes = rows_of(blocks_GNLD)
        output_NLD = torch.empty_like(blocks_GNLD[0])
        sum_forward_kernel[grid](weights_GNL, blocks_GNLD, output_NLD, **sizes)
        return output_NLD

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        weights_GNL, blocks_GNLD = ctx.saved_tensors
        grid, sizes = rows_of(blocks_GNLD)
        weight_gradient, block_gradient = torch.empty_like(weights_GNL), torch.empty_like(blocks_GNLD)
        sum_backward_kernel[grid](
            gradients[0].contiguous(), weights_GNL, blocks_GNLD, weight_gradient, block_gradient, **sizes
        )
        return weight_gradient, block_gradient


def rows_of(blocks_GNLD: Tensor) -> tuple[tuple[int], dict[str, Any]]:
    """One program for every few rows: a row of one warp is summed without waiting for others."""
    blocks, sequences, length, width = blocks_GNLD.shape
    tile_width = triton.next_power_of_2(width)
    tile_rows = max(1, WARP // tile_width)
    sizes = {
        "R": sequences * length,
        "G": blocks,
        "D": width,
        "TILE_R": tile_rows,
        "TILE_D": tile_width,
        "num_warps": min(8, max(1, tile_width // WARP)),
    }
    return (triton.cdiv(sequences * length, tile_rows),), sizes


class TokenMean(torch.autograd.Function):
    """Attention before dropout is kept: it is small beside the blocks."""

    @staticmethod
    def forward(
        ctx: Any,
        folded_NHD: Tensor,
        blocks_GNLD: Tensor,
        mask_NL: Tensor,
        seed: Tensor,
        scale: float,
        dropout_rate: float,
    ) -> tuple[Tensor, Tensor]:
        blocks_GNLD, folded_NHD = blocks_GNLD.contiguous(), folded_NHD.to(blocks_GNLD.dtype).contiguous()
        blocks, sequences, length, width = blocks_GNLD.shape
        heads = folded_NHD.shape[1]
        attention_GNHL = torch.empty((blocks, sequences, heads, length), device=blocks_GNLD.device)
        mean_GNHD = blocks_GNLD.new_empty((blocks, sequences, heads, width))
        mass_GNH = attention_GNHL.new_empty((blocks, sequences, heads))
        tile_length = max(16, triton.next_power_of_2(length))
        ctx.sizes = {
            "N": sequences,
            "threshold": round(dropout_rate * 2**24),
            "L": length,
            "D": width,
            "H": heads,
            "TILE_L": tile_length,
            "TILE_D": min(128, max(16, triton.next_power_of_2(width))),
            "TILE_H": TILE_H,
            "SCALE": scale,
            "DROPS": dropout_rate > 0,
            "PADDED": PADDED,
            "num_warps": 8 if tile_length >= 128 else 4,
        }
        token_forward_kernel[(sequences, blocks)](
            folded_NHD, blocks_GNLD, mask_NL, seed, attention_GNHL, mean_GNHD, mass_GNH, **ctx.sizes
        )
        ctx.save_for_backward(folded_NHD, blocks_GNLD, seed, attention_GNHL)
        return mean_GNHD, mass_GNH

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        folded_NHD, blocks_GNLD, seed, attention_GNHL = ctx.saved_tensors
        mean_gradient, mass_gradient = (gradient.contiguous() for gradient in gradients)
        folded_gradient_GNHD = torch.empty_like(mean_gradient, dtype=torch.float32)
        block_gradient = torch.empty_like(blocks_GNLD)
        token_backward_kernel[(blocks_GNLD.shape[1], blocks_GNLD.shape[0])](
            mean_gradient, mass_gradient, folded_NHD, blocks_GNLD, seed, attention_GNHL,
            folded_gradient_GNHD, block_gradient, **ctx.sizes,
        )  # fmt: skip
        return folded_gradient_GNHD.sum(0).to(folded_NHD.dtype), block_gradient, None, None, None, None


if HAS_TRITON:

    @triton.jit
    def sum_forward_kernel(
        weights, blocks, output, R,
        G: tl.constexpr, D: tl.constexpr, TILE_R: tl.constexpr, TILE_D: tl.constexpr,
    ):  # fmt: skip
        row_R, at_D = tl.program_id(0) * TILE_R + tl.arange(0, TILE_R), tl.arange(0, TILE_D)
        inside_RD = (row_R < R)[:, None] & (at_D < D)[None, :]
        at_RD = row_R[:, None].to(tl.int64) * D + at_D[None, :]
        sum_RD = tl.zeros((TILE_R, TILE_D), tl.float32)
        for block in tl.static_range(G):
            weight_R = tl.load(weights + block * R + row_R, mask=row_R < R, other=0.0)
            block_RD = tl.load(blocks + block * tl.cast(R, tl.int64) * D + at_RD, mask=inside_RD, other=0.0)
            sum_RD += weight_R[:, None] * block_RD.to(tl.float32)
        tl.store(output + at_RD, sum_RD, mask=inside_RD)

    @triton.jit
    def sum_backward_kernel(
        gradient, weights, blocks, weight_gradient, block_gradient, R,
        G: tl.constexpr, D: tl.constexpr, TILE_R: tl.constexpr, TILE_D: tl.constexpr,
    ):  # fmt: skip
        row_R, at_D = tl.program_id(0) * TILE_R + tl.arange(0, TILE_R), tl.arange(0, TILE_D)
        inside_RD = (row_R < R)[:, None] & (at_D < D)[None, :]
        at_RD = row_R[:, None].to(tl.int64) * D + at_D[None, :]
        passed_RD = tl.load(gradient + at_RD, mask=inside_RD, other=0.0).to(tl.float32)
        for block in tl.static_range(G):
            from_block = block * tl.cast(R, tl.int64) * D
            weight_R = tl.load(weights + block * R + row_R, mask=row_R < R, other=0.0)
            block_RD = tl.load(blocks + from_block + at_RD, mask=inside_RD, other=0.0).to(tl.float32)
            tl.store(
                weight_gradient + block * R + row_R, tl.sum(passed_RD * block_RD, axis=1), mask=row_R < R
            )
            tl.store(block_gradient + from_block + at_RD, weight_R[:, None] * passed_RD, mask=inside_RD)

    @triton.jit
    def load_rows(rows, first, heads, first_D, at_N, COUNT, D: tl.constexpr, TILE_D: tl.constexpr):
        """Some columns of consecutive rows; 0 outside."""
        at_D = first_D + tl.arange(0, TILE_D)
        inside_ND = (at_N < COUNT)[:, None] & (at_D < D)[None, :]
        place_ND = (first.to(tl.int64) * heads + at_N)[:, None] * D + at_D[None, :]
        return tl.load(rows + place_ND, mask=inside_ND, other=0.0), place_ND, inside_ND

    @triton.jit
    def products(
        vectors, first, blocks, pair,
        L: tl.constexpr, D: tl.constexpr, H: tl.constexpr,
        TILE_L: tl.constexpr, TILE_D: tl.constexpr, TILE_H: tl.constexpr,
    ):  # fmt: skip
        """Of each head's vector with each position of a block."""
        at_L, at_H = tl.arange(0, TILE_L), tl.arange(0, TILE_H)
        products_HL = tl.zeros((TILE_H, TILE_L), tl.float32)
        for first_D in range(0, D, TILE_D):
            vector_HD, _, _ = load_rows(vectors, first, H, first_D, at_H, H, D, TILE_D)
            block_LD, _, _ = load_rows(blocks, pair, L, first_D, at_L, L, D, TILE_D)
            products_HL += tl.dot(vector_HD.to(block_LD.dtype), tl.trans(block_LD))
        return products_HL

    @triton.jit(do_not_specialize=["N", "threshold"])
    def token_forward_kernel(
        folded, blocks, mask, seed, attention, mean, mass, N, threshold,
        L: tl.constexpr, D: tl.constexpr, H: tl.constexpr,
        TILE_L: tl.constexpr, TILE_D: tl.constexpr, TILE_H: tl.constexpr,
        SCALE: tl.constexpr, DROPS: tl.constexpr, PADDED: tl.constexpr,
    ):  # fmt: skip
        sequence = tl.program_id(0)
        pair = tl.program_id(1) * N + sequence
        at_L, at_H = tl.arange(0, TILE_L), tl.arange(0, TILE_H)
        logits_HL = products(folded, sequence, blocks, pair, L, D, H, TILE_L, TILE_D, TILE_H)
        valid_L = tl.load(mask + sequence * L + at_L, mask=at_L < L, other=0)
        logits_HL = logits_HL * SCALE + tl.where(valid_L != 0, 0.0, PADDED)[None, :]
        logits_HL = tl.where((at_L < L)[None, :], logits_HL, -float("inf"))
        power_HL = tl.exp(logits_HL - tl.max(logits_HL, axis=1)[:, None])
        attention_HL = power_HL / tl.sum(power_HL, axis=1)[:, None]
        inside_HL = (at_H < H)[:, None] & (at_L < L)[None, :]
        place_HL = (pair.to(tl.int64) * H + at_H)[:, None] * L + at_L[None, :]
        tl.store(attention + place_HL, attention_HL, mask=inside_HL)
        if DROPS:
            attention_HL *= kept(place_HL, seed, threshold)
        tl.store(mass + pair * H + at_H, tl.sum(attention_HL, axis=1), mask=at_H < H)
        for first_D in range(0, D, TILE_D):
            block_LD, _, _ = load_rows(blocks, pair, L, first_D, at_L, L, D, TILE_D)
            at_D = first_D + tl.arange(0, TILE_D)
            place_HD = (pair.to(tl.int64) * H + at_H)[:, None] * D + at_D[None, :]
            mean_HD = tl.dot(attention_HL.to(block_LD.dtype), block_LD)
            tl.store(mean + place_HD, mean_HD, mask=(at_H < H)[:, None] & (at_D < D)[None, :])

    @triton.jit(do_not_specialize=["N", "threshold"])
    def token_backward_kernel(
        mean_gradient, mass_gradient, folded, blocks, seed, attention, folded_gradient, block_gradient,
        N, threshold,
        L: tl.constexpr, D: tl.constexpr, H: tl.constexpr,
        TILE_L: tl.constexpr, TILE_D: tl.constexpr, TILE_H: tl.constexpr,
        SCALE: tl.constexpr, DROPS: tl.constexpr, PADDED: tl.constexpr,
    ):  # fmt: skip
        sequence = tl.program_id(0)
        pair = tl.program_id(1) * N + sequence
        at_L, at_H = tl.arange(0, TILE_L), tl.arange(0, TILE_H)
        passed_HL = products(mean_gradient, pair, blocks, pair, L, D, H, TILE_L, TILE_D, TILE_H)
        inside_HL = (at_H < H)[:, None] & (at_L < L)[None, :]
        place_HL = (pair.to(tl.int64) * H + at_H)[:, None] * L + at_L[None, :]
        attention_HL = tl.load(attention + place_HL, mask=inside_HL, other=0.0)
        passed_HL += tl.load(mass_gradient + pair * H + at_H, mask=at_H < H, other=0.0)[:, None]
        dropped_HL = attention_HL
        if DROPS:
            kept_HL = kept(place_HL, seed, threshold)
            passed_HL *= kept_HL
            dropped_HL *= kept_HL
        mean_H = tl.sum(attention_HL * passed_HL, axis=1)
        logit_gradient_HL = attention_HL * (passed_HL - mean_H[:, None]) * SCALE
        for first_D in range(0, D, TILE_D):
            of_mean_HD, place_HD, inside_HD = load_rows(mean_gradient, pair, H, first_D, at_H, H, D, TILE_D)
            folded_HD, _, _ = load_rows(folded, sequence, H, first_D, at_H, H, D, TILE_D)
            block_LD, place_LD, inside_LD = load_rows(blocks, pair, L, first_D, at_L, L, D, TILE_D)
            of_folded_HD = tl.dot(logit_gradient_HL.to(block_LD.dtype), block_LD)
            tl.store(folded_gradient + place_HD, of_folded_HD, mask=inside_HD)
            of_block_LD = tl.dot(tl.trans(logit_gradient_HL).to(block_LD.dtype), folded_HD)
            of_block_LD += tl.dot(tl.trans(dropped_HL).to(block_LD.dtype), of_mean_HD.to(block_LD.dtype))
            tl.store(block_gradient + place_LD, of_block_LD, mask=inside_LD)
