"""A joint image-text model behind an index: its frames and sentences as they are, without any training.

N raw rows, D width
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from holmes.data.pooling import overlapping_clips, video_frames
from holmes.index.embedder_protocol import Rows
from holmes.media.backbones import JointBackbone
from holmes.records import QueryEmbedding

# A joint model sees single frames, and a clip of a minute's video would be two seconds of them. Averaged over
# five they find more.
CLIP_SECONDS = 5.0
PART_SECONDS = 64.0  # the longest part of a video; its 32 clips then lie two seconds apart


class ZeroShot:
    """Joint image-text embeddings as they are: no captions needed, nothing trained."""

    shows_looks = True
    frame_weight, clip_weight = 0.4, 0.6
    part_seconds = PART_SECONDS

    def __init__(self, backbone: JointBackbone, device: str = "auto") -> None:
        self.backbone = self.visual = backbone
        self.device = device
        self.width = backbone.width

    @property
    def record(self) -> dict[str, Any]:
        return {
            "kind": "zero-shot",
            "name": self.backbone.name,
            "digest": self.backbone.digest,
            "clip_seconds": CLIP_SECONDS,
            "part_seconds": self.part_seconds,
        }

    @property
    def rate(self) -> float:
        return self.backbone.rate

    @property
    def calibration(self) -> Any:
        return getattr(self.backbone, "calibration", None)

    @property
    def words(self) -> tuple[str, ...]:
        return ()

    def videos(self, features: Sequence[Rows], seconds: Sequence[float]) -> list[tuple[Rows, Rows]]:
        return [
            (
                video_frames(rows_ND),
                overlapping_clips(rows_ND, CLIP_SECONDS * len(rows_ND) / max(length, 1e-3)),
            )
            for rows_ND, length in zip(features, seconds, strict=True)
        ]

    def queries(self, sentences: Sequence[str]) -> QueryEmbedding:
        return QueryEmbedding(torch.from_numpy(self.backbone.sentences(sentences)))
