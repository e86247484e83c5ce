"""The optimiser, against a loop over single tensors and single numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from holmes.encoders.blocks import AttentionInput, BlockLinear, BlockNorm
from holmes.training.optimizer import FlatAdam, linear_schedule
from small import tiny_model


class Small(nn.Module):
    """One of every kind of parameter: stacked and plain, decayed and exempt."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = BlockLinear(3, 4, 5)
        self.attention_input = AttentionInput(2, 4)
        self.attention_norm = BlockNorm(3, 5)
        self.slim = nn.ModuleDict({"norm": BlockNorm(2, 5)})
        self.project = nn.ModuleDict({"norm": nn.LayerNorm(7), "linear": nn.Linear(7, 2)})
        self.positions = nn.Embedding(3, 4)


# How many dimensions index separately clipped tensors, and what is exempt from decay: written by hand.
STACKED = {
    "stack.weight_GIO": 1,
    "stack.bias_GO": 1,
    "attention_input.weight_KGIO": 2,
    "attention_input.bias_KGO": 2,
    "attention_norm.weight_GD": 1,
    "attention_norm.bias_GD": 1,
    "slim.norm.weight_GD": 1,
    "slim.norm.bias_GD": 1,
}
EXEMPT = {
    "stack.bias_GO",
    "attention_input.bias_KGO",
    "attention_norm.bias_GD",
    "slim.norm.weight_GD",
    "slim.norm.bias_GD",
    "project.norm.weight",
    "project.norm.bias",
    "project.linear.bias",
}


def single_tensors(name: str, stacked: torch.Tensor) -> list[np.ndarray]:
    """What a parameter holds, tensor by tensor, each as a row of numbers."""
    values = stacked.detach().double().numpy()
    return [values[at].flatten() for at in np.ndindex(values.shape[: STACKED.get(name, 0)])]


def twin_step(value, gradient, first, second, rate, decay):
    """One tensor: clip to norm 1, then Adam without bias correction and decoupled decay, number by number."""
    length = math.sqrt(sum(float(g) ** 2 for g in gradient))
    share = min(1.0, 1.0 / (length + 1e-6))
    for i in range(len(value)):
        g = gradient[i] * share
        first[i] = 0.9 * first[i] + 0.1 * g
        second[i] = 0.999 * second[i] + 0.001 * g * g
        value[i] -= rate * (first[i] / (math.sqrt(second[i]) + 1e-6) + decay * value[i])


@pytest.mark.parametrize("one_pass", [True, False])  # on a CPU, and on a GPU without kernels
def test_steps_equal_the_loop(one_pass):
    torch.manual_seed(0)
    model = Small()
    rng = np.random.default_rng(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter))
    names = [name for name, _ in model.named_parameters()]
    twin = {
        name: [(p, np.zeros_like(p), np.zeros_like(p)) for p in single_tensors(name, parameter)]
        for name, parameter in model.named_parameters()
    }
    optimizer = FlatAdam(model)
    optimizer.one_pass = one_pass
    for step in range(5):
        rate = 0.01 * (step + 1)
        sizes = {name: 10.0 ** rng.integers(-3, 2) for name in names}  # some are clipped and some are not
        norms = []
        for name, parameter in model.named_parameters():
            parameter.grad = torch.tensor(
                sizes[name] * rng.normal(size=tuple(parameter.shape)), dtype=torch.float32
            )
            gradients = single_tensors(name, parameter.grad)
            for gradient, (value, first, second) in zip(gradients, twin[name], strict=True):
                norms.append(np.linalg.norm(gradient))
                twin_step(value, gradient, first, second, rate, 0.0 if name in EXEMPT else 0.01)
        assert min(norms) < 1 < max(norms)
        optimizer.collect_gradients()
        np.testing.assert_allclose(optimizer.step(torch.tensor(rate)), norms, rtol=1e-5)
        assert all(parameter.grad is None for parameter in model.parameters())
    for name, parameter in model.named_parameters():
        expected = np.concatenate([value for value, _, _ in twin[name]])
        np.testing.assert_allclose(parameter.detach().flatten(), expected, rtol=1e-5, atol=1e-6)


def test_decay_acts_where_it_should_and_nowhere_else():
    """Without gradients only the decay moves a parameter: by the factor 1 - η λ, or not at all."""
    model = Small()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(2.0)
    optimizer = FlatAdam(model, weight_decay=0.5)
    optimizer.collect_gradients()
    optimizer.step(torch.tensor(0.1))
    kept = {name for name, parameter in model.named_parameters() if (parameter == 2).all()}
    assert kept == EXEMPT
    for name, parameter in model.named_parameters():
        if name not in EXEMPT:
            assert torch.allclose(parameter, torch.tensor(2.0 * 0.95)), name


def test_what_the_model_exempts_from_decay():
    """Biases and the norms before and after the projection; the norms inside blocks decay, as published."""
    model = tiny_model()
    exempt = FlatAdam._exempt_from_decay(model)
    names = {name for name, parameter in model.named_parameters() if parameter in exempt}
    assert {name for name in names if "bias" not in name} == {
        f"{part}.norm.weight"
        for part in (
            "query_places",
            "query_encoder.project",
            "frame_branch.project",
            "frame_branch.place",
            "clip_branch.project",
            "clip_branch.place",
        )
    }
    assert all(name in names for name, _ in model.named_parameters() if "bias" in name)


def test_parameters_stay_views_of_one_buffer():
    model = Small()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    optimizer = FlatAdam(model)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    optimizer.values.fill_(3.0)
    assert all((parameter == 3).all() for parameter in model.parameters())
    model.load_state_dict(before)
    assert (optimizer.values != 3).any()


def test_state_survives_a_save():
    """Two steps in one go equal two steps with the state carried over in between."""

    def gradients(model: Small, step: int) -> None:
        torch.manual_seed(step)
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter)

    torch.manual_seed(0)
    straight, model = Small(), Small()
    model.load_state_dict(straight.state_dict())
    optimizer, resumed = FlatAdam(straight), None
    for step in range(2):
        gradients(straight, step)
        optimizer.collect_gradients()
        optimizer.step(torch.tensor(0.01))
        current = FlatAdam(model)
        if resumed is not None:
            current.load_state_dict(resumed)
        gradients(model, step)
        current.collect_gradients()
        current.step(torch.tensor(0.01))
        resumed = {name: value.clone() for name, value in current.state_dict().items()}
    for one, other in zip(straight.parameters(), model.parameters(), strict=True):
        assert torch.equal(one, other)


@given(st.integers(1, 300), st.sampled_from((0.01, 0.1, 0.25, 0.5)))
def test_schedule_rises_and_falls_in_straight_lines(steps, warm_up):
    for step in range(steps + 1):
        x = step / steps
        expected = x / warm_up if x < warm_up else (1 - x) / (1 - warm_up)
        assert linear_schedule(step, steps, warm_up) == pytest.approx(expected)


def test_schedule_by_hand():
    assert [linear_schedule(step, 40, 0.25) for step in (0, 5, 10, 25, 40)] == [0, 0.5, 1, 0.5, 0]
    assert linear_schedule(41, 40, 0.25) == 0
    assert linear_schedule(0, 10, 0.0) == 1
