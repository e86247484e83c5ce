"""A joint image-text model behind an index: its frames and sentences as they are, without any training.

N raw rows, D width
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from holmes.data.pooling import overlapping_clips, unit_rows, video_frames
from holmes.index.embedder_protocol import Rows
from holmes.index.scenes import clips_in_scenes, find_scenes
from holmes.media.backbones import JointBackbone
from holmes.records import QueryEmbedding

# A joint model sees single frames, and a clip of a minute's video would be two seconds of them. Averaged over
# five they find more. In a long video clips stay inside scenes and are never cut short, and a little longer
# ones do.
CLIP_SECONDS = 5.0
FILM_CLIP_SECONDS = 6.0
# What one more scene costs, in seconds of frames that have nothing in common with theirs: see `find_scenes`.
SCENE_PRICE = 2.0
LONGEST_SCENE = 32.0  # seconds; a longer one counts as several
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

    def videos(
        self, features: Sequence[Rows], seconds: Sequence[float], parts: Sequence[Sequence[slice]]
    ) -> list[list[tuple[Rows, Rows]]]:
        return [
            self._parts(rows_ND, len(rows_ND) / max(length, 1e-3), own)
            for rows_ND, length, own in zip(features, seconds, parts, strict=True)
        ]

    def _parts(self, rows_ND: Rows, rate: float, parts: Sequence[slice]) -> list[tuple[Rows, Rows]]:
        if len(parts) == 1:  # mostly about one thing; to keep its scenes apart finds less
            return [(video_frames(rows_ND), overlapping_clips(rows_ND, CLIP_SECONDS * rate))]
        edges = find_scenes(unit_rows(rows_ND), SCENE_PRICE * rate, max(1, round(LONGEST_SCENE * rate)))
        clips = partial(clips_in_scenes, rows_ND, least=FILM_CLIP_SECONDS * rate, edges=edges)
        return [(video_frames(rows_ND[part]), clips(part)) for part in parts]

    def queries(self, sentences: Sequence[str]) -> QueryEmbedding:
        return QueryEmbedding(torch.from_numpy(self.backbone.sentences(sentences)))
