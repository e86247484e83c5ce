"""GMMFormer (Wang et al., AAAI 2024), a baseline: two layers of four Gaussian blocks per branch, averaged.

The frame branch is pooled to one vector for the whole video; the clip branch scores its best clip. As in the
release, the Gaussian windows over the frames are relative to the longest video of the batch: a short video's
vector depends on the videos it is encoded with, where all of them have fewer frames than the model.

V videos, F frames, C clips, D width
"""

from __future__ import annotations

from torch import Tensor, nn

from holmes.config.schema import ModelConfig
from holmes.encoders.gaussian import gaussian_windows
from holmes.encoders.model import HolmesModel, initialise
from holmes.encoders.padding import length_mask
from holmes.encoders.query import AttentionPooling
from holmes.encoders.slim_blocks import SlimBranch, SlimTokenEncoder
from holmes.records import VideoEmbedding

LAYERS = 2


class GMMFormer(HolmesModel):
    """12,848,256 parameters with TVR's features, of which 36,864 are clip positions that are never used."""

    videos_at_once = 100  # as many as its release evaluates together

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.frame_pool = AttentionPooling(config.width)
        self.frame_pool.apply(initialise)

    def encode_videos(self, frames_VFD: Tensor, frame_lengths_V: Tensor, clips_VCD: Tensor) -> VideoEmbedding:
        """The frame branch has a single position: the whole video."""
        mask_VF = length_mask(frame_lengths_V, self.config.frames)
        longest = frame_lengths_V.max()
        window_GLL = gaussian_windows(self.config.gaussian_widths, longest, self.config.frames)
        whole_VD = self.frame_pool(self.frame_branch(frames_VFD, mask_VF, window_GLL), mask_VF)
        return VideoEmbedding(
            whole_VD.unsqueeze(1), mask_VF.any(1, keepdim=True), self.clip_branch(clips_VCD)
        )

    def _token_encoder(self) -> nn.Module:
        config = self.config
        return SlimTokenEncoder(config.text_width, config.tokens, config.width, config.heads, config.dropout)

    def _video_branch(self, length: int) -> nn.Module:
        config = self.config
        return SlimBranch(
            config.video_width,
            length,
            config.width,
            config.heads,
            config.gaussian_widths,
            config.dropout,
            LAYERS,
        )
