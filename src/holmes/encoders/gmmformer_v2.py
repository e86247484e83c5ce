"""GMMFormerV2 (Wang et al., 2024), a baseline: eight Gaussian blocks, mixed by a learned token.

Our mixture asks the blocks with the mean of their outputs; here one learned vector asks, the same for both
branches and for every video. Its matching loss is in `holmes/losses/matching.py`.

V videos, F frames, C clips, D width
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from holmes.config.schema import ModelConfig
from holmes.encoders.model import HolmesModel
from holmes.encoders.padding import length_mask
from holmes.records import VideoEmbedding


class GMMFormerV2(HolmesModel):
    """32,273,440 parameters with TVR's features, of which 36,864 are clip positions that are never used."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.mixing_token = nn.Parameter(torch.randn(config.width))

    def encode_videos(self, frames_VFD: Tensor, frame_lengths_V: Tensor, clips_VCD: Tensor) -> VideoEmbedding:
        mask_VF = length_mask(frame_lengths_V, self.config.frames)
        token_VD = self.mixing_token.expand(len(frames_VFD), -1)
        return VideoEmbedding(
            frames_VFD=self.frame_branch(frames_VFD, mask_VF, token_VD),
            frame_mask_VF=mask_VF,
            clips_VCD=self.clip_branch(clips_VCD, None, token_VD),
        )
