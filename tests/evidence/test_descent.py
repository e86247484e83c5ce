"""The descent that calibration uses: it reaches the minimum, and stays on the device of its start."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize, rosen

from holmes.evidence.descent import descend


@pytest.mark.parametrize("start", [(-1.2, 1.0), (3.0, -2.0, 0.5, 1.5)])
def test_it_reaches_the_minimum_that_scipy_finds(start):
    def loss(x_P: torch.Tensor) -> torch.Tensor:
        return (100 * (x_P[1:] - x_P[:-1] ** 2) ** 2 + (1 - x_P[:-1]) ** 2).sum()

    value, found = descend(loss, torch.tensor(start, dtype=torch.float64), steps=200)
    reference = minimize(rosen, np.array(start), method="BFGS")
    assert value == pytest.approx(reference.fun, abs=1e-8)
    np.testing.assert_allclose(found, reference.x, atol=1e-4)


def test_every_tensor_is_made_on_the_device_of_the_start():
    """As on a GPU: a tensor made without naming a device would land on another one than the start."""
    start_P = torch.tensor([3.0, -2.0], dtype=torch.float64)
    with torch.device("meta"):
        _, found = descend(lambda x_P: ((x_P - 1) ** 4 + x_P**2).sum(), start_P)
    assert found[0] == pytest.approx(found[1], abs=1e-5)
