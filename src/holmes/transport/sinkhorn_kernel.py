"""A GPU kernel with all Sinkhorn iterations of a small problem.

The plain twin is the loop in `holmes.transport.sinkhorn`.

B problems, N sources (rows), M targets (columns)
"""

from __future__ import annotations

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # the CPU builds of torch come without it
    triton = None

HAS_TRITON = triton is not None
LARGEST = 4096  # entries of a problem that fits in one program


def sinkhorn_fused(
    scores_BNM: Tensor, log_source_BN: Tensor, log_target_BM: Tensor, column_BM: Tensor, iterations: int
) -> Tensor:
    """The plan after `iterations`, from first column potentials `column_BM`."""
    problems, rows, columns = scores_BNM.shape
    plan_BNM = torch.empty(scores_BNM.shape, device=scores_BNM.device, dtype=torch.float32)
    sinkhorn_kernel[(problems,)](
        scores_BNM.contiguous(),
        log_source_BN.contiguous(),
        log_target_BM.contiguous(),
        column_BM.contiguous(),
        plan_BNM,
        N=rows,
        M=columns,
        TILE_N=triton.next_power_of_2(rows),
        TILE_M=triton.next_power_of_2(columns),
        ITERATIONS=iterations,
    )
    return plan_BNM


if HAS_TRITON:

    @triton.jit
    def log_sum_exp(values, axis: tl.constexpr):
        high = tl.max(values, axis=axis)
        return high + tl.log(tl.sum(tl.exp(values - tl.expand_dims(high, axis)), axis=axis))

    @triton.jit
    def sinkhorn_kernel(
        scores, log_source, log_target, first_column, plan,
        N: tl.constexpr, M: tl.constexpr, TILE_N: tl.constexpr, TILE_M: tl.constexpr,
        ITERATIONS: tl.constexpr,
    ):  # fmt: skip
        problem = tl.program_id(0)
        at_N, at_M = tl.arange(0, TILE_N), tl.arange(0, TILE_M)
        inside_N, inside_M = at_N < N, at_M < M
        inside_NM = inside_N[:, None] & inside_M[None, :]
        at_NM = problem * N * M + at_N[:, None] * M + at_M[None, :]
        # What lies outside counts as -1e30: finite, so no difference of infinities can arise.
        scores_NM = tl.where(inside_NM, tl.load(scores + at_NM, mask=inside_NM, other=0.0), -1e30)
        source_N = tl.load(log_source + problem * N + at_N, mask=inside_N, other=0.0)
        target_M = tl.load(log_target + problem * M + at_M, mask=inside_M, other=0.0)
        column_M = tl.load(first_column + problem * M + at_M, mask=inside_M, other=0.0)
        row_N = tl.zeros_like(source_N)
        for _ in range(ITERATIONS):
            row_N = tl.where(inside_N, source_N - log_sum_exp(scores_NM + column_M[None, :], 1), 0.0)
            column_M = tl.where(inside_M, target_M - log_sum_exp(scores_NM + row_N[:, None], 0), 0.0)
        plan_NM = tl.exp(scores_NM + row_N[:, None] + column_M[None, :])
        tl.store(plan + at_NM, plan_NM, mask=inside_NM)
