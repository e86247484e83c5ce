"""DreamPRVR's registers: vectors drawn by diffusion from a video's clips, which join its frames and clips.

A start μ and a condition are read from the clips; ten steps of a small denoising network lead from one to the
registers. Nothing is sampled: μ also stands where a diffusion model would draw noise.

V videos, C clips, R registers, D width, T steps
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holmes.encoders.blocks import BlockLinear, ParallelBlocks
from holmes.encoders.dropout import dropout, relu_dropout

STEPS = 10
LAYERS = 2  # residual blocks of the network
RANK_WIDTH = 32  # of what weighs the ranks
RANK_TEMPERATURE = 0.1
LARGEST_BETA = 0.999
PERTURBATION = 0.1


@dataclass(frozen=True)
class RegisterOrigin:
    """Where a video's registers come from."""

    start_VD: Tensor  # μ, of length 1
    log_variance_VD: Tensor
    condition_VRD: Tensor


class Registers(nn.Module):
    """Clips in the model's width → R × D for every video."""

    def __init__(self, registers: int, clips: int, width: int, heads: int, dropout_rate: float) -> None:
        super().__init__()
        self.gist = ParallelBlocks([None], clips, width, heads, dropout_rate)
        self.condition = CrossAttention(registers, width, heads, dropout_rate)
        self.start = Start(clips, width)
        self.denoiser = Denoiser(width, dropout_rate)
        self.schedule = cosine_schedule(STEPS)

    def origin(self, clips_VCD: Tensor) -> RegisterOrigin:
        gist_VCD = self.gist(clips_VCD, None).squeeze(0)
        start_VD, log_variance_VD = self.start(gist_VCD.float())
        return RegisterOrigin(start_VD, log_variance_VD, self.condition(gist_VCD).float())

    def forward(self, origin: RegisterOrigin) -> Tensor:
        """Ten steps back, with μ in place of the noise of every step but the last: V × R × D."""
        noise_VRD = origin.start_VD.unsqueeze(1).expand_as(origin.condition_VRD)
        with torch.autocast(noise_VRD.device.type, enabled=False):
            condition_VRD = self.denoiser.embed(origin.condition_VRD)
            state_VRD = noise_VRD
            for step in reversed(range(STEPS)):
                predicted_VRD = self.denoiser(state_VRD, step, condition_VRD)
                state_VRD = self.schedule.back(state_VRD, predicted_VRD, noise_VRD, step)
        return state_VRD

    def predicted_noise(self, text_VRD: Tensor, origin: RegisterOrigin) -> Tensor:
        """T × V × R × D: what the network takes for noise in √ᾱ text + √(1-ᾱ) μ, at every step."""
        noise_VRD = origin.start_VD.unsqueeze(1).expand_as(text_VRD)
        with torch.autocast(text_VRD.device.type, enabled=False):
            condition_VRD = self.denoiser.embed(origin.condition_VRD)
            mixed = [self.schedule.mixed(text_VRD, noise_VRD, step) for step in range(STEPS)]
            return torch.stack(
                [self.denoiser(x_VRD, step, condition_VRD) for step, x_VRD in enumerate(mixed)]
            )


def mean_of_queries(query_VMD: Tensor, mask_VM: Tensor) -> Tensor:
    """V × D; 0 for a video without queries."""
    total_VD = query_VMD.float().masked_fill(~mask_VM.unsqueeze(-1), 0).sum(1)
    return total_VD / mask_VM.sum(1, keepdim=True).clamp(min=1)


def perturbed_text(text_VD: Tensor, alpha_VRD: Tensor, beta_VRD: Tensor) -> Tensor:
    """R draws around the normalised text: x̂ (1 + .1σ α) + mean + .1σ β, σ and mean over the width of x.

    No gradient passes through σ and the mean.
    """
    scale_V11 = PERTURBATION * text_VD.detach().std(-1, keepdim=True).unsqueeze(1)
    mean_V11 = text_VD.detach().mean(-1, keepdim=True).unsqueeze(1)
    normal_V1D = F.layer_norm(text_VD, text_VD.shape[-1:]).unsqueeze(1)
    return normal_V1D * (1 + scale_V11 * alpha_VRD) + mean_V11 + scale_V11 * beta_VRD


class CrossAttention(nn.Module):
    """R learned vectors ask a sequence: a transformer block with a feed-forward part as wide as the model."""

    def __init__(self, tokens: int, width: int, heads: int, dropout_rate: float) -> None:
        super().__init__()
        self.heads, self.dropout_rate = heads, dropout_rate
        self.tokens = nn.Parameter(torch.empty(tokens, width).normal_(std=0.02))
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.attention_norm = nn.LayerNorm(width)
        self.widen = nn.Linear(width, width)
        self.narrow = nn.Linear(width, width)
        self.output_norm = nn.LayerNorm(width)

    def forward(self, input_VCD: Tensor) -> Tensor:
        """V × C × D → V × R × D."""
        query_HRE = self.query(self.tokens).unflatten(-1, (self.heads, -1)).transpose(0, 1)
        key, value = (
            layer(input_VCD).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer in (self.key, self.value)
        )
        logits_VHRC = (query_HRE @ key.mT).float() / math.sqrt(query_HRE.shape[-1])
        attention = dropout(logits_VHRC.softmax(-1), self.dropout_rate, self.training)
        context_VRD = (attention.to(value.dtype) @ value).transpose(1, 2).flatten(-2)
        context_VRD = dropout(context_VRD, self.dropout_rate, self.training)
        attended_VRD = self.attention_norm(self.tokens + context_VRD)
        inner_VRD = relu_dropout(self.widen(attended_VRD), self.dropout_rate, self.training)
        change_VRD = dropout(self.narrow(inner_VRD), self.dropout_rate, self.training)
        normal_VRD: Tensor = self.output_norm(attended_VRD + change_VRD)
        return normal_VRD


class Start(nn.Module):
    """μ and log σ²: channels sorted over the clips and weighed by rank, and two attention poolings."""

    def __init__(self, clips: int, width: int) -> None:
        super().__init__()
        self.ranks = RankWeights(clips)
        self.mean_pool, self.variance_pool = TanhPooling(width), TanhPooling(width)
        self.mean_change = nn.Linear(width, width)
        self.mean_norm = nn.LayerNorm(width)
        self.variance_pooled, self.variance_sorted = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, gist_VCD: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast(gist_VCD.device.type, enabled=False):
            weights_C = self.ranks()
            ranked_VD = torch.einsum("c,vcd->vd", weights_C, gist_VCD.sort(1, descending=True).values)
            change_VD = self.mean_change(self.mean_pool(gist_VCD)).sigmoid()
            start_VD = F.normalize(self.mean_norm(ranked_VD + change_VD), dim=-1)
            log_variance_VD = self.variance_pooled(self.variance_pool(gist_VCD))
            return start_VD, log_variance_VD + self.variance_sorted(ranked_VD)


class TanhPooling(nn.Module):
    """softmax over positions of w₂ tanh(w₁ x), then the weighted sum."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.w1 = nn.Linear(width, width // 2, bias=False)
        self.w2 = nn.Linear(width // 2, 1, bias=False)

    def forward(self, input_VCD: Tensor) -> Tensor:
        weights_VC = self.w2(torch.tanh(self.w1(input_VCD))).squeeze(-1).softmax(-1)
        return torch.einsum("vc,vcd->vd", weights_VC, input_VCD)


class RankWeights(nn.Module):
    """How much each rank counts: a GRU in both directions over sine positions, then a softmax.

    Both directions are computed together, step by step: there is one sequence, and it is short.
    """

    place_LI: Tensor

    def __init__(self, ranks: int) -> None:
        super().__init__()
        self.register_buffer("place_LI", sine_table(ranks, RANK_WIDTH), persistent=False)
        self.ih = BlockLinear(2, RANK_WIDTH, 3 * RANK_WIDTH)
        self.hh = BlockLinear(2, RANK_WIDTH, 3 * RANK_WIDTH)
        self.weigh = nn.Linear(RANK_WIDTH, 1, bias=False)

    def forward(self) -> Tensor:
        place_LI = self.place_LI
        input_GLO = self.ih.biased(self.ih(torch.stack([place_LI, place_LI.flip(0)])))
        hidden_GI = place_LI.new_zeros(2, RANK_WIDTH)
        states = []
        for rank in range(len(place_LI)):
            reset_i, update_i, new_i = input_GLO[:, rank].chunk(3, -1)
            reset_h, update_h, new_h = self.hh.biased(self.hh(hidden_GI.unsqueeze(1))).squeeze(1).chunk(3, -1)
            update = (update_i + update_h).sigmoid()
            new = torch.tanh(new_i + (reset_i + reset_h).sigmoid() * new_h)
            hidden_GI = (1 - update) * new + update * hidden_GI
            states.append(hidden_GI)
        forward_LI, backward_LI = torch.stack(states, 1)
        mean_LI = (forward_LI + backward_LI.flip(0)) / 2
        return (self.weigh(mean_LI).squeeze(-1) / RANK_TEMPERATURE).softmax(-1)


class Denoiser(nn.Module):
    """The noise in a vector, given the step and the condition: two residual blocks."""

    time_TD: Tensor

    def __init__(self, width: int, dropout_rate: float) -> None:
        super().__init__()
        self.register_buffer("time_TD", sine_table(STEPS, width))  # fixed; a published model brings its own
        self.time_in, self.time_out = nn.Linear(width, width), nn.Linear(width, width)
        self.condition_norm, self.condition_in = nn.LayerNorm(width), nn.Linear(width, width)
        self.layers = nn.ModuleList(DenoisingLayer(width, dropout_rate) for _ in range(LAYERS))
        self.output = nn.Linear(width, width)

    def embed(self, condition_VRD: Tensor) -> Tensor:
        """What all steps share."""
        embedded: Tensor = self.condition_in(F.relu(self.condition_norm(condition_VRD)))
        return embedded

    def forward(self, state_VRD: Tensor, step: int, condition_VRD: Tensor) -> Tensor:
        time_D = self.time_out(F.silu(self.time_in(self.time_TD[step])))
        hidden_VRD = state_VRD
        for layer in self.layers:
            hidden_VRD = layer(hidden_VRD, time_D, condition_VRD)
        noise_VRD: Tensor = self.output(hidden_VRD + state_VRD)
        return noise_VRD


class DenoisingLayer(nn.Module):
    def __init__(self, width: int, dropout_rate: float) -> None:
        super().__init__()
        self.dropout_rate = dropout_rate
        self.input_norm, self.middle_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.widen, self.narrow = nn.Linear(width, width), nn.Linear(width, width)
        self.time, self.condition = nn.Linear(width, width), nn.Linear(width, width)
        self.shortcut = nn.Linear(width, width)

    def forward(self, input_VRD: Tensor, time_D: Tensor, condition_VRD: Tensor) -> Tensor:
        hidden_VRD = self.widen(F.silu(self.input_norm(input_VRD)))
        hidden_VRD = hidden_VRD + self.time(F.silu(time_D)) + self.condition(F.silu(condition_VRD))
        hidden_VRD = dropout(F.silu(self.middle_norm(hidden_VRD)), self.dropout_rate, self.training)
        output_VRD: Tensor = self.narrow(hidden_VRD) + self.shortcut(input_VRD)
        return output_VRD


@dataclass(frozen=True)
class Schedule:
    """The noise of each step, as plain numbers."""

    beta: list[float]
    kept: list[float]  # ᾱ: the share of the signal's variance that is left after a step
    kept_before: list[float]

    def mixed(self, signal: Tensor, noise: Tensor, step: int) -> Tensor:
        """√ᾱ x + √(1-ᾱ) ε."""
        return math.sqrt(self.kept[step]) * signal + math.sqrt(1 - self.kept[step]) * noise

    def back(self, state: Tensor, predicted: Tensor, noise: Tensor, step: int) -> Tensor:
        """One step of DDPM towards the signal; the last one adds no noise."""
        beta, kept, before = self.beta[step], self.kept[step], self.kept_before[step]
        signal = (math.sqrt(1 / kept) * state - math.sqrt(1 / kept - 1) * predicted).clamp(-1, 1)
        mean = beta * math.sqrt(before) / (1 - kept) * signal
        mean = mean + (1 - before) * math.sqrt(1 - beta) / (1 - kept) * state
        return mean if step == 0 else mean + math.sqrt(beta * (1 - before) / (1 - kept)) * noise


def cosine_schedule(steps: int, offset: float = 0.008) -> Schedule:
    """β of each step so that ᾱ follows cos²."""
    left = [math.cos((step / steps + offset) / (1 + offset) * math.pi / 2) ** 2 for step in range(steps + 1)]
    beta = [min(max(1 - after / before, 0.0), LARGEST_BETA) for before, after in zip(left, left[1:])]  # noqa: B905, RUF007
    kept = [math.prod(1 - each for each in beta[: step + 1]) for step in range(steps)]
    return Schedule(beta, kept, [1.0, *kept[:-1]])


def sine_table(length: int, width: int) -> Tensor:
    """sin and cos of the position at falling frequencies, side by side: L × D."""
    place_L1 = torch.arange(length, dtype=torch.float64).unsqueeze(1)
    rate = torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10000) / width))
    return (
        torch.stack([torch.sin(place_L1 * rate), torch.cos(place_L1 * rate)], -1)
        .flatten(1)[:, :width]
        .float()
    )
