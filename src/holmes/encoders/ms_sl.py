"""MS-SL (Dong et al., ACM MM 2022), a baseline: clips of all lengths, and frames seen through the best one.

Every run of neighbouring clips is a candidate, 528 of 32. Each candidate gathers the frames that resemble it
into one vector; a query is scored by its best candidate and by the vector that this one gathered.

V videos, F frames, C clips, W windows of clips, D width
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from holmes.config.schema import ModelConfig
from holmes.encoders.model import HolmesModel, initialise
from holmes.encoders.padding import length_mask
from holmes.encoders.slim_blocks import SlimBranch, SlimTokenEncoder
from holmes.records import VideoEmbedding
from holmes.similarity import window_means


class MSSL(HolmesModel):
    """4,852,992 parameters with TVR's features, of which 36,864 are clip positions that are never used."""

    guided = True

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.key = nn.Linear(config.width, config.width, bias=False)
        self.value = nn.Linear(config.width, config.width, bias=False)
        for layer in (self.key, self.value):
            initialise(layer)

    def encode_videos(self, frames_VFD: Tensor, frame_lengths_V: Tensor, clips_VCD: Tensor) -> VideoEmbedding:
        """Windows as clips, the first C of them the clips themselves; for each window its gathered frames."""
        mask_VF = length_mask(frame_lengths_V, self.config.frames)
        windows_VWD = window_means(self.clip_branch(clips_VCD).float())
        frames_VFD = self.frame_branch(frames_VFD, mask_VF)
        logits_VWF = (windows_VWD @ self.key(frames_VFD).float().transpose(1, 2)).float()
        # A padded video has no frame at all: it gathers nothing instead of NaN.
        logits_VWF = logits_VWF.masked_fill(~mask_VF.unsqueeze(1), torch.finfo(torch.float32).min)
        gathered_VWD = logits_VWF.softmax(-1) @ self.value(frames_VFD).float()
        everyone_VW = torch.ones_like(gathered_VWD[..., 0], dtype=torch.bool)
        return VideoEmbedding(gathered_VWD, everyone_VW, windows_VWD)

    def _token_encoder(self) -> nn.Module:
        config = self.config
        return SlimTokenEncoder(config.text_width, config.tokens, config.width, config.heads, config.dropout)

    def _video_branch(self, length: int) -> nn.Module:
        config = self.config
        return SlimBranch(
            config.video_width, length, config.width, config.heads, config.gaussian_widths, config.dropout, 1
        )
