"""GPU kernels between a block's matrix products: norms, and the ReLU of the wide layer.

Each reads its inputs once and writes its output once. The backward pass computes the sums again from the same
inputs, and dropout is a hash of place and seed: only mean and deviation of each row are kept. Gradients that
add up over rows are written tile by tile and summed in a fixed order: the same step gives the same bits.

The plain twins are `BlockNorm` and `BlockLinear.biased` of `blocks.py` with the dropouts of `dropout.py`.

G blocks, R rows, D width, S tiles of rows, K kinds of sums over rows
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from holmes.encoders.attention_kernel import kept

try:
    import triton
    import triton.language as tl
except ImportError:  # the CPU builds of torch come without it
    triton = None

HAS_TRITON = triton is not None
TILE = 4096  # elements that a program of the wide layer holds at once
WARP = 512  # elements of a row for one warp: a row of one warp is summed without waiting for others
WARPS = 2048  # enough to fill a GPU
FORWARD_ROWS, BACKWARD_ROWS = 8, 64  # that one program passes at most


def norm_fused(
    change_GRD: Tensor,
    weight_GD: Tensor,
    bias_GD: Tensor,
    tiny: float,
    dtype: torch.dtype,
    residual: Tensor | None = None,
    change_bias_GD: Tensor | None = None,
    dropout_rate: float = 0.0,
    drop_after: bool = False,
) -> Tensor:
    """norm(residual + dropout(change + change_bias)), or dropout(norm(…)) where it falls after the norm.

    The residual is G × R × D, or R × D and the same for every block.
    """
    tensors = (change_GRD, residual, change_bias_GD, weight_GD, bias_GD)
    settings = (dropout_rate, drop_after, tiny, dtype)
    result: Tensor = FusedNorm.apply(*tensors, new_seed(change_GRD.device), *settings)
    return result


def relu_dropout_fused(input_GRD: Tensor, bias_GD: Tensor, dropout_rate: float) -> Tensor:
    """dropout(relu(input + bias))."""
    result: Tensor = FusedRelu.apply(input_GRD, bias_GD, new_seed(input_GRD.device), dropout_rate)
    return result


def new_seed(device: torch.device) -> Tensor:
    return torch.randint(2**31 - 1, (1,), device=device, dtype=torch.int32)


class FusedNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        change_GRD: Tensor,
        residual: Tensor | None,
        change_bias_GD: Tensor | None,
        weight_GD: Tensor,
        bias_GD: Tensor,
        seed: Tensor,
        dropout_rate: float,
        drop_after: bool,
        tiny: float,
        dtype: torch.dtype,
    ) -> Tensor:
        change_GRD = change_GRD.contiguous()
        residual = None if residual is None else residual.contiguous()
        ctx.sizes = sizes = norm_sizes(change_GRD, residual, change_bias_GD, dropout_rate, drop_after)
        output_GRD = torch.empty_like(change_GRD, dtype=dtype)
        blocks, rows, _ = change_GRD.shape
        mean_GR = torch.empty((blocks, rows), device=change_GRD.device)
        scale_GR = torch.empty_like(mean_GR)
        steps = steps_of(FORWARD_ROWS, blocks * rows, sizes)
        norm_forward_kernel[(triton.cdiv(rows, steps * sizes["TILE_R"]), blocks)](
            change_GRD, residual, change_bias_GD, weight_GD, bias_GD, seed,
            output_GRD, mean_GR, scale_GR, rows, STEPS=steps, TINY=tiny, **sizes,
        )  # fmt: skip
        ctx.save_for_backward(change_GRD, residual, change_bias_GD, weight_GD, seed, mean_GR, scale_GR)
        return output_GRD

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        change_GRD, residual, change_bias_GD, weight_GD, seed, mean_GR, scale_GR = ctx.saved_tensors
        blocks, rows, width = change_GRD.shape
        steps = steps_of(BACKWARD_ROWS, blocks * rows, ctx.sizes)
        tiles = triton.cdiv(rows, steps * ctx.sizes["TILE_R"])
        change_gradient = torch.empty_like(change_GRD) if any(ctx.needs_input_grad[:3]) else None
        residual_gradient = None if residual is None else torch.empty_like(change_GRD, dtype=residual.dtype)
        kinds = 2 if change_bias_GD is None else 3
        sums_SGKD = torch.empty((tiles, blocks, kinds, width), device=change_GRD.device)
        norm_backward_kernel[(tiles, blocks)](
            gradients[0].contiguous(), change_GRD, residual, change_bias_GD, weight_GD, seed,
            mean_GR, scale_GR, change_gradient, residual_gradient, sums_SGKD, rows,
            STEPS=steps, GIVES_CHANGE=change_gradient is not None, **ctx.sizes,
        )  # fmt: skip
        weight_gradient, bias_gradient, *change_bias_gradient = sums_SGKD.sum(0).unbind(1)
        of_change_bias = change_bias_gradient[0] if change_bias_gradient else None
        if residual_gradient is not None and ctx.sizes["SHARED"]:
            residual_gradient = residual_gradient.sum(0)
        of_inputs = (change_gradient, residual_gradient, of_change_bias, weight_gradient, bias_gradient)
        return *of_inputs, None, None, None, None, None


def norm_sizes(
    change_GRD: Tensor,
    residual: Tensor | None,
    change_bias_GD: Tensor | None,
    dropout_rate: float,
    drop_after: bool,
) -> dict[str, Any]:
    tile_width = triton.next_power_of_2(change_GRD.shape[-1])
    return {
        "threshold": round(dropout_rate * 2**24),
        "D": change_GRD.shape[-1],
        "TILE_R": max(1, WARP // tile_width),
        "TILE_D": tile_width,
        "HAS_RESIDUAL": residual is not None,
        "HAS_BIAS": change_bias_GD is not None,
        "DROPS_BEFORE": dropout_rate > 0 and not drop_after,
        "DROPS_AFTER": dropout_rate > 0 and drop_after,
        "SHARED": residual is not None and residual.dim() == 2,
        "num_warps": min(8, max(1, tile_width // WARP)),
    }


def steps_of(most: int, rows: int, sizes: dict[str, Any]) -> int:
    """How many tiles of rows a program passes: few enough to fill the GPU, and a power of 2."""
    each = max(1, min(most, rows * sizes["num_warps"] // WARPS) // sizes["TILE_R"])
    return 1 << (each.bit_length() - 1)


class FusedRelu(torch.autograd.Function):
    """The output is positive exactly where the gradient passes, so it is all that is kept."""

    @staticmethod
    def forward(ctx: Any, input_GRD: Tensor, bias_GD: Tensor, seed: Tensor, dropout_rate: float) -> Tensor:
        input_GRD = input_GRD.contiguous()
        blocks, rows, width = input_GRD.shape
        ctx.threshold = round(dropout_rate * 2**24)
        ctx.sizes = {"D": width, "TILE_R": TILE // 256, "TILE_D": 256}
        output_GRD = torch.empty_like(input_GRD)
        grid = (triton.cdiv(rows, TILE // 256), triton.cdiv(width, 256), blocks)
        relu_forward_kernel[grid](
            input_GRD, bias_GD, seed, output_GRD, rows, ctx.threshold, DROPS=dropout_rate > 0, **ctx.sizes
        )
        ctx.save_for_backward(output_GRD)
        return output_GRD

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (output_GRD,) = ctx.saved_tensors
        blocks, rows, width = output_GRD.shape
        steps = max(1, BACKWARD_ROWS // ctx.sizes["TILE_R"])
        tiles = triton.cdiv(rows, steps * ctx.sizes["TILE_R"])
        input_gradient = torch.empty_like(output_GRD)
        sums_SGD = torch.empty((tiles, blocks, width), device=output_GRD.device)
        relu_backward_kernel[(tiles, triton.cdiv(width, 256), blocks)](
            gradients[0].contiguous(), output_GRD, input_gradient, sums_SGD, rows, ctx.threshold,
            STEPS=steps, **ctx.sizes,
        )  # fmt: skip
        return input_gradient, sums_SGD.sum(0), None, None


if HAS_TRITON:

    @triton.jit
    def load_sum(
        change, residual, change_bias, seed, block, row_R, R, threshold,
        D: tl.constexpr, TILE_D: tl.constexpr, HAS_RESIDUAL: tl.constexpr, HAS_BIAS: tl.constexpr,
        DROPS: tl.constexpr, DROPS_BEFORE: tl.constexpr, SHARED: tl.constexpr,
    ):  # fmt: skip
        """residual + dropout(change + bias) of some rows of a block, in float32; 0 outside.

        Also the rows' places, which of them exist, and what dropout multiplies them by.
        """
        at_D = tl.arange(0, TILE_D)
        inside_RD = (row_R < R)[:, None] & (at_D < D)[None, :]
        at_RD = (block * R + row_R)[:, None].to(tl.int64) * D + at_D[None, :]
        sum_RD = tl.load(change + at_RD, mask=inside_RD, other=0.0).to(tl.float32)
        if HAS_BIAS:
            sum_RD += tl.load(change_bias + block * D + at_D, mask=at_D < D, other=0.0)[None, :]
        kept_RD = 1.0
        if DROPS:
            kept_RD = kept(at_RD, seed, threshold)
        if DROPS_BEFORE:
            sum_RD *= kept_RD
        if HAS_RESIDUAL:
            place_RD = row_R[:, None].to(tl.int64) * D + at_D[None, :] if SHARED else at_RD
            sum_RD += tl.load(residual + place_RD, mask=inside_RD, other=0.0).to(tl.float32)
        return tl.where(inside_RD, sum_RD, 0.0), at_RD, inside_RD, kept_RD

    @triton.jit(do_not_specialize=["threshold"])
    def norm_forward_kernel(
        change, residual, change_bias, weight, bias, seed, output, mean, scale, R, threshold,
        D: tl.constexpr, TILE_R: tl.constexpr, TILE_D: tl.constexpr, TINY: tl.constexpr,
        HAS_RESIDUAL: tl.constexpr, HAS_BIAS: tl.constexpr, DROPS_BEFORE: tl.constexpr,
        DROPS_AFTER: tl.constexpr, SHARED: tl.constexpr, STEPS: tl.constexpr,
    ):  # fmt: skip
        block, at_D = tl.program_id(1), tl.arange(0, TILE_D)
        weight_D = tl.load(weight + block * D + at_D, mask=at_D < D, other=0.0)
        bias_D = tl.load(bias + block * D + at_D, mask=at_D < D, other=0.0)
        for step in range(STEPS):
            row_R = (tl.program_id(0) * STEPS + step) * TILE_R + tl.arange(0, TILE_R)
            sum_RD, at_RD, inside_RD, kept_RD = load_sum(
                change, residual, change_bias, seed, block, row_R, R, threshold,
                D, TILE_D, HAS_RESIDUAL, HAS_BIAS, DROPS_BEFORE or DROPS_AFTER, DROPS_BEFORE, SHARED,
            )  # fmt: skip
            mean_R = tl.sum(sum_RD, axis=1) / D
            centred_RD = tl.where(inside_RD, sum_RD - mean_R[:, None], 0.0)
            scale_R = 1.0 / tl.sqrt(tl.sum(centred_RD * centred_RD, axis=1) / D + TINY)
            tl.store(mean + block * R + row_R, mean_R, mask=row_R < R)
            tl.store(scale + block * R + row_R, scale_R, mask=row_R < R)
            output_RD = centred_RD * scale_R[:, None] * weight_D[None, :] + bias_D[None, :]
            if DROPS_AFTER:
                output_RD *= kept_RD
            tl.store(output + at_RD, output_RD, mask=inside_RD)

    @triton.jit(do_not_specialize=["threshold"])
    def norm_backward_kernel(
        gradient, change, residual, change_bias, weight, seed, mean, scale,
        change_gradient, residual_gradient, sums, R, threshold,
        D: tl.constexpr, TILE_R: tl.constexpr, TILE_D: tl.constexpr,
        HAS_RESIDUAL: tl.constexpr, HAS_BIAS: tl.constexpr, DROPS_BEFORE: tl.constexpr,
        DROPS_AFTER: tl.constexpr, SHARED: tl.constexpr, STEPS: tl.constexpr, GIVES_CHANGE: tl.constexpr,
    ):  # fmt: skip
        tile, block, at_D = tl.program_id(0), tl.program_id(1), tl.arange(0, TILE_D)
        weight_D = tl.load(weight + block * D + at_D, mask=at_D < D, other=0.0)
        # Sums over rows are formed at the end: a sum in every step would make all threads wait.
        weight_sum_RD = tl.zeros((TILE_R, TILE_D), tl.float32)
        bias_sum_RD = tl.zeros((TILE_R, TILE_D), tl.float32)
        change_sum_RD = tl.zeros((TILE_R, TILE_D), tl.float32)
        for step in range(STEPS):
            row_R = (tile * STEPS + step) * TILE_R + tl.arange(0, TILE_R)
            sum_RD, at_RD, inside_RD, kept_RD = load_sum(
                change, residual, change_bias, seed, block, row_R, R, threshold,
                D, TILE_D, HAS_RESIDUAL, HAS_BIAS, DROPS_BEFORE or DROPS_AFTER, DROPS_BEFORE, SHARED,
            )  # fmt: skip
            passed_RD = tl.load(gradient + at_RD, mask=inside_RD, other=0.0).to(tl.float32)
            mean_R = tl.load(mean + block * R + row_R, mask=row_R < R, other=0.0)
            scale_R = tl.load(scale + block * R + row_R, mask=row_R < R, other=0.0)
            normal_RD = tl.where(inside_RD, sum_RD - mean_R[:, None], 0.0) * scale_R[:, None]
            if DROPS_AFTER:
                passed_RD *= kept_RD
            bias_sum_RD += passed_RD
            weight_sum_RD += passed_RD * normal_RD
            if GIVES_CHANGE:
                passed_RD *= weight_D[None, :]
                mean_R = tl.sum(passed_RD, axis=1) / D
                along_R = tl.sum(passed_RD * normal_RD, axis=1) / D
                passed_RD = (passed_RD - mean_R[:, None] - normal_RD * along_R[:, None]) * scale_R[:, None]
                if HAS_RESIDUAL:
                    tl.store(residual_gradient + at_RD, passed_RD, mask=inside_RD)
                if DROPS_BEFORE:
                    passed_RD *= kept_RD
                if HAS_BIAS:
                    change_sum_RD += tl.where(inside_RD, passed_RD, 0.0)
                tl.store(change_gradient + at_RD, passed_RD, mask=inside_RD)
        at_sum_D = (tile * tl.num_programs(1) + block).to(tl.int64) * (3 if HAS_BIAS else 2) * D + at_D
        tl.store(sums + at_sum_D, tl.sum(weight_sum_RD, axis=0), mask=at_D < D)
        tl.store(sums + at_sum_D + D, tl.sum(bias_sum_RD, axis=0), mask=at_D < D)
        if HAS_BIAS:
            tl.store(sums + at_sum_D + 2 * D, tl.sum(change_sum_RD, axis=0), mask=at_D < D)

    @triton.jit(do_not_specialize=["threshold"])
    def relu_forward_kernel(
        input, bias, seed, output, R, threshold,
        D: tl.constexpr, TILE_R: tl.constexpr, TILE_D: tl.constexpr, DROPS: tl.constexpr,
    ):  # fmt: skip
        block = tl.program_id(2)
        row_R = tl.program_id(0) * TILE_R + tl.arange(0, TILE_R)
        at_D = tl.program_id(1) * TILE_D + tl.arange(0, TILE_D)
        inside_RD = (row_R < R)[:, None] & (at_D < D)[None, :]
        at_RD = (block * R + row_R)[:, None].to(tl.int64) * D + at_D[None, :]
        bias_D = tl.load(bias + block * D + at_D, mask=at_D < D, other=0.0)
        input_RD = tl.load(input + at_RD, mask=inside_RD, other=0.0).to(tl.float32) + bias_D[None, :]
        output_RD = tl.where(input_RD < 0, 0.0, input_RD)  # not maximum: NaN must stay NaN
        if DROPS:
            output_RD *= kept(at_RD, seed, threshold)
        tl.store(output + at_RD, output_RD, mask=inside_RD)

    @triton.jit(do_not_specialize=["threshold"])
    def relu_backward_kernel(
        gradient, output, input_gradient, sums, R, threshold,
        D: tl.constexpr, TILE_R: tl.constexpr, TILE_D: tl.constexpr, STEPS: tl.constexpr,
    ):  # fmt: skip
        tile, block = tl.program_id(0), tl.program_id(2)
        at_D = tl.program_id(1) * TILE_D + tl.arange(0, TILE_D)
        scale = 1.0 / (1.0 - threshold / 16777216.0)
        sum_RD = tl.zeros((TILE_R, TILE_D), tl.float32)
        for step in range(STEPS):
            row_R = (tile * STEPS + step) * TILE_R + tl.arange(0, TILE_R)
            inside_RD = (row_R < R)[:, None] & (at_D < D)[None, :]
            at_RD = (block * R + row_R)[:, None].to(tl.int64) * D + at_D[None, :]
            output_RD = tl.load(output + at_RD, mask=inside_RD, other=0.0)
            passed_RD = tl.load(gradient + at_RD, mask=inside_RD, other=0.0).to(tl.float32) * scale
            passed_RD = tl.where(output_RD > 0, passed_RD, 0.0)
            sum_RD += passed_RD
            tl.store(input_gradient + at_RD, passed_RD, mask=inside_RD)
        at_sum_D = (tile * tl.num_programs(2) + block).to(tl.int64) * D + at_D
        tl.store(sums + at_sum_D, tl.sum(sum_RD, axis=0), mask=at_D < D)
