"""Attention on the hyperboloid: its maps, its guard at time 1, and its mask."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from holmes.encoders.build import build_model
from holmes.encoders.lorentz import LorentzAttention, from_hyperboloid, to_hyperboloid
from small import assert_close, features, tiny_config


def test_the_way_to_the_hyperboloid_and_back():
    tangent = torch.randn(50, 7, dtype=torch.float64)
    point = to_hyperboloid(tangent)
    assert_close(point[:, 0] ** 2 - (point[:, 1:] ** 2).sum(1), np.ones(50), 1e-12)
    length = tangent.norm(dim=1)
    assert_close(point[:, 0], torch.cosh(length), 1e-12)
    assert_close(from_hyperboloid(point), tangent, 1e-9)


@pytest.mark.parametrize("time", [1.0, 1.0 - 1e-7, 1.0 + 1e-7, 1.0 + 1e-5])
def test_a_time_of_one_is_no_division_of_nothing_by_nothing(time):
    """arcosh(t)/√(t² - 1) is 0/0 there; the limit is 1."""
    point = torch.tensor([[time, 0.3, -0.2]], requires_grad=True)
    space = from_hyperboloid(point)
    assert_close(space.detach(), point[:, 1:].detach(), 1e-5)
    space.sum().backward()
    assert torch.isfinite(point.grad).all()


def test_padding_changes_nothing_and_a_frozen_video_is_finite():
    torch.manual_seed(0)
    attention = LorentzAttention([None, 2.0], 6, 8, 8, 2, 0.0).eval()
    input_NLD, mask_NL = torch.randn(2, 6, 8), torch.arange(6) < torch.tensor([[6], [4]])
    noisy_NLD = torch.where(mask_NL.unsqueeze(-1), input_NLD, 50.0)
    with torch.no_grad():
        one, other = attention(input_NLD, mask_NL), attention(noisy_NLD, mask_NL)
    assert one.shape == (2, 2, 6, 8)
    assert_close(one[:, :, :4], other[:, :, :4], 1e-5)
    still = torch.zeros(1, 6, 8, requires_grad=True)
    attention(still, None).sum().backward()
    assert torch.isfinite(still.grad).all()


def test_scalars_are_put_back_into_their_range_in_training():
    config = tiny_config(encoder="hlformer", gaussian_widths=(None, 2.0), lorentz_width=16)
    model, given = build_model(config), features(config)
    with torch.no_grad():
        model.log_query_scale.fill_(0.5)
        model.log_curvature.fill_(-9.0)
        model.clip_branch.blocks.lorentz.log_scale_G.fill_(1.0)
    query = model.encode_queries(given.tokens_QTD, given.token_lengths_Q).extra["point"]
    model.keep_bounds()
    assert model.log_query_scale == 0 and model.log_curvature.item() == pytest.approx(-np.log(10))
    assert (model.clip_branch.blocks.lorentz.log_scale_G == 0).all()
    again = model.encode_queries(given.tokens_QTD, given.token_lengths_Q).extra["point"]
    assert torch.equal(query, again), "a forward pass sees them within their range anyway"
    assert not model.eval().encode_queries(given.tokens_QTD, given.token_lengths_Q).extra
