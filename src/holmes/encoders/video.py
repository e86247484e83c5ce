"""One branch of the video encoder: projection, positions, Gaussian blocks, mixture.

V videos, L positions (frames or clips), I input width, D width
"""

from __future__ import annotations

from torch import Tensor, nn

from holmes.config.schema import ModelConfig
from holmes.encoders.blocks import ParallelBlocks
from holmes.encoders.mixture import BlockMixture
from holmes.encoders.projection import InputProjection, LearnedPositions


class VideoBranch(nn.Module):
    """Frames and clips each pass through one of these."""

    def __init__(self, config: ModelConfig, length: int) -> None:
        super().__init__()
        width, heads, dropout = config.width, config.heads, config.dropout
        self.project = InputProjection(config.video_width, width, dropout)
        self.place = LearnedPositions(length, width, dropout)
        self.blocks = ParallelBlocks(config.gaussian_widths, length, width, heads, dropout)
        self.mix = BlockMixture(length, width, heads, dropout, config.mixing_temperature)

    def forward(
        self, features_VLI: Tensor, mask_VL: Tensor | None = None, token_VD: Tensor | None = None
    ) -> Tensor:
        """V × L × I → V × L × D. `token_VD` asks the blocks in place of their mean."""
        placed_VLD = self.place(self.project(features_VLI))
        return self.mix(self.blocks(placed_VLD, mask_VL), mask_VL, token_VD)
