"""The kernels of a training step against their twins: on a GPU, or in Triton's interpreter.

Run by test_kernels.py and test_gpu.py in a process of its own. References are in float64, with the same
values dropped: the kernels' hash is written again here.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from unittest.mock import patch

import torch
from torch import Tensor, nn

from holmes.config.presets import preset
from holmes.config.schema import HolmesConfig, with_changes
from holmes.encoders import block_kernels, mixture_kernels
from holmes.encoders.block_kernels import norm_fused, relu_dropout_fused
from holmes.encoders.blocks import BlockLinear
from holmes.encoders.mixture_kernels import token_mean_fused, weighted_sum_fused
from holmes.encoders.model import HolmesModel
from holmes.records import Batch, Stage
from holmes.similarity import best_of_both
from holmes.training.optimizer import FlatAdam
from holmes.training.setup import build_objective
from holmes.training.similarity_kernel import best_of_both_fused
from holmes.training.step import TrainStep

SEED, DEVICE = 12345, torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.set_default_device(DEVICE)
torch.manual_seed(0)


def kept(shape: tuple[int, ...], rate: float) -> Tensor:
    """1/(1 - rate) or 0 for every place."""
    threshold = round(rate * 2**24)

    def product(words: Tensor, factor: int) -> Tensor:
        """Of 32 bits, in halves, so that 64 bits suffice."""
        return ((words & 0xFFFF) * factor + (((words >> 16) * factor & 0xFFFF) << 16)) & 0xFFFFFFFF

    words = product(torch.arange(torch.Size(shape).numel()), 0x9E3779B1) ^ SEED
    words = product(words ^ (words >> 16), 0x85EBCA6B)
    words = product(words ^ (words >> 13), 0xC2B2AE35)
    keep = ((words ^ (words >> 16)) >> 8) >= threshold
    return (keep.double() / (1 - threshold / 2**24)).view(shape)


def compare(
    ours: Callable[..., Tensor], reference: Callable[..., Tensor], inputs: list[Tensor], tolerance: float
) -> None:
    """Outputs and all gradients, twice: the second time must give the same bits."""
    inputs = [tensor.clone().requires_grad_() for tensor in inputs]
    exact = [tensor.detach().double().requires_grad_() for tensor in inputs]
    output, expected = ours(*inputs), reference(*exact)
    direction = torch.randn(output.shape).to(output.dtype)
    gradients = torch.autograd.grad(output, inputs, direction)
    again = torch.autograd.grad(ours(*inputs), inputs, direction)
    slow = torch.autograd.grad(expected, exact, direction.double())
    for found, wanted in zip((output, *gradients), (expected, *slow), strict=True):
        assert found.isfinite().all()
        error = ((found.double() - wanted).norm() / wanted.norm()).item()
        assert error < tolerance, error
    assert all(torch.equal(one, other) for one, other in zip(gradients, again, strict=True))


def norm_cases() -> None:
    for blocks, rows, width, dtype in ((2, 20, 24, torch.float32), (2, 9, 384, torch.bfloat16)):
        parameters = [torch.randn(blocks, width) for _ in range(3)]
        change, shared = torch.randn(blocks, rows, width).to(dtype), torch.randn(rows, width).to(dtype)
        own = torch.randn(blocks, rows, width).to(dtype)
        mask, tolerance = kept((blocks, rows, width), 0.3), 1e-5 if dtype is torch.float32 else 1e-2

        def plain(values: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
            normal = torch.nn.functional.layer_norm(values, values.shape[-1:], eps=1e-5)
            return normal * weight[:, None] + bias[:, None]

        for residual in (shared, own):
            compare(
                lambda c, r, b, w, o: norm_fused(c, w, o, 1e-5, c.dtype, r, b, 0.3),
                lambda c, r, b, w, o, mask=mask: plain(r + (c + b[:, None]) * mask, w, o),
                [change, residual, *parameters],
                tolerance,
            )
            compare(
                lambda c, r, w, o: norm_fused(c, w, o, 1e-5, c.dtype, r),
                lambda c, r, w, o: plain(r + c, w, o),
                [change, residual, *parameters[1:]],
                tolerance,
            )
        compare(
            lambda c, w, o: norm_fused(c, w, o, 1e-5, c.dtype, dropout_rate=0.3, drop_after=True),
            lambda c, w, o, mask=mask: plain(c, w, o) * mask,
            [change, *parameters[1:]],
            tolerance,
        )
    features = torch.randn(1, 5, 40).half()  # no gradient of their own, and another type out
    weight, bias = torch.randn(1, 40, requires_grad=True), torch.randn(1, 40, requires_grad=True)
    output = norm_fused(features, weight, bias, 1e-5, torch.float32)
    expected = torch.nn.functional.layer_norm(features.float(), (40,), weight[0], bias[0])
    torch.testing.assert_close(output, expected, rtol=1e-5, atol=1e-5)
    direction = torch.randn_like(output)
    for found, wanted in zip(
        torch.autograd.grad(output, [weight, bias], direction),
        torch.autograd.grad(expected, [weight, bias], direction),
        strict=True,
    ):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def relu_cases() -> None:
    for blocks, rows, width, rate in ((2, 70, 24, 0.3), (1, 33, 300, 0.0)):
        mask = kept((blocks, rows, width), rate)
        compare(
            lambda x, b, rate=rate: relu_dropout_fused(x, b, rate),
            lambda x, b, mask=mask: torch.relu(x + b[:, None]) * mask,
            [torch.randn(blocks, rows, width), torch.randn(blocks, width)],
            1e-5,
        )
    broken = torch.full((1, 2, 8), torch.nan)
    assert relu_dropout_fused(broken, torch.zeros(1, 8), 0.3).isnan().all(), "NaN must not become 0"


def mixture_cases() -> None:
    for blocks, sequences, length, width, heads, dtype in (
        (2, 3, 18, 24, 2, torch.float32),
        (3, 2, 7, 384, 4, torch.float32 if DEVICE.type == "cpu" else torch.bfloat16),
    ):  # the interpreter multiplies no matrices of bf16
        tolerance = 1e-5 if dtype is torch.float32 and DEVICE.type == "cpu" else 2e-2
        rows = torch.randn(blocks, sequences, length, width).to(dtype)
        compare(
            weighted_sum_fused,
            lambda w, b: torch.einsum("gnl,gnld->nld", w, b),
            [torch.rand(blocks, sequences, length), rows],
            tolerance,
        )
        folded = torch.randn(sequences, heads, width).to(dtype)
        lengths = torch.randint(1, length + 1, (sequences, 1))
        for mask, rate in ((None, 0.0), (torch.arange(length) < lengths, 0.3)):
            drop = kept((blocks, sequences, heads, length), rate)

            def plain(
                folded: Tensor, rows: Tensor, mask: Tensor | None = mask, drop: Tensor = drop
            ) -> Tensor:
                logits = torch.einsum("nhd,gnld->gnhl", folded, rows) / 5
                if mask is not None:
                    logits = logits + torch.where(mask, 0.0, -10000.0)[None, :, None]
                attention = logits.softmax(-1) * drop
                mean = torch.einsum("gnhl,gnld->gnhd", attention, rows)
                return torch.cat([mean, attention.sum(-1, keepdim=True)], -1)

            def ours(folded: Tensor, rows: Tensor, mask: Tensor | None = mask, rate: float = rate) -> Tensor:
                mean, mass = token_mean_fused(folded, rows, mask, 1 / 5, rate)
                return torch.cat([mean.float(), mass.unsqueeze(-1)], -1)

            compare(ours, plain, [folded, rows], tolerance)


def score_cases() -> None:
    for queries, videos, positions, width in ((70, 3, 20, 40), (5, 7, 130, 16), (130, 1, 1, 8)):
        # Numbers of few bits, as the encoders give: a GPU multiplies them exactly.
        query = torch.randn(queries, width).bfloat16().float()
        video = torch.randn(videos, positions, width).bfloat16().float()
        scale = torch.rand(videos, positions) + 0.5
        lengths = torch.randint(1, positions + 1, (videos, 1))
        for mask in (None, torch.arange(positions) < lengths):
            compare(
                lambda *inputs, mask=mask: torch.cat(best_of_both_fused(*inputs, mask)),
                # The twin would round to float32, and look for the best position there.
                lambda q, v, s, mask=mask: torch.cat(exact_best(q, v, s, mask)),
                [query, video, scale],
                1e-5 if DEVICE.type == "cpu" else 1e-3,
            )
            for ours, twin in zip(
                best_of_both_fused(query, video, scale, mask),
                best_of_both(query, video, scale, mask),
                strict=True,
            ):
                torch.testing.assert_close(ours, twin, rtol=1e-5, atol=1e-5)
    video[0, 0] = torch.nan
    dot, scaled = best_of_both_fused(query, video, scale, None)
    assert dot.isnan().all() and scaled.isnan().all(), "a maximum must not pass over NaN"


def exact_best(query: Tensor, video: Tensor, scale: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    dot = torch.einsum("qd,vpd->qvp", query, video)
    hidden = torch.zeros_like(dot, dtype=torch.bool) if mask is None else ~mask.expand(dot.shape)
    return tuple(values.masked_fill(hidden, -torch.inf).amax(-1) for values in (dot, dot * scale))


def optimizer_cases() -> None:
    for width, hidden in ((7, 9), (64, 96)):  # tensors that begin anywhere, and at multiples of 16 bytes
        torch.manual_seed(width)
        model = torch.nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), BlockLinear(3, hidden, width))
        plain, kernels = FlatAdam(model), FlatAdam(deepcopy(model))
        kernels.fuse()
        assert kernels.chunks is not None and kernels.chunks.unit == (4 if width == 64 else 1)
        for step in range(3):
            for optimizer in (plain, kernels):
                torch.manual_seed(step)
                optimizer.gradients.copy_(torch.randn_like(optimizer.gradients) * 10.0 ** (step - 2))
            rate = torch.tensor(1e-2)
            torch.testing.assert_close(kernels.step(rate), plain.step(rate), rtol=1e-5, atol=1e-7)
            for name in ("values", "first", "second"):
                found, wanted = (
                    torch.cat([view.flatten() for view in each._views(getattr(each, name))])
                    for each in (kernels, plain)
                )
                torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-7)


def whole_step() -> None:
    """Two steps of a small model, with the kernels and without; one with dropout twice, to the same bits."""
    settings = {"width": 24, "heads": 2, "gaussian_widths": "none,1", "video_width": 12, "text_width": 20}
    settings |= {"frames": 9, "clips": 5, "tokens": 3, "hard_pool": 2}
    for dual, dropout in ((True, 0.0), (False, 0.3)):
        config = with_changes(preset("small"), {**settings, "dual_query": dual, "dropout": dropout})
        torch.manual_seed(1)
        batch = Batch(
            torch.randn(2, 9, 12), torch.tensor([9, 1]), torch.randn(2, 5, 12),
            torch.randn(4, 3, 20), torch.tensor([3, 1, 2, 0]),
            torch.tensor([0, 0, 1, 0]), torch.tensor([0, 1, 0, 0]), queries_per_video=2,
        )  # fmt: skip
        model = HolmesModel(config.model).train()

        def states(
            fused: bool,
            steps: int,
            model: HolmesModel = model,
            config: HolmesConfig = config,
            batch: Batch = batch,
        ) -> Tensor:
            copied = deepcopy(model)
            step = TrainStep(copied, build_objective(config), FlatAdam(copied), kernels=fused)
            torch.manual_seed(2)
            uniform = torch.rand(steps, 4, 2)  # all at once: the kernels draw seeds in between
            reports = [step(batch, Stage.CALIBRATED, each, torch.tensor(1e-3)).values_N for each in uniform]
            moments = step.optimizer._views(step.optimizer.first)
            return torch.cat([*reports, *(moment.flatten() for moment in moments)])

        if dropout:
            assert torch.equal(states(fused=True, steps=1), states(fused=True, steps=1))
        else:
            found, plain = states(fused=True, steps=2), states(fused=False, steps=2)
            error = ((found - plain).norm() / plain.norm()).item()
            assert error < (1e-4 if DEVICE.type == "cpu" else 2e-2), error  # a GPU encodes in bf16


def fixed_seed(device: torch.device) -> Tensor:
    return torch.tensor([SEED], dtype=torch.int32)


with (
    patch.object(block_kernels, "new_seed", fixed_seed),
    patch.object(mixture_kernels, "new_seed", fixed_seed),
):
    norm_cases()
    print("ok: norms")
    relu_cases()
    print("ok: relu")
    mixture_cases()
    print("ok: mixture")
score_cases()
print("ok: scores")
optimizer_cases()
print("ok: optimizer")
whole_step()
print("ok: whole step")
