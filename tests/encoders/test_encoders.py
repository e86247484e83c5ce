"""Encoders, against twins that go block by block and head by head, and against the method's invariances."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import encoder_twins as twin
from holmes.config.presets import PRESETS
from holmes.encoders.attention_by_heads import attend_by_heads
from holmes.encoders.blocks import ParallelBlocks
from holmes.encoders.dropout import dropout, random_bytes, relu_dropout
from holmes.encoders.gaussian import gaussian_weights
from holmes.encoders.mixture import BlockMixture
from holmes.encoders.model import HolmesModel
from holmes.encoders.padding import ValidRows, length_mask
from holmes.encoders.query import AttentionPooling, TokenWeights
from small import assert_close, features, tiny_config, tiny_model

WIDTHS = (None, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
MODELS = {dual: tiny_model(dual) for dual in (False, True)}


def weights_of(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """A module's parameters for the twins: stacked ones taken apart into the layers of single blocks."""
    single: dict[str, torch.Tensor] = {}
    for name, value in module.state_dict().items():
        value = value.detach().double()
        stacked = re.fullmatch(r"(.*?)(\w+)\.(weight|bias)_(K?)G\w+", name)
        if stacked is None:
            single[name] = value
            continue
        prefix, layer, kind, kinds = stacked.groups()
        layers = dict(zip(("query", "key", "value"), value, strict=True)) if kinds else {layer: value}
        for layer, blocks in layers.items():
            for g, part in enumerate(blocks):
                single[f"{prefix}{g}.{layer}.{kind}"] = part.T if part.ndim == 2 else part
    return single


def shaken(module: torch.nn.Module, seed: int = 0) -> torch.nn.Module:
    """Every parameter random, biases and norms too."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.4 * torch.randn_like(parameter))
    return module.eval()


# Gaussian attention


@pytest.mark.parametrize("length", [2, 5, 32, 128])
def test_gaussian_weights_equal_the_formula(length):
    ours = gaussian_weights([*WIDTHS, 0.001], length)
    for weights, width in zip(ours, [*WIDTHS, 0.001], strict=True):
        if width != 0.001:  # so narrow that the plain formula divides 0 by 0
            assert_close(weights, twin.gaussian(width, length), 1e-6)
        assert_close(weights.amax(1), torch.ones(length))
        assert torch.isfinite(weights).all()


def test_a_narrow_gaussian_keeps_neighbours_and_a_wide_one_everyone():
    plain, narrow, *_, wide = gaussian_weights(WIDTHS, 128)
    assert (plain == 1).all()
    assert narrow[64, 64] > 0.95 > 0.5 > narrow[64, 80] > narrow[64, 100]
    assert wide.min() > 0.95


@pytest.mark.parametrize("trained", [False, True])  # on a CPU, training goes block by block
@pytest.mark.parametrize("masked", [False, True])
def test_parallel_blocks_equal_single_ones(masked, trained):
    blocks = shaken(ParallelBlocks(WIDTHS, length=9, width=16, heads=4, dropout_rate=0.5))
    x = torch.randn(3, 9, 16)
    valid = length_mask(torch.tensor([9, 4, 1]), 9)
    with torch.set_grad_enabled(trained):
        ours = blocks(x, valid if masked else None)
    w = weights_of(blocks)
    for g, width in enumerate(WIDTHS):
        for n in range(3):
            seen = valid[n] if masked else torch.ones(9, dtype=torch.bool)
            assert_close(
                ours[g, n].detach(),
                twin.block(x[n].double(), twin.sub(w, f"{g}."), 4, twin.gaussian(width, 9), seen),
                1e-5,
            )


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("temperature", [0.09, 0.6])
def test_mixture_equals_the_loop(masked, temperature):
    mixture = shaken(BlockMixture(length=9, width=16, heads=4, dropout_rate=0.5, temperature=temperature))
    outputs = torch.randn(8, 3, 9, 16)
    valid = length_mask(torch.tensor([9, 4, 1]), 9)
    ours = mixture(outputs, valid if masked else None).detach()
    w = weights_of(mixture)
    for n in range(3):
        seen = valid[n] if masked else torch.ones(9, dtype=torch.bool)
        assert_close(ours[n], twin.mixture(outputs[:, n].double(), w, 4, temperature, seen), 1e-5)


@pytest.mark.parametrize("masked", [False, True])
def test_gradients_of_the_mixture_are_those_of_one_product(masked, monkeypatch) -> None:
    """Block by block as on a CPU, and one product for every position as elsewhere."""
    mixture = shaken(BlockMixture(length=5, width=8, heads=2, dropout_rate=0.3, temperature=0.6))
    blocks, direction = torch.randn(3, 2, 5, 8, requires_grad=True), torch.randn(2, 5, 8)
    mask = length_mask(torch.tensor([5, 2]), 5) if masked else None
    wanted = [blocks, *mixture.parameters()]
    ours = torch.autograd.grad(mixture(blocks, mask), wanted, direction, allow_unused=True)
    monkeypatch.setattr("holmes.encoders.mixture.by_onednn", lambda values: False)
    other = torch.autograd.grad(mixture(blocks, mask), wanted, direction, allow_unused=True)
    for one, expected in zip(ours, other, strict=True):
        assert_close(one, expected, 1e-5)


def test_pooling_and_token_weights_equal_the_loop():
    pool, weigh = shaken(AttentionPooling(16)), shaken(TokenWeights(16), 1)
    x, lengths = torch.randn(4, 6, 16), torch.tensor([6, 3, 1, 0])
    mask = length_mask(lengths, 6)
    pooled, shares = pool(x, mask).detach(), weigh(x, mask).detach()
    for n, length in enumerate(lengths[:3]):
        real = x[n, :length].double()
        assert_close(pooled[n], twin.pooled(real, weights_of(pool)), 1e-5)
        assert_close(shares[n, :length], twin.token_shares(real, weights_of(weigh)), 1e-5)
        assert (shares[n, length:] == 0).all()
    assert (shares[3] == 0).all()
    assert torch.isfinite(pooled).all()


# The whole model


def encode(model: HolmesModel, fed):
    with torch.no_grad():
        return (
            model.encode_videos(fed.frames_VFD, fed.frame_lengths_V, fed.clips_VCD),
            model.encode_queries(fed.tokens_QTD, fed.token_lengths_Q),
        )


@pytest.mark.parametrize("dual", [False, True])
def test_model_equals_the_twin(dual):
    model = MODELS[dual]
    config, w = model.config, weights_of(model)
    fed = features(config)
    video, query = encode(model, fed)

    def branch(x, name, valid):
        return twin.video_branch(
            x.double(),
            twin.sub(w, f"{name}_branch."),
            config.gaussian_widths,
            config.heads,
            config.mixing_temperature,
            valid,
        )

    for v, length in enumerate(fed.frame_lengths_V):
        valid = torch.arange(config.frames) < length
        assert torch.equal(video.frame_mask_VF[v], valid)
        assert_close(video.frames_VFD[v], branch(fed.frames_VFD[v], "frame", valid), 1e-5)
        everything = torch.ones(config.clips, dtype=torch.bool)
        assert_close(video.clips_VCD[v], branch(fed.clips_VCD[v], "clip", everything), 1e-5)

    places = twin.sub(w, "query_places.")
    for q, length in enumerate(fed.token_lengths_Q):
        real = fed.tokens_QTD[q, :length].double()
        hidden = twin.tokens(real, twin.sub(w, "query_encoder."), places, config.heads)
        assert_close(query.query_QD[q], twin.pooled(hidden, twin.sub(w, "pool.")), 1e-5)
        if dual:
            hidden = twin.tokens(real, twin.sub(w, "frame_query_encoder."), places, config.heads)
            shares = twin.sub(w, "token_weights.")
            unit = torch.nn.functional.normalize(hidden, dim=-1)
            assert_close(query.tokens_QTD[q, :length], hidden, 1e-5)
            assert_close(query.token_weights_QT[q, :length], twin.token_shares(unit, shares), 1e-5)
            assert_close(query.raw_token_weights_QT[q, :length], twin.token_shares(hidden, shares), 1e-5)
    if not dual:
        assert query.tokens_QTD is query.token_weights_QT is query.raw_token_weights_QT is None


@settings(max_examples=10)
@given(st.integers(0, 10_000), st.booleans())
def test_a_query_alone_equals_its_row_and_needs_no_padding(seed, dual):
    model = MODELS[dual]
    fed = features(model.config, seed=seed)
    _, together = encode(model, fed)
    for q, length in enumerate(fed.token_lengths_Q):
        for kept in {int(length), model.config.tokens}:
            alone = model.encode_queries(fed.tokens_QTD[q : q + 1, :kept], fed.token_lengths_Q[q : q + 1])
            assert_close(alone.query_QD[0].detach(), together.query_QD[q], 1e-5)
            if dual:
                assert_close(alone.tokens_QTD[0, :length].detach(), together.tokens_QTD[q, :length], 1e-5)
                assert_close(
                    alone.token_weights_QT[0, :length].detach(), together.token_weights_QT[q, :length], 1e-5
                )


@settings(max_examples=10)
@given(st.integers(0, 10_000), st.booleans())
def test_what_stands_in_padded_tokens_does_not_matter(seed, dual):
    model = MODELS[dual]
    fed = features(model.config, seed=seed)
    hidden = ~length_mask(fed.token_lengths_Q, model.config.tokens).unsqueeze(-1)
    noisy = replace(fed, tokens_QTD=fed.tokens_QTD + 9 * hidden)
    (_, one), (_, other) = encode(model, fed), encode(model, noisy)
    assert_close(other.query_QD, one.query_QD, 1e-5)
    if dual:
        assert_close(other.token_weights_QT, one.token_weights_QT, 1e-5)


@settings(max_examples=10)
@given(st.integers(0, 10_000), st.permutations(range(3)))
def test_a_video_alone_equals_its_row_in_any_order(seed, order):
    model = MODELS[False]
    fed = features(model.config, seed=seed)
    video, _ = encode(model, fed)
    moved, _ = encode(
        model,
        replace(
            fed,
            frames_VFD=fed.frames_VFD[order],
            frame_lengths_V=fed.frame_lengths_V[order],
            clips_VCD=fed.clips_VCD[order],
        ),
    )
    assert_close(moved.frames_VFD, video.frames_VFD[order], 1e-5)
    assert_close(moved.clips_VCD, video.clips_VCD[order], 1e-5)
    alone = model.encode_videos(fed.frames_VFD[:1], fed.frame_lengths_V[:1], fed.clips_VCD[:1])
    assert_close(alone.frames_VFD[0].detach(), video.frames_VFD[0], 1e-5)
    assert_close(alone.clips_VCD[0].detach(), video.clips_VCD[0], 1e-5)


def test_an_empty_query_is_finite():
    """A padded query has no token; what it gives is ignored, but must not be NaN."""
    model = MODELS[True]
    query = model.encode_queries(torch.zeros(1, 6, 7), torch.tensor([0]))
    assert torch.isfinite(query.query_QD).all()
    assert (query.token_weights_QT == 0).all()


def test_dropout_acts_in_training_only():
    model = tiny_model(dropout=0.5)
    fed = features(model.config)
    (_, one), (_, other) = encode(model, fed), encode(model, fed)
    assert torch.equal(one.query_QD, other.query_QD)
    model.train()
    (video, one), (again, other) = encode(model, fed), encode(model, fed)
    assert not torch.equal(one.query_QD, other.query_QD)
    assert not torch.equal(video.clips_VCD, again.clips_VCD)


@pytest.mark.parametrize("rate", [0.2, 0.25, 0.31, 0.5])
def test_dropout_keeps_the_mean_and_drops_at_its_rate(rate):
    """Bytes resolve the rate to 1/256; the mean is exact at the rate really used."""
    torch.manual_seed(0)
    values = torch.ones(200_001)
    kept = dropout(values, rate, training=True)
    error = kept.std().item() / math.sqrt(len(values))
    assert abs(kept.mean().item() - 1) < 4 * error
    assert (kept == 0).double().mean().item() == pytest.approx(rate, abs=0.5 / 256 + 0.005)
    assert len(kept.unique()) == 2
    assert torch.equal(dropout(values, rate, training=False), values)
    assert torch.equal(dropout(values, 0.0, training=True), values)


@pytest.mark.parametrize("masked", [False, True])
def test_gradients_of_blocks_are_those_of_all_at_once(masked, monkeypatch) -> None:
    """Block by block as on a CPU, and all blocks in one product as on a GPU."""
    torch.manual_seed(0)
    blocks = shaken(ParallelBlocks(WIDTHS, length=9, width=16, heads=4, dropout_rate=0.5))
    x, direction = torch.randn(3, 9, 16, requires_grad=True), torch.randn(len(WIDTHS), 3, 9, 16)
    mask = length_mask(torch.tensor([9, 4, 1]), 9) if masked else None
    wanted = [x, *blocks.parameters()]
    ours = torch.autograd.grad(blocks(x, mask), wanted, direction)
    monkeypatch.setattr("holmes.encoders.blocks.by_onednn", lambda values: False)
    for one, other in zip(ours, torch.autograd.grad(blocks(x, mask), wanted, direction), strict=True):
        assert_close(one, other, 1e-5)


def test_blocks_in_training_vary_as_all_at_once_do() -> None:
    """Block by block, with gradients, dropout falls where the plain form has it, which golden files check."""
    torch.manual_seed(0)
    blocks = shaken(ParallelBlocks((None, 1.0), length=4, width=16, heads=4, dropout_rate=0.3)).train()
    x, variances = torch.randn(1, 4, 16).expand(8000, -1, -1), []
    for trained in (True, False):
        with torch.set_grad_enabled(trained):
            variances.append(blocks(x, None).detach().var(1))
    assert variances[1].min() > 0.001
    torch.testing.assert_close(variances[0], variances[1], rtol=0.15, atol=0.0)


def test_attention_by_heads_drops_shares_forward_and_backward() -> None:
    """Against the formula by automatic gradients, with the same random bytes."""
    torch.manual_seed(0)
    query = torch.randn(3, 6, 2, 8, requires_grad=True)  # N × L × G × D, of two heads
    pair = torch.randn(3, 4, 2, 2, 8, requires_grad=True)
    window, mask = torch.rand(2, 6, 6), length_mask(torch.tensor([4, 1, 2]), 6)
    direction = torch.randn(2, 3, 6, 8)
    torch.manual_seed(5)
    kept = random_bytes(torch.Size((2, 2, 3, 6, 4)), query.device) >= 64
    q, (k, v) = query.unflatten(-1, (2, 4)), pair.unflatten(-1, (2, 4)).unbind(2)
    logits = torch.einsum("nlghe,nsghe->ghnls", q, k) * window[:, None, None, :, :4] / 2
    logits = logits.masked_fill(~mask[None, None, :, None, :4], -torch.inf)
    shares = logits.softmax(-1) * kept * (256 / 192)
    expected = torch.einsum("ghnls,nsghe->gnlhe", shares, v).flatten(-2)
    torch.manual_seed(5)
    ours = attend_by_heads(query, pair, window, mask, 2, 0.25, training=True)
    assert_close(ours.detach(), expected.detach(), 1e-6)
    found = [torch.autograd.grad(context, (query, pair), direction) for context in (ours, expected)]
    for one, other in zip(*found, strict=True):
        assert_close(one, other, 1e-5)


@pytest.mark.parametrize("dual", [False, True])
def test_padded_tokens_are_left_out_in_training_and_nothing_changes(dual, monkeypatch) -> None:
    """Queries with gradients: rows of valid tokens, and all tokens at once as on a GPU."""
    model = shaken(tiny_model(dual))
    fed = features(model.config)
    lengths = fed.token_lengths_Q.clone()
    lengths[0] = 0  # a padded query

    def gradients() -> list[torch.Tensor]:
        query = model.encode_queries(fed.tokens_QTD, lengths)
        outputs = [query.query_QD[1:]] + ([query.token_weights_QT[1:]] if dual else [])
        found = torch.autograd.grad([x.square().sum() for x in outputs], wanted, allow_unused=True)
        return [*(x.detach() for x in outputs), *(x for x in found if x is not None)]

    wanted = [value for name, value in model.named_parameters() if "branch" not in name]
    ours = gradients()
    for module in ("blocks", "query"):
        monkeypatch.setattr(f"holmes.encoders.{module}.by_onednn", lambda values: False)
    everything = gradients()
    assert len(ours) == len(everything) > 15
    for one, other in zip(ours, everything, strict=True):
        assert_close(one, other, 1e-5)


def test_rows_of_valid_positions_come_back_to_their_places() -> None:
    mask = length_mask(torch.tensor([2, 0, 3]), 3)
    rows = ValidRows(mask)
    values = torch.arange(18.0).view(3, 3, 2).requires_grad_()
    assert rows.row_R.tolist() == [0, 1, 3, 6, 7, 8], "a sequence without any keeps its first"
    assert rows.position_R.tolist() == [0, 1, 0, 0, 1, 2]
    padded = rows.padded(rows.of(values) * 2)
    kept = torch.zeros(9, 1).index_fill(0, rows.row_R, 1).view(3, 3, 1)
    assert torch.equal(padded, 2 * values * kept)
    direction = torch.randn(3, 3, 2)
    assert torch.equal(torch.autograd.grad(padded, values, direction)[0], 2 * direction * kept)


def test_dropout_draws_a_byte_for_every_value() -> None:
    """Bytes below the threshold drop; what is kept is scaled, forward and backward, bit for bit."""
    values, direction = torch.randn(2, 3, 7, requires_grad=True), torch.randn(2, 3, 7)
    for function, base in ((dropout, values), (relu_dropout, torch.relu(values))):
        torch.manual_seed(3)
        keep = random_bytes(values.shape, values.device) >= 64
        torch.manual_seed(3)
        output = function(values, 0.25, training=True)
        assert torch.equal(output, base * keep * (256 / 192))
        (slope,) = torch.autograd.grad(output, values, direction)
        assert torch.equal(slope, direction * (output != 0) * (256 / 192))


def test_dropped_relu_passes_gradient_exactly_where_it_is_positive():
    torch.manual_seed(0)
    values = torch.randn(4, 1001, requires_grad=True)
    output = relu_dropout(values, 0.25, training=True)
    output.sum().backward()
    alive = output.detach() > 0
    assert torch.equal(output.detach()[alive], values.detach()[alive] * (4 / 3))
    assert (output.detach()[~alive] == 0).all()
    assert (values.detach()[alive] > 0).all()
    assert torch.equal(values.grad, torch.where(alive, 4 / 3, 0.0))
    positive = (values.detach() > 0).sum().item()
    assert alive.sum().item() == pytest.approx(0.75 * positive, rel=0.1)
    assert torch.equal(relu_dropout(values, 0.25, training=False), torch.relu(values))


def test_dropped_attention_keeps_its_mean():
    """With dropout the attended value is unbiased: bias and mean are dropped together."""
    torch.manual_seed(0)
    mixture = shaken(BlockMixture(length=5, width=8, heads=2, dropout_rate=0.3, temperature=0.6))
    token, outputs = torch.randn(1, 8), torch.randn(2, 1, 5, 8)
    exact = mixture.ask.attend(token, outputs, None).detach()
    mixture.train()
    draws = torch.stack([mixture.ask.attend(token, outputs, None).detach() for _ in range(4000)])
    error = draws.std(0) / math.sqrt(len(draws))
    assert ((draws.mean(0) - exact).abs() < 4.5 * error).all()


def test_a_dropped_position_loses_its_bias_too():
    """With no value weights a head's context is its bias times the attention that was kept, not times 1."""
    torch.manual_seed(0)
    mixture = shaken(BlockMixture(length=5, width=8, heads=2, dropout_rate=0.3, temperature=0.6)).train()
    with torch.no_grad():
        mixture.ask.value.weight.zero_()
    context = mixture.ask.attend(torch.randn(50, 8), torch.randn(2, 50, 5, 8), None).detach()
    kept = (context / mixture.ask.value.bias.detach()).unflatten(-1, (2, 4))
    assert_close(kept, kept[..., :1].expand_as(kept), 1e-5)
    assert kept.std() > 0.1


# Size and start


PUBLISHED = {
    "activitynet": 30_791_200,
    "charades": 30_791_200,
    "tvr": 32_273_440,
    "tvr_dual": 34_345_121,
}
UNUSED_TOKEN = 384  # `weight_token`, which nothing reads
UNUSED_PLACES = 96 * 384  # the clip branch has 128 positions and 32 clips


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_the_published_ones_less_the_dead(name):
    with torch.device("meta"):
        model = HolmesModel(PRESETS[name]().model)
    assert UNUSED_TOKEN + UNUSED_PLACES == 37_248
    assert sum(p.numel() for p in model.parameters()) == PUBLISHED[name] - 37_248


def test_initial_weights_are_normal_and_biases_zero():
    torch.manual_seed(0)
    model = HolmesModel(tiny_config(dual=True, width=64, heads=4, video_width=50, text_width=50))
    for name, value in model.named_parameters():
        kind = name.split(".")[-1]
        if "norm" in name:
            assert (value == (0 if kind.startswith("bias") else 1)).all(), name
        elif kind.startswith("bias"):
            assert (value == 0).all(), name
        elif value.numel() > 1000:
            assert value.std().item() == pytest.approx(0.02, rel=0.1), name
            assert abs(value.mean().item()) < 0.002, name
