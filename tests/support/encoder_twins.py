"""Slow twins of the encoders: one block, one sequence, one head at a time, with `torch.nn.functional` alone.

Weights come as a plain dictionary under this project's names, those of parallel blocks apart, each as an
ordinary linear layer. Sequences come without their padding wherever that is possible, and with a mask where
the method lets padding take part.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

Weights = Mapping[str, Tensor]


def gaussian(width: float | None, length: int) -> Tensor:
    """exp(-(j/(L-1) - i/L)² / 2σ²), each row over its maximum; ones without a width."""
    if width is None:
        return torch.ones(length, length, dtype=torch.float64)
    sigma = max(width, 0.01) / 9
    rows = []
    for i in range(length):
        row = [math.exp(-((j / (length - 1) - i / length) ** 2) / (2 * sigma**2)) for j in range(length)]
        rows.append([value / max(row) for value in row])
    return torch.tensor(rows, dtype=torch.float64)


def norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias, eps=1e-5)


def attention(query: Tensor, key: Tensor, value: Tensor, heads: int, weight: Tensor, valid: Tensor) -> Tensor:
    """Head by head: the Gaussian weight multiplies the scaled logits, padding is masked, then the softmax."""
    outputs = []
    for q, k, v in zip(query.chunk(heads, -1), key.chunk(heads, -1), value.chunk(heads, -1), strict=True):
        logits = weight * (q @ k.T) / math.sqrt(q.shape[-1])
        logits = logits + torch.where(valid, 0.0, -10000.0)
        outputs.append(torch.softmax(logits, -1) @ v)
    return torch.cat(outputs, -1)


def block(x: Tensor, w: Weights, heads: int, weight: Tensor, valid: Tensor) -> Tensor:
    """One post-norm transformer block over one sequence."""

    def linear(name: str, values: Tensor) -> Tensor:
        return F.linear(values, w[f"{name}.weight"], w[f"{name}.bias"])

    def normed(name: str, values: Tensor) -> Tensor:
        return norm(values, w[f"{name}.weight"], w[f"{name}.bias"])

    context = attention(linear("query", x), linear("key", x), linear("value", x), heads, weight, valid)
    attended = normed("attention_norm", x + context)
    return normed("output_norm", attended + linear("narrow", F.relu(linear("widen", attended))))


def mixture(outputs: Sequence[Tensor], w: Weights, heads: int, temperature: float, valid: Tensor) -> Tensor:
    """MAIM for one sequence: the mean token asks every block; the answers weigh blocks, place by place."""

    def linear(name: str, values: Tensor) -> Tensor:
        return F.linear(values, w[f"{name}.weight"], w[f"{name}.bias"])

    def normed(name: str, values: Tensor) -> Tensor:
        return norm(values, w[f"{name}.weight"], w[f"{name}.bias"])

    token = torch.stack(list(outputs)).mean((0, 1)).unsqueeze(0)
    logits = []
    for output in outputs:
        context = attention(
            linear("ask.query", token),
            linear("ask.key", output),
            linear("ask.value", output),
            heads,
            torch.ones(1, len(output)),
            valid,
        )
        attended = normed("ask.attention_norm", token + context)
        inner = linear("ask.narrow", F.relu(linear("ask.widen", attended)))
        answer = normed("ask.output_norm", attended + inner)
        logits.append(linear("weigh", F.relu(linear("hidden", answer))).squeeze(0))
    shares = torch.softmax(torch.stack(logits) / temperature, 0)
    return sum(share.unsqueeze(-1) * output for share, output in zip(shares, outputs, strict=True))


def sub(w: Weights, prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in w.items() if name.startswith(prefix)}


def project(x: Tensor, w: Weights) -> Tensor:
    return F.relu(F.linear(norm(x, w["norm.weight"], w["norm.bias"]), w["linear.weight"], w["linear.bias"]))


def place(x: Tensor, w: Weights) -> Tensor:
    return norm(x + w["positions.weight"][: len(x)], w["norm.weight"], w["norm.bias"])


def video_branch(
    x: Tensor, w: Weights, widths: Sequence[float | None], heads: int, temperature: float, valid: Tensor
) -> Tensor:
    """One video's frames or clips, padding included."""
    placed = place(project(x, sub(w, "project.")), sub(w, "place."))
    outputs = [
        block(placed, sub(w, f"blocks.{g}."), heads, gaussian(width, len(x)), valid)
        for g, width in enumerate(widths)
    ]
    return mixture(outputs, sub(w, "mix."), heads, temperature, valid)


def tokens(x: Tensor, w: Weights, places: Weights, heads: int) -> Tensor:
    """One query's tokens, without padding."""
    placed = place(project(x, sub(w, "project.")), places)
    return block(placed, sub(w, "block.0."), heads, torch.ones(1), torch.ones(len(x), dtype=torch.bool))


def pooled(x: Tensor, w: Weights) -> Tensor:
    return torch.softmax(x @ w["response.weight"].squeeze(0), 0) @ x


def token_shares(x: Tensor, w: Weights) -> Tensor:
    hidden = F.relu(F.linear(x, w["hidden.weight"], w["hidden.bias"]))
    return torch.softmax(F.linear(hidden, w["weigh.weight"], w["weigh.bias"]).squeeze(-1), 0)
