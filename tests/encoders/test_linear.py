"""Linear layers of a training step, against NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from holmes.encoders.linear import by_onednn, linear, many_rows


@pytest.mark.parametrize("trained", [True, False])  # by oneDNN, and plain
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize(("inputs", "outputs"), [(5, 12), (12, 5)])  # the weight's gradient has two forms
def test_values_and_gradients_equal_the_formula(
    inputs: int, outputs: int, biased: bool, trained: bool
) -> None:
    rng = np.random.default_rng(0)
    x, direction = rng.normal(size=(3, 7, inputs)), rng.normal(size=(3, 7, outputs))
    weight, bias = rng.normal(size=(inputs, outputs)), rng.normal(size=outputs) * biased
    given = [torch.tensor(each, dtype=torch.float32, requires_grad=trained) for each in (x, weight, bias)]
    with torch.set_grad_enabled(trained):
        output = linear(*given[: 2 + biased])
    np.testing.assert_allclose(output.detach(), x @ weight + bias, atol=1e-5)
    assert (type(output.grad_fn).__name__ == "ViewBackward0") is trained
    if not trained:
        return
    gradients = torch.autograd.grad(output, given[: 2 + biased], torch.tensor(direction).float())
    expected = (direction @ weight.T, np.einsum("nli,nlo->io", x, direction), direction.sum((0, 1)))
    for ours, exact in zip(gradients, expected, strict=False):
        np.testing.assert_allclose(ours, exact, atol=1e-4)


def test_onednn_multiplies_in_training_and_evaluation_but_not_in_a_search() -> None:
    values = torch.zeros(2, 3)
    assert by_onednn(values)
    with torch.inference_mode():
        assert not by_onednn(values), "the same sentence must give the same bits in any batch"
        with many_rows():
            assert by_onednn(values)
            assert not by_onednn(values.double()) and not by_onednn(values.to("meta"))
        assert not by_onednn(values)
