"""A GPU kernel for the best position of every pair, as dot product and cosine.

The products are the library's, of the encoders' own numbers (bf16 on a GPU) with sums in float32. One program
reads them and keeps the best position of either kind. In the backward pass another writes the gradients to
these positions, as the left side of two products. All sums have a fixed order: the same step gives the same
bits. Of equal positions the first gets the whole gradient.

The plain twin is `best_of_both` in `holmes.similarity`.

Q queries (or tokens of queries), V videos, P positions, D width, B = 2 (dot products, scaled ones),
S tiles of queries
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # the CPU builds of torch come without it
    triton = None

HAS_TRITON = triton is not None
TILE = 4096  # elements that a program holds at once


def best_of_both_fused(
    query_QD: Tensor, video_VPD: Tensor, scale_VP: Tensor, mask_VP: Tensor | None
) -> tuple[Tensor, Tensor]:
    """max_p ⟨q, v_p⟩ and max_p scale_p · ⟨q, v_p⟩, both Q × V; padding is left out."""
    if mask_VP is None:
        mask_VP = torch.ones(video_VPD.shape[:2], dtype=torch.bool, device=video_VPD.device)
    best_BQV: Tensor = BestOfBoth.apply(query_QD, video_VPD, scale_VP, mask_VP)
    return best_BQV[0], best_BQV[1]


class BestOfBoth(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query_QD: Tensor, video_VPD: Tensor, scale_VP: Tensor, mask_VP: Tensor) -> Tensor:
        dot_QVP = products(query_QD, video_VPD.flatten(0, 1)).unflatten(1, video_VPD.shape[:2])
        scale_VP, mask_VP = scale_VP.contiguous(), mask_VP.contiguous()
        queries, videos, positions = dot_QVP.shape
        best_BQV = torch.empty((2, queries, videos), device=query_QD.device)
        key_BQV = torch.empty((2, queries, videos), device=query_QD.device, dtype=torch.int32)
        ctx.sizes, ctx.grid = sizes_of(queries, videos, positions)
        best_kernel[ctx.grid](dot_QVP, scale_VP, mask_VP, best_BQV, key_BQV, **ctx.sizes)
        ctx.save_for_backward(query_QD, video_VPD, scale_VP, mask_VP, best_BQV, key_BQV)
        return best_BQV

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        query_QD, video_VPD, scale_VP, mask_VP, best_BQV, key_BQV = ctx.saved_tensors
        videos, positions, _ = video_VPD.shape
        share_QVP = query_QD.new_empty((len(query_QD), videos, positions))
        scale_sums_SVP = torch.empty((ctx.grid[0], videos, positions), device=query_QD.device)
        share_kernel[ctx.grid](
            gradients[0].contiguous(), key_BQV, best_BQV, scale_VP, mask_VP, share_QVP, scale_sums_SVP,
            **ctx.sizes,
        )  # fmt: skip
        share_QN = share_QVP.flatten(1)
        query_gradient = share_QN @ video_VPD.flatten(0, 1)
        video_gradient = (share_QN.T @ query_QD).view_as(video_VPD)
        return query_gradient, video_gradient, scale_sums_SVP.sum(0), None


def products(query_QD: Tensor, video_ND: Tensor) -> Tensor:
    """⟨q, v⟩ in float32, whatever the vectors are in."""
    if query_QD.dtype == torch.float32:
        return query_QD @ video_ND.T
    result: Tensor = torch.mm(query_QD, video_ND.T, out_dtype=torch.float32)
    return result


def sizes_of(queries: int, videos: int, positions: int) -> tuple[dict[str, Any], tuple[int, int]]:
    tile_positions = min(128, max(16, triton.next_power_of_2(positions)))
    sizes = {
        "Q": queries,
        "V": videos,
        "P": positions,
        "TILE_Q": TILE // tile_positions,
        "TILE_P": tile_positions,
    }
    return sizes, (triton.cdiv(queries, sizes["TILE_Q"]), videos)


if HAS_TRITON:

    @triton.jit
    def better(best_Q, key_Q, score_QP, first):
        """The best so far or the best of these, and where it is."""
        here_Q, place_Q = tl.max(score_QP, axis=1, return_indices=True)
        return tl.maximum(best_Q, here_Q), tl.where(here_Q > best_Q, place_Q + first, key_Q)

    @triton.jit
    def best_kernel(
        dot, scale, mask, best, key,
        Q, V, P: tl.constexpr, TILE_Q: tl.constexpr, TILE_P: tl.constexpr,
    ):  # fmt: skip
        at_video = tl.program_id(1)
        at_Q = tl.program_id(0) * TILE_Q + tl.arange(0, TILE_Q)
        at_QV = at_Q * V + at_video
        dot_Q = tl.full((TILE_Q,), -float("inf"), tl.float32)
        scaled_Q = tl.full((TILE_Q,), -float("inf"), tl.float32)
        dot_key_Q, scaled_key_Q = tl.zeros((TILE_Q,), tl.int32), tl.zeros((TILE_Q,), tl.int32)
        broken_Q = tl.zeros((TILE_Q,), tl.float32)
        for first in range(0, P, TILE_P):
            at_P = first + tl.arange(0, TILE_P)
            valid_P = tl.load(mask + at_video * P + at_P, mask=at_P < P, other=0) != 0
            scale_P = tl.load(scale + at_video * P + at_P, mask=at_P < P, other=0.0)
            valid_QP = (at_Q < Q)[:, None] & valid_P[None, :]
            score_QP = tl.load(
                dot + at_QV[:, None].to(tl.int64) * P + at_P[None, :], mask=valid_QP, other=0.0
            )
            # A maximum passes over NaN: a sum does not.
            broken_Q += tl.sum(score_QP, axis=1) * 0.0
            dot_QP = tl.where(valid_QP, score_QP, -float("inf"))
            scaled_QP = tl.where(valid_QP, score_QP * scale_P[None, :], -float("inf"))
            dot_Q, dot_key_Q = better(dot_Q, dot_key_Q, dot_QP, first)
            scaled_Q, scaled_key_Q = better(scaled_Q, scaled_key_Q, scaled_QP, first)
        tl.store(best + at_QV, dot_Q + broken_Q, mask=at_Q < Q)
        tl.store(best + Q * V + at_QV, scaled_Q + broken_Q, mask=at_Q < Q)
        tl.store(key + at_QV, dot_key_Q, mask=at_Q < Q)
        tl.store(key + Q * V + at_QV, scaled_key_Q, mask=at_Q < Q)

    @triton.jit
    def share_kernel(
        gradient, key, best, scale, mask, share, scale_sums,
        Q, V, P: tl.constexpr, TILE_Q: tl.constexpr, TILE_P: tl.constexpr,
    ):  # fmt: skip
        at_video = tl.program_id(1)
        at_Q = tl.program_id(0) * TILE_Q + tl.arange(0, TILE_Q)
        at_QV = at_Q * V + at_video
        dot_Q = tl.load(gradient + at_QV, mask=at_Q < Q, other=0.0)
        scaled_Q = tl.load(gradient + Q * V + at_QV, mask=at_Q < Q, other=0.0)
        dot_key_Q = tl.load(key + at_QV, mask=at_Q < Q, other=-1)
        scaled_key_Q = tl.load(key + Q * V + at_QV, mask=at_Q < Q, other=-1)
        best_Q = tl.load(best + Q * V + at_QV, mask=at_Q < Q, other=0.0)
        for first in range(0, P, TILE_P):
            at_P = first + tl.arange(0, TILE_P)
            valid_P = tl.load(mask + at_video * P + at_P, mask=at_P < P, other=0) != 0
            scale_P = tl.load(scale + at_video * P + at_P, mask=at_P < P, other=1.0)
            is_key_QP = at_P[None, :] == scaled_key_Q[:, None]
            share_QP = tl.where(at_P[None, :] == dot_key_Q[:, None], dot_Q[:, None], 0.0)
            share_QP += tl.where(is_key_QP, scaled_Q[:, None] * scale_P[None, :], 0.0)
            share_QP = tl.where(valid_P[None, :], share_QP, 0.0)
            inside_QP = (at_Q < Q)[:, None] & (at_P < P)[None, :]
            tl.store(share + at_QV[:, None].to(tl.int64) * P + at_P[None, :], share_QP, mask=inside_QP)
            sum_P = tl.sum(tl.where(is_key_QP, (scaled_Q * best_Q)[:, None], 0.0), axis=0)
            at_sum_P = (tl.program_id(0) * V + at_video).to(tl.int64) * P + at_P
            tl.store(scale_sums + at_sum_P, tl.where(valid_P, sum_P / scale_P, 0.0), mask=at_P < P)
