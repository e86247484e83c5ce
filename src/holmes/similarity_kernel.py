"""The best position of every pair, as a dot product and scaled, without writing Q × V × P on a GPU.

Forward keeps which position was best. Backward spreads the gradients over positions on the chip, as the left
side of two matrix products, and adds in a fixed order: the same step gives the same bits. Of equal positions
the first gets the whole gradient.

The plain twin is `best_of_both` in `holmes.similarity`.

Q queries (or tokens of queries), V videos, P positions, D width, B = 2 (dot products, scaled ones),
S parts of the videos
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
TILE_Q, TILE_D = 64, 64
PROGRAMS = 264  # enough to fill a GPU


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
        inputs = [tensor.contiguous() for tensor in (query_QD, video_VPD, scale_VP, mask_VP)]
        queries, (videos, positions, width) = len(query_QD), video_VPD.shape
        best_BQV = torch.empty((2, queries, videos), device=query_QD.device)
        key_BQV = torch.empty((2, queries, videos), device=query_QD.device, dtype=torch.int32)
        ctx.sizes = {
            "Q": queries,
            "V": videos,
            "P": positions,
            "D": width,
            "TILE_Q": TILE_Q,
            "TILE_P": min(128, max(16, triton.next_power_of_2(positions))),
            "TILE_D": TILE_D,
        }
        grid = (triton.cdiv(queries, TILE_Q), videos)
        best_kernel[grid](*inputs, best_BQV, key_BQV, **ctx.sizes)
        ctx.save_for_backward(*inputs, best_BQV, key_BQV)
        return best_BQV

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        query_QD, video_VPD, scale_VP, mask_VP, best_BQV, key_BQV = ctx.saved_tensors
        gradient_BQV = gradients[0].contiguous()
        (videos, positions, width), sizes = video_VPD.shape, ctx.sizes
        tiles = triton.cdiv(len(query_QD), TILE_Q) * triton.cdiv(width, TILE_D)
        parts = min(videos, triton.cdiv(PROGRAMS, tiles))  # few queries alone would leave the GPU idle
        each = triton.cdiv(videos, parts)
        query_gradient_SQD = torch.empty((parts, *query_QD.shape), device=query_QD.device)
        query_gradient_kernel[(triton.cdiv(len(query_QD), TILE_Q), triton.cdiv(width, TILE_D), parts)](
            gradient_BQV, key_BQV, video_VPD, scale_VP, mask_VP, query_gradient_SQD, EACH=each, **sizes
        )
        video_gradient, scale_gradient = torch.empty_like(video_VPD), torch.empty_like(scale_VP)
        grid = (videos, triton.cdiv(positions, sizes["TILE_P"]), triton.cdiv(width, TILE_D))
        video_gradient_kernel[grid](
            gradient_BQV, key_BQV, best_BQV, query_QD, scale_VP, mask_VP, video_gradient, scale_gradient,
            **sizes, num_warps=8 if sizes["TILE_P"] > 64 else 4,  # fewer threads would spill
        )  # fmt: skip
        return query_gradient_SQD.sum(0), video_gradient, scale_gradient, None


if HAS_TRITON:

    @triton.jit
    def better(best_Q, key_Q, score_QP, first):
        """The best so far or the best of these, and where it is."""
        here_Q, place_Q = tl.max(score_QP, axis=1, return_indices=True)
        return tl.maximum(best_Q, here_Q), tl.where(here_Q > best_Q, place_Q + first, key_Q)

    @triton.jit
    def best_kernel(
        query, video, scale, mask, best, key,
        Q, V, P: tl.constexpr, D: tl.constexpr,
        TILE_Q: tl.constexpr, TILE_P: tl.constexpr, TILE_D: tl.constexpr,
    ):  # fmt: skip
        at_video = tl.program_id(1)
        at_Q = tl.program_id(0) * TILE_Q + tl.arange(0, TILE_Q)
        dot_Q = tl.full((TILE_Q,), -float("inf"), tl.float32)
        scaled_Q = tl.full((TILE_Q,), -float("inf"), tl.float32)
        dot_key_Q, scaled_key_Q = tl.zeros((TILE_Q,), tl.int32), tl.zeros((TILE_Q,), tl.int32)
        broken_Q = tl.zeros((TILE_Q,), tl.float32)
        for first in range(0, P, TILE_P):
            at_P = first + tl.arange(0, TILE_P)
            score_QP = tl.zeros((TILE_Q, TILE_P), tl.float32)
            for first_D in range(0, D, TILE_D):
                at_D = first_D + tl.arange(0, TILE_D)
                query_QD = tl.load(
                    query + at_Q[:, None] * D + at_D[None, :],
                    mask=(at_Q < Q)[:, None] & (at_D < D)[None, :],
                    other=0.0,
                )
                video_PD = tl.load(
                    video + (at_video * P + at_P)[:, None] * D + at_D[None, :],
                    mask=(at_P < P)[:, None] & (at_D < D)[None, :],
                    other=0.0,
                )
                score_QP += tl.dot(query_QD, tl.trans(video_PD))
            at_scale_P = at_video * P + at_P
            valid_P = tl.load(mask + at_scale_P, mask=at_P < P, other=0) != 0
            scale_P = tl.load(scale + at_scale_P, mask=at_P < P, other=0.0)
            # A maximum passes over NaN: a sum does not.
            broken_Q += tl.sum(tl.where(valid_P[None, :], score_QP, 0.0), axis=1) * 0.0
            dot_QP = tl.where(valid_P[None, :], score_QP, -float("inf"))
            scaled_QP = tl.where(valid_P[None, :], score_QP * scale_P[None, :], -float("inf"))
            dot_Q, dot_key_Q = better(dot_Q, dot_key_Q, dot_QP, first)
            scaled_Q, scaled_key_Q = better(scaled_Q, scaled_key_Q, scaled_QP, first)
        at_QV = at_Q * V + at_video
        tl.store(best + at_QV, dot_Q + broken_Q, mask=at_Q < Q)
        tl.store(best + Q * V + at_QV, scaled_Q + broken_Q, mask=at_Q < Q)
        tl.store(key + at_QV, dot_key_Q, mask=at_Q < Q)
        tl.store(key + Q * V + at_QV, scaled_key_Q, mask=at_Q < Q)

    @triton.jit
    def query_gradient_kernel(
        gradient, key, video, scale, mask, query_gradient,
        Q, V, P: tl.constexpr, D: tl.constexpr,
        TILE_Q: tl.constexpr, TILE_P: tl.constexpr, TILE_D: tl.constexpr, EACH: tl.constexpr,
    ):  # fmt: skip
        at_Q = tl.program_id(0) * TILE_Q + tl.arange(0, TILE_Q)
        at_D = tl.program_id(1) * TILE_D + tl.arange(0, TILE_D)
        part = tl.program_id(2)
        sum_QD = tl.zeros((TILE_Q, TILE_D), tl.float32)
        for at_video in range(part * EACH, tl.minimum(part * EACH + EACH, V)):
            at_QV = at_Q * V + at_video
            dot_Q = tl.load(gradient + at_QV, mask=at_Q < Q, other=0.0)
            scaled_Q = tl.load(gradient + Q * V + at_QV, mask=at_Q < Q, other=0.0)
            dot_key_Q = tl.load(key + at_QV, mask=at_Q < Q, other=0)
            scaled_key_Q = tl.load(key + Q * V + at_QV, mask=at_Q < Q, other=0)
            for first in range(0, P, TILE_P):
                at_P = first + tl.arange(0, TILE_P)
                at_scale_P = at_video * P + at_P
                valid_P = tl.load(mask + at_scale_P, mask=at_P < P, other=0) != 0
                scale_P = tl.load(scale + at_scale_P, mask=at_P < P, other=0.0)
                share_QP = tl.where(at_P[None, :] == dot_key_Q[:, None], dot_Q[:, None], 0.0)
                share_QP += tl.where(
                    at_P[None, :] == scaled_key_Q[:, None], scaled_Q[:, None] * scale_P[None, :], 0.0
                )
                video_PD = tl.load(
                    video + at_scale_P[:, None] * D + at_D[None, :],
                    mask=(at_P < P)[:, None] & (at_D < D)[None, :],
                    other=0.0,
                )
                sum_QD += tl.dot(tl.where(valid_P[None, :], share_QP, 0.0), video_PD)
        at_QD = (part * Q + at_Q)[:, None] * D + at_D[None, :]
        tl.store(query_gradient + at_QD, sum_QD, mask=(at_Q < Q)[:, None] & (at_D < D)[None, :])

    @triton.jit
    def video_gradient_kernel(
        gradient, key, best, query, scale, mask, video_gradient, scale_gradient,
        Q, V, P: tl.constexpr, D: tl.constexpr,
        TILE_Q: tl.constexpr, TILE_P: tl.constexpr, TILE_D: tl.constexpr,
    ):  # fmt: skip
        at_video = tl.program_id(0)
        at_P = tl.program_id(1) * TILE_P + tl.arange(0, TILE_P)
        at_D = tl.program_id(2) * TILE_D + tl.arange(0, TILE_D)
        at_scale_P = at_video * P + at_P
        valid_P = tl.load(mask + at_scale_P, mask=at_P < P, other=0) != 0
        scale_P = tl.load(scale + at_scale_P, mask=at_P < P, other=1.0)
        sum_PD = tl.zeros((TILE_P, TILE_D), tl.float32)
        scale_sum_P = tl.zeros((TILE_P,), tl.float32)
        for first in range(0, Q, TILE_Q):
            at_Q = first + tl.arange(0, TILE_Q)
            at_QV = at_Q * V + at_video
            dot_Q = tl.load(gradient + at_QV, mask=at_Q < Q, other=0.0)
            scaled_Q = tl.load(gradient + Q * V + at_QV, mask=at_Q < Q, other=0.0)
            dot_key_Q = tl.load(key + at_QV, mask=at_Q < Q, other=-1)
            scaled_key_Q = tl.load(key + Q * V + at_QV, mask=at_Q < Q, other=-1)
            best_Q = tl.load(best + Q * V + at_QV, mask=at_Q < Q, other=0.0)
            query_QD = tl.load(
                query + at_Q[:, None] * D + at_D[None, :],
                mask=(at_Q < Q)[:, None] & (at_D < D)[None, :],
                other=0.0,
            )
            share_PQ = tl.where(at_P[:, None] == dot_key_Q[None, :], dot_Q[None, :], 0.0)
            is_key_PQ = at_P[:, None] == scaled_key_Q[None, :]
            share_PQ += tl.where(is_key_PQ, scaled_Q[None, :] * scale_P[:, None], 0.0)
            sum_PD += tl.dot(tl.where(valid_P[:, None], share_PQ, 0.0), query_QD)
            scale_sum_P += tl.sum(tl.where(is_key_PQ, (scaled_Q * best_Q)[None, :], 0.0), axis=1)
        inside_PD = (at_P < P)[:, None] & (at_D < D)[None, :]
        tl.store(video_gradient + at_scale_P[:, None] * D + at_D[None, :], sum_PD, mask=inside_PD)
        if tl.program_id(2) == 0:
            tl.store(
                scale_gradient + at_scale_P, tl.where(valid_P, scale_sum_P / scale_P, 0.0), mask=at_P < P
            )
