"""Run by test_kernels.py in a process of its own: Triton decides at import whether to interpret."""

from __future__ import annotations

import torch

from holmes.encoders.attention_kernel import HAS_TRITON, FusedAttention, attend_fused
from holmes.encoders.gaussian import attend, gaussian_weights
from holmes.transport.sinkhorn import LOG_ZERO, sinkhorn
from holmes.transport.sinkhorn_kernel import sinkhorn_fused

assert HAS_TRITON, "install the test extra: it brings Triton for its interpreter"
torch.manual_seed(0)
SEQUENCES, BLOCKS, HEADS = 3, 2, 2


def assert_close(ours: torch.Tensor, reference: torch.Tensor, tolerance: float = 1e-5) -> None:
    error = ((ours - reference).norm() / reference.norm()).item()
    assert error < tolerance, error


def attention_case(length: int, width: int) -> tuple[torch.Tensor, ...]:
    projected = torch.randn(SEQUENCES, length, 3, BLOCKS, HEADS * width, requires_grad=True)
    bias = torch.randn(3, BLOCKS, HEADS * width, requires_grad=True)
    weights = gaussian_weights([None, 1.0], length)
    mask = torch.arange(length) < torch.tensor([length, 7, 1])[:, None]
    return projected, bias, weights, mask, torch.randn(BLOCKS, SEQUENCES, length, HEADS * width)


for length, width in ((32, 24), (30, 16)):  # neither width nor length need be a power of two
    projected, bias, weights, mask, gradient = attention_case(length, width)
    plain = attend(projected, bias, weights, mask, HEADS, 0.0)
    fused = attend_fused(projected, bias, weights, mask, HEADS, 0.0)
    assert_close(fused, plain)
    for ours, reference in zip(
        torch.autograd.grad(fused, [projected, bias], gradient),
        torch.autograd.grad(plain, [projected, bias], gradient),
        strict=True,
    ):
        assert_close(ours, reference)
    print("ok: attention of length", length)

# With dropout there is no twin to compare with, but the gradient must be that of the function.
projected, bias, weights, mask, gradient = attention_case(16, 8)
seed, direction, step = torch.tensor([5], dtype=torch.int32), torch.randn_like(projected), 1e-2


def dropped(values: torch.Tensor) -> torch.Tensor:
    return (FusedAttention.apply(values, bias, weights, mask, seed, HEADS, 0.3) * gradient).sum()


(slope,) = torch.autograd.grad(dropped(projected), [projected])
difference = (dropped(projected + step * direction) - dropped(projected - step * direction)) / (2 * step)
assert abs(difference - (slope * direction).sum()) < 1e-2 * abs(difference) + 1e-2
print("ok: gradient under dropout")

# Values of one make every context the kept share of its attention, scaled up: 1 on average.
projected = torch.zeros(SEQUENCES, 64, 3, 1, 16)
projected[:, :, 2] = 1
full = torch.ones(SEQUENCES, 64, dtype=torch.bool)
even = gaussian_weights([None], 64)
kept = FusedAttention.apply(projected, torch.zeros(3, 1, 16), even, full, seed, HEADS, 0.3)[..., 0]
assert abs(kept.mean().item() - 1) < 0.02, kept.mean()
expected_deviation = (0.3 / 0.7 / 64) ** 0.5
assert 0.8 < kept.std().item() / expected_deviation < 1.2, kept.std()
print("ok: share dropped")

scores = 10 * torch.rand(4, 32, 6)
source, target = torch.full((4, 32), 1 / 32).log(), torch.full((4, 6), 1 / 5).log()
target[:, 5] = LOG_ZERO
first = torch.where(target > LOG_ZERO, 0.0, LOG_ZERO)
assert_close(sinkhorn_fused(scores, source, target, first, 50), sinkhorn(scores, source, target, 50))
print("ok: sinkhorn")
