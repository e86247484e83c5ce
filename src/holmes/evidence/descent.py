"""Minimise a smooth function of a few numbers by BFGS, without loading torch's compiler.

A step along d is long enough when the loss fell by a share of what its slope promised, and the slope has
flattened (Wolfe's conditions): then the new curvature is positive.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

FLAT = 1e-7  # largest slope at a minimum
STILL = 1e-9  # a step or a gain below this ends the descent
FALLS, FLATTENS = 1e-4, 0.9  # shares of the slope in Wolfe's two conditions
TRIES = 25  # of one step's length


def descend(loss: Callable[[Tensor], Tensor], start: Tensor, steps: int = 100) -> tuple[float, list[float]]:
    """The least loss that a descent reaches from `start`, and the parameters there."""

    def at(params_P: Tensor) -> tuple[float, Tensor]:
        params_P = params_P.detach().requires_grad_()
        value = loss(params_P)
        return value.item(), torch.autograd.grad(value, params_P)[0]

    params_P = start.detach().clone()
    value, slope_P = at(params_P)
    identity_PP = torch.eye(len(start), dtype=start.dtype, device=start.device)
    inverse_PP = identity_PP / slope_P.abs().sum().clamp(min=1)
    for step in range(steps):
        if slope_P.abs().max() <= FLAT:
            break
        way_P = -inverse_PP @ slope_P
        promised = float(slope_P @ way_P)
        length, short, far = 1.0, 0.0, float("inf")
        for _ in range(TRIES):
            new_value, new_slope_P = at(params_P + length * way_P)
            if not new_value <= value + FALLS * length * promised:  # or it is not a number
                far = length
            elif float(new_slope_P @ way_P) < FLATTENS * promised:
                short = length
            else:
                break
            length = (short + far) / 2 if far < float("inf") else 2 * length
        if not new_value < value:
            break
        moved_P, bent_P = length * way_P, new_slope_P - slope_P
        gained, value = value - new_value, new_value
        params_P, slope_P = params_P + moved_P, new_slope_P
        if gained < STILL or moved_P.abs().max() < STILL:
            break
        if (curved := float(moved_P @ bent_P)) > 0:
            if step == 0:
                inverse_PP = identity_PP * (curved / (bent_P @ bent_P))
            aside_PP = identity_PP - torch.outer(moved_P, bent_P) / curved
            inverse_PP = aside_PP @ inverse_PP @ aside_PP.T + torch.outer(moved_P, moved_P) / curved
    return value, params_P.tolist()
