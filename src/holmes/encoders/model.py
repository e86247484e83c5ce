"""The model: a query encoder and two video branches (section 3.1).

Q queries, T tokens, V videos, F frames, C clips, D width
"""

from __future__ import annotations

from importlib.util import find_spec

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holmes.config.schema import ModelConfig
from holmes.encoders.fused import at_once
from holmes.encoders.padding import length_mask
from holmes.encoders.projection import LearnedPositions
from holmes.encoders.query import AttentionPooling, TokenEncoder, TokenWeights
from holmes.encoders.video import VideoBranch
from holmes.records import QueryEmbedding, VideoEmbedding


class HolmesModel(nn.Module):
    """Single query: one pooled vector meets frames and clips. Dual query: frames meet weighted tokens."""

    guided = False  # whether the frame branch is scored at the clip branch's best position
    videos_at_once: int | None = None  # in evaluation, where the videos of a batch depend on each other

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.query_places = LearnedPositions(config.tokens, config.width, config.dropout)
        self.query_encoder = self._token_encoder()
        self.pool = AttentionPooling(config.width)
        self.frame_branch = self._video_branch(config.frames)
        self.clip_branch = self._video_branch(config.clips)
        self.frame_query_encoder = self._token_encoder() if config.dual_query else None
        self.token_weights = TokenWeights(config.width) if config.dual_query else None
        self.apply(initialise)

    def encode_videos(self, frames_VFD: Tensor, frame_lengths_V: Tensor, clips_VCD: Tensor) -> VideoEmbedding:
        """Features of videos, frames padded to the model's length, into the common space."""
        frame_mask_VF = length_mask(frame_lengths_V, self.config.frames)
        frames_VFD, clips_VCD = at_once(
            lambda: self.frame_branch(frames_VFD, frame_mask_VF), lambda: self.clip_branch(clips_VCD)
        )
        return VideoEmbedding(frames_VFD=frames_VFD, frame_mask_VF=frame_mask_VF, clips_VCD=clips_VCD)

    def encode_queries(self, tokens_QTD: Tensor, token_lengths_Q: Tensor) -> QueryEmbedding:
        """Token features of sentences into the common space."""
        mask_QT = length_mask(token_lengths_Q, tokens_QTD.shape[1])
        query_QD = self.pool(self.query_encoder(tokens_QTD, mask_QT, self.query_places), mask_QT)
        if self.frame_query_encoder is None or self.token_weights is None:
            return QueryEmbedding(query_QD)
        frame_tokens_QTD = self.frame_query_encoder(tokens_QTD, mask_QT, self.query_places)
        return QueryEmbedding(
            query_QD,
            frame_tokens_QTD,
            self.token_weights(F.normalize(frame_tokens_QTD, dim=-1), mask_QT),
            self.token_weights(frame_tokens_QTD, mask_QT),
        )

    def meet_queries(self, video: VideoEmbedding, query_VMD: Tensor, mask_VM: Tensor) -> VideoEmbedding:
        """In training, what the encoder makes of videos and their own queries, for a loss of its own."""
        return video

    def keep_bounds(self) -> None:
        """Called before every training step: for learned numbers that have a range."""

    def _token_encoder(self) -> nn.Module:
        config = self.config
        return TokenEncoder(config.text_width, config.tokens, config.width, config.heads, config.dropout)

    def _video_branch(self, length: int) -> nn.Module:
        return VideoBranch(self.config, length)


def has_kernels(model: nn.Module, device: torch.device) -> bool:
    """Whether the fused kernels can run. Of the encoders, they were measured with this one alone."""
    return type(model) is HolmesModel and device.type == "cuda" and find_spec("triton") is not None


def initialise(module: nn.Module) -> None:
    """Linear and Embedding N(0, .02), zero biases; block layers do the same where they are made."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
