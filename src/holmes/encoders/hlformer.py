"""HLFormer (Li et al., ICCV 2025), a baseline: four blocks in flat space beside four on the hyperboloid.

The mixture is ours. In training a video and its queries also get places on a hyperboloid of learned
curvature, where the queries should lie within the video's cone (`holmes/losses/entailment.py`).

V videos, Q queries, N sequences, L positions, F frames, C clips, D width, G blocks
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from holmes.config.schema import ModelConfig
from holmes.encoders.blocks import ParallelBlocks
from holmes.encoders.lorentz import LorentzAttention
from holmes.encoders.model import HolmesModel, initialise
from holmes.encoders.query import AttentionPooling
from holmes.encoders.video import VideoBranch
from holmes.records import QueryEmbedding, VideoEmbedding

MOST_LOG_CURVATURE = math.log(10)
LARGEST_ANGLE = math.asinh(2**15)  # of the exponential map: beyond it nothing is learnt from the length
TINY = 1e-8


class HybridBlocks(ParallelBlocks):
    """A flat and a Lorentz block for each Gaussian width, the flat ones first."""

    def __init__(
        self,
        widths: Sequence[float | None],
        length: int,
        width: int,
        points: int,
        heads: int,
        dropout_rate: float,
    ) -> None:
        super().__init__(widths, length, width, heads, dropout_rate, further=len(widths))
        self.lorentz = LorentzAttention(widths, length, width, points, heads, dropout_rate)

    def forward(self, input_NLD: Tensor, mask_NL: Tensor | None) -> Tensor:
        """N × L × D → G × N × L × D."""
        flat_GNLD, curved_GNLD = self.attend(input_NLD, mask_NL), self.lorentz(input_NLD, mask_NL)
        return self.refine(input_NLD, torch.cat([flat_GNLD, curved_GNLD.to(flat_GNLD.dtype)]))


class HybridBranch(VideoBranch):
    """A video branch with blocks of both kinds."""

    blocks: HybridBlocks

    def __init__(self, config: ModelConfig, length: int) -> None:
        super().__init__(config, length)
        self.blocks = HybridBlocks(
            config.gaussian_widths, length, config.width, config.lorentz_width, config.heads, config.dropout
        )


class HLFormer(HolmesModel):
    """29,911,484 parameters with TVR's features: 36,864 positions are never used, a curvature is fixed."""

    frame_branch: HybridBranch
    clip_branch: HybridBranch

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.frame_pool, self.clip_pool = AttentionPooling(config.width), AttentionPooling(config.width)
        for pool in (self.frame_pool, self.clip_pool):
            pool.apply(initialise)
        self.log_curvature = nn.Parameter(torch.zeros(()))
        self.log_query_scale = nn.Parameter(torch.tensor(-0.5 * math.log(config.width)))
        self.log_video_scale = nn.Parameter(torch.tensor(-0.5 * math.log(config.width)))

    def encode_videos(self, frames_VFD: Tensor, frame_lengths_V: Tensor, clips_VCD: Tensor) -> VideoEmbedding:
        video = super().encode_videos(frames_VFD, frame_lengths_V, clips_VCD)
        return replace(video, extra=self.video_points(video)) if self.training else video

    def encode_queries(self, tokens_QTD: Tensor, token_lengths_Q: Tensor) -> QueryEmbedding:
        query = super().encode_queries(tokens_QTD, token_lengths_Q)
        if not self.training:
            return query
        scale = self.log_query_scale.clamp(max=0).exp()
        point_QD = exponential_map(query.query_QD.float() * scale, self.curvature())
        return replace(query, extra={"point": point_QD})

    def video_points(self, video: VideoEmbedding) -> dict[str, Tensor]:
        """Where a video stands: the mean of its pooled frames and clips, on the hyperboloid."""
        # As released, all positions are pooled: a padded one is 0 and has the logit 0.
        frames_VFD = video.frames_VFD * video.frame_mask_VF.unsqueeze(-1)
        frame_VD = self.frame_pool(frames_VFD, torch.ones_like(video.frame_mask_VF))
        every_VC = torch.ones(video.clips_VCD.shape[:2], dtype=torch.bool, device=frame_VD.device)
        clip_VD = self.clip_pool(video.clips_VCD, every_VC)
        scale = self.log_video_scale.clamp(max=0).exp()
        curvature = self.curvature()
        pooled_VD = (frame_VD.float() + clip_VD.float()) / 2
        return {
            "pooled_frames": frame_VD,
            "pooled_clips": clip_VD,
            "point": exponential_map(pooled_VD * scale, curvature),
            "curvature": curvature.expand(len(frame_VD)),
        }

    def curvature(self) -> Tensor:
        """κ: the curvature of the space of queries and videos is -κ."""
        return self.log_curvature.clamp(-MOST_LOG_CURVATURE, MOST_LOG_CURVATURE).exp()

    @torch.no_grad()
    def keep_bounds(self) -> None:
        """Put learned scalars back that left their range, as the release does before every pass."""
        self.log_curvature.clamp_(-MOST_LOG_CURVATURE, MOST_LOG_CURVATURE)
        curved = [branch.blocks.lorentz.log_scale_G for branch in (self.frame_branch, self.clip_branch)]
        for scale in (self.log_query_scale, self.log_video_scale, *curved):
            scale.clamp_(max=0)

    def _video_branch(self, length: int) -> nn.Module:
        return HybridBranch(self.config, length)


def exponential_map(tangent: Tensor, curvature: Tensor) -> Tensor:
    """sinh(√κ|x|) x / (√κ|x|): the space part of the point that x leads to from the origin."""
    angle = curvature.sqrt() * tangent.norm(dim=-1, keepdim=True)
    return torch.sinh(angle.clamp(TINY, LARGEST_ANGLE)) * tangent / angle.clamp(min=TINY)
