"""Entropic optimal transport in the log domain (eq. 19, appendix B.5), for many small problems at once.

B problems, N sources (rows), M targets (columns)
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from holmes.transport.sinkhorn_kernel import HAS_TRITON, LARGEST, sinkhorn_fused

# Stands for log 0 in marginals. Finite, so a problem without any target stays free of NaN.
LOG_ZERO = -1e9
LARGEST_SPREAD = 30.0  # of scores whose exponentials float32 can hold, and the products of two of them
TINY = 1e-30


def sinkhorn(
    scores_BNM: Tensor, log_source_BN: Tensor, log_target_BM: Tensor, iterations: int = 50
) -> Tensor:
    """argmax_Q ⟨Q, S⟩ + ε H(Q) with marginals μ, ν: Q* = diag(κ₁) exp(S/ε) diag(κ₂).

    `scores_BNM` is already divided by ε. Masked targets have log marginal LOG_ZERO and receive nothing.
    """
    # A masked target is left out from the first iteration on, or its score would leave a trace in the plan.
    column_BM = torch.where(log_target_BM > LOG_ZERO, 0.0, LOG_ZERO).to(log_target_BM.dtype)
    if HAS_TRITON and scores_BNM.is_cuda and scores_BNM[0].numel() <= LARGEST:
        return sinkhorn_fused(scores_BNM, log_source_BN, log_target_BM, column_BM, iterations)
    if scores_BNM.device.type == "cpu" and spread(scores_BNM) <= LARGEST_SPREAD:
        return sinkhorn_by_products(scores_BNM, log_source_BN, log_target_BM, column_BM, iterations)
    row_BN = torch.zeros_like(log_source_BN)
    for _ in range(iterations):
        row_BN = log_source_BN - torch.logsumexp(scores_BNM + column_BM.unsqueeze(1), dim=2)
        column_BM = log_target_BM - torch.logsumexp(scores_BNM + row_BN.unsqueeze(2), dim=1)
    return torch.exp(scores_BNM + row_BN.unsqueeze(2) + column_BM.unsqueeze(1))


def sinkhorn_by_products(
    scores_BNM: Tensor, log_source_BN: Tensor, log_target_BM: Tensor, column_BM: Tensor, iterations: int
) -> Tensor:
    """The same by matrix products on exp(S/ε), which does not overflow where scores lie close together."""
    kernel_BNM = (scores_BNM - scores_BNM.amax((1, 2), keepdim=True)).exp()
    source_BN1, target_BM1, column_BM1 = (
        each.to(scores_BNM.dtype).exp().unsqueeze(2) for each in (log_source_BN, log_target_BM, column_BM)
    )
    row_BN1 = torch.zeros_like(source_BN1)
    for _ in range(iterations):
        # A problem without any target would divide by 0; with a finite row its plan is 0.
        row_BN1 = source_BN1 / torch.bmm(kernel_BNM, column_BM1).clamp_(min=TINY)
        column_BM1 = target_BM1 / torch.bmm(kernel_BNM.transpose(1, 2), row_BN1)
    return row_BN1 * kernel_BNM * column_BM1.transpose(1, 2)


def spread(scores_BNM: Tensor) -> float:
    """The largest minus the smallest score; infinite without any."""
    return float(scores_BNM.max() - scores_BNM.min()) if scores_BNM.numel() else math.inf


def log_marginal(weight: Tensor, mask: Tensor) -> Tensor:
    """log of a marginal, LOG_ZERO where masked."""
    return torch.where(mask, weight.log(), LOG_ZERO)
