"""DreamPRVR (CVPR 2026), a baseline: our blocks and mixture, with registers beside the frames and clips.

The registers come from the clips by diffusion (`registers.py`). They are attended to like further frames or
clips, and have no output of their own.

V videos, M queries of one video, N sequences, L positions, F frames, C clips, R registers, D width, G blocks
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holmes.config.schema import ModelConfig
from holmes.encoders.blocks import ParallelBlocks
from holmes.encoders.model import HolmesModel, initialise
from holmes.encoders.padding import length_mask
from holmes.encoders.projection import InputProjection
from holmes.encoders.registers import RegisterOrigin, Registers, mean_of_queries, perturbed_text
from holmes.encoders.video import VideoBranch
from holmes.records import VideoEmbedding


class RegisterBlocks(ParallelBlocks):
    """Parallel blocks over a sequence and registers behind it; the windows cover the sequence only."""

    def __init__(
        self,
        widths: Sequence[float | None],
        length: int,
        width: int,
        registers: int,
        heads: int,
        dropout_rate: float,
    ) -> None:
        super().__init__(widths, length, width, heads, dropout_rate)
        self.register_input = InputProjection(width, width, dropout_rate)
        self.gaussian_GLL = F.pad(self.gaussian_GLL, (0, registers, 0, registers), value=1.0)

    def forward(  # type: ignore[override]
        self, input_NLD: Tensor, mask_NL: Tensor | None, registers_NRD: Tensor
    ) -> Tensor:
        """N × L × D and N × R × D → G × N × L × D."""
        length = input_NLD.shape[1]
        both_NLD = torch.cat([input_NLD, self.register_input(registers_NRD).to(input_NLD.dtype)], 1)
        both_mask_NL = None if mask_NL is None else F.pad(mask_NL, (0, registers_NRD.shape[1]), value=True)
        context_GNLD = self.attend(both_NLD, both_mask_NL)[:, :, :length]
        return self.refine(input_NLD, context_GNLD)


class RegisterBranch(VideoBranch):
    """A video branch in two steps: the registers are made from the clips after the first."""

    def __init__(self, config: ModelConfig, length: int) -> None:
        super().__init__(config, length)
        self.blocks = RegisterBlocks(
            config.gaussian_widths, length, config.width, config.registers, config.heads, config.dropout
        )

    def placed(self, features_VLI: Tensor) -> Tensor:
        placed_VLD: Tensor = self.place(self.project(features_VLI))
        return placed_VLD

    def encode(self, placed_VLD: Tensor, mask_VL: Tensor | None, registers_VRD: Tensor) -> Tensor:
        mixed_VLD: Tensor = self.mix(self.blocks(placed_VLD, mask_VL, registers_VRD), mask_VL)
        return mixed_VLD


class DreamPRVR(HolmesModel):
    """37,622,976 parameters with TVR's features: 36,864 positions are never used, 3,840 times are fixed."""

    frame_branch: RegisterBranch
    clip_branch: RegisterBranch

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.registers = Registers(config.registers, config.clips, config.width, config.heads, config.dropout)
        self.registers.apply(initialise)

    def encode_videos(self, frames_VFD: Tensor, frame_lengths_V: Tensor, clips_VCD: Tensor) -> VideoEmbedding:
        mask_VF = length_mask(frame_lengths_V, self.config.frames)
        placed_VCD = self.clip_branch.placed(clips_VCD)
        origin = self.registers.origin(placed_VCD)
        registers_VRD = self.registers(origin)
        frames_VFD = self.frame_branch.encode(self.frame_branch.placed(frames_VFD), mask_VF, registers_VRD)
        clips_VCD = self.clip_branch.encode(placed_VCD, None, registers_VRD)
        extra = {
            "start_VD": origin.start_VD,
            "log_variance_VD": origin.log_variance_VD,
            "condition_VRD": origin.condition_VRD,
        }
        return VideoEmbedding(frames_VFD, mask_VF, clips_VCD, extra if self.training else {})

    def meet_queries(self, video: VideoEmbedding, query_VMD: Tensor, mask_VM: Tensor) -> VideoEmbedding:
        """The two losses of the registers, video by video: μ against noise, and the noise that is predicted.

        The text for the diffusion is the mean of a video's queries, perturbed.
        """
        origin = RegisterOrigin(**video.extra)
        mean_VD, log_variance_VD = origin.start_VD, origin.log_variance_VD
        kl_V = -0.5 * (1 + log_variance_VD - mean_VD.square() - log_variance_VD.exp()).sum(-1)
        text_VD = mean_of_queries(query_VMD, mask_VM)
        text_VRD = perturbed_text(text_VD, *self.draw(origin.condition_VRD))
        predicted_TVRD = self.registers.predicted_noise(text_VRD, origin)
        error_V = (predicted_TVRD - mean_VD.unsqueeze(1)).square().mean((0, 2, 3))
        return replace(video, extra={"register_kl": kl_V, "denoising": error_V})

    def draw(self, like_VRD: Tensor) -> tuple[Tensor, Tensor]:
        """The random numbers behind a perturbed text."""
        return torch.randn_like(like_VRD), torch.randn_like(like_VRD)

    def _video_branch(self, length: int) -> nn.Module:
        return RegisterBranch(self.config, length)
