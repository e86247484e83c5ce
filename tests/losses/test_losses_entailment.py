"""Cones on the hyperboloid: angles against geodesics, and the loss's edges."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from holmes.losses.entailment import entailment_loss, exterior_angle, half_aperture


def time_of(space: np.ndarray, curvature: float) -> float:
    return math.sqrt(1 / curvature + space @ space)


def distance(x: np.ndarray, y: np.ndarray, curvature: float) -> float:
    """Geodesic distance on the hyperboloid of curvature -κ."""
    product = x @ y - time_of(x, curvature) * time_of(y, curvature)
    return math.acosh(max(1.0, -curvature * product)) / math.sqrt(curvature)


@pytest.mark.parametrize("curvature", [0.3, 1.0, 2.5])
def test_the_angle_is_that_of_the_hyperbolic_triangle(curvature):
    """The law of cosines gives the inner angle at the video; the exterior one is what is left of π."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        x, y = rng.normal(size=(2, 3))
        root, origin = math.sqrt(curvature), np.zeros(3)
        a, b = root * distance(origin, x, curvature), root * distance(x, y, curvature)
        c = root * distance(origin, y, curvature)
        inner = (math.cosh(a) * math.cosh(b) - math.cosh(c)) / (math.sinh(a) * math.sinh(b))
        ours = exterior_angle(torch.from_numpy(x[None]), torch.from_numpy(y[None]), torch.tensor([curvature]))
        assert ours.item() == pytest.approx(math.pi - math.acos(inner), abs=1e-5)


def test_a_query_behind_its_video_is_entailed_and_one_before_it_is_not():
    video = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    owner, mask, curvature = torch.tensor([0, 1]), torch.tensor([True, True]), torch.ones(2)
    behind = torch.tensor([[2.0, 0.0], [2.0, 0.01]])
    assert entailment_loss(video, behind, curvature, owner, mask).item() == 0
    before = torch.tensor([[0.5, 0.0], [-1.0, 0.0]])
    aperture = half_aperture(video, curvature)[0].item()
    assert aperture == pytest.approx(math.asin(0.2))
    loss = entailment_loss(video, before, curvature, owner, mask)
    assert loss.item() == pytest.approx(math.pi - aperture, abs=1e-3)
    loss = entailment_loss(video, before, curvature, owner, torch.tensor([True, False]))
    assert loss.item() == pytest.approx(math.pi - aperture, abs=1e-3), "padding does not count"


@pytest.mark.parametrize("video, query", [([1.0, 0], [1.0, 0]), ([0.0, 0], [1.0, 0]), ([0.1, 0], [3.0, 0])])
def test_gradients_are_finite_at_the_edges(video, query):
    """The same point, the origin, and a point within the least radius."""
    points = torch.tensor([video], requires_grad=True), torch.tensor([query], requires_grad=True)
    curvature = torch.ones(1, requires_grad=True)
    one = torch.tensor([0])
    entailment_loss(points[0] + 0.0, points[1] + 0.0, curvature, one, one == 0).backward()
    for value in (*points, curvature):
        assert value.grad is None or torch.isfinite(value.grad).all()
