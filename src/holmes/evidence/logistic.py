"""Logistic regression with a prior, by Newton's method.

Q queries, X inputs
"""

from __future__ import annotations

import torch
from torch import Tensor

ROUNDS = 50


def fit_logistic(inputs_QX: Tensor, right_Q: Tensor, prior: float) -> Tensor:
    """argmin_w Σ -log P(right | x · w) + λ/2 |w|², in float64; λ = `prior`.

    No step is longer than 1: a full one can leap where nearly all queries are right.
    """
    x_QX, right_Q = inputs_QX.double(), right_Q.double()
    pull_XX = prior * torch.eye(x_QX.shape[1], dtype=torch.float64, device=x_QX.device)
    weights_X = x_QX.new_zeros(x_QX.shape[1])
    for _ in range(ROUNDS):
        said_Q = torch.sigmoid(x_QX @ weights_X)
        slope_X = x_QX.T @ (said_Q - right_Q) + prior * weights_X
        curvature_XX = x_QX.T @ ((said_Q * (1 - said_Q)).unsqueeze(1) * x_QX) + pull_XX
        step_X = torch.linalg.solve(curvature_XX, slope_X)
        weights_X = weights_X - step_X / step_X.norm().clamp(min=1)
    return weights_X
