"""A joint image-text model behind an index: its frames and sentences as they are, without any training.

N raw rows, D width
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from holmes.data.pooling import find_cuts, overlapping_clips, video_frames
from holmes.index.embedder_protocol import Rows
from holmes.media.backbones import JointBackbone
from holmes.records import QueryEmbedding

# A joint model sees single frames, and a clip of a minute's video would be two seconds of them. Averaged over
# five they find more.
CLIP_SECONDS = 5.0
# A long video goes from one thing to another, and what is averaged across the cut is neither. There is a cut
# where the means of some seconds before and after have a cosine below this. Short ones are mostly about one
# thing, and lose by it.
CUT_COSINE = 0.7
CUT_SECONDS = {CUT_COSINE: 5.0, 0.3: 2.0}  # by the cosine; .3 is that of indexes begun by an earlier version
PART_SECONDS = 64.0  # the longest part of a video; its 32 clips then lie two seconds apart


class ZeroShot:
    """Joint image-text embeddings as they are: no captions needed, nothing trained."""

    shows_looks = True
    frame_weight, clip_weight = 0.4, 0.6
    part_seconds = PART_SECONDS

    def __init__(
        self, backbone: JointBackbone, device: str = "auto", cut_cosine: float | None = CUT_COSINE
    ) -> None:
        """`cut_cosine` is None for an index that was begun before cuts were looked for."""
        self.backbone = self.visual = backbone
        self.device = device
        self.width, self.cut_cosine = backbone.width, cut_cosine

    @property
    def record(self) -> dict[str, Any]:
        return {
            "kind": "zero-shot",
            "name": self.backbone.name,
            "digest": self.backbone.digest,
            "clip_seconds": CLIP_SECONDS,
            "part_seconds": self.part_seconds,
        } | ({} if self.cut_cosine is None else {"cut_cosine": self.cut_cosine})

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
        self, features: Sequence[Rows], seconds: Sequence[float], of_longer: Sequence[bool]
    ) -> list[tuple[Rows, Rows]]:
        return [
            (video_frames(rows_ND), self._clips(rows_ND, len(rows_ND) / max(length, 1e-3), longer))
            for rows_ND, length, longer in zip(features, seconds, of_longer, strict=True)
        ]

    def _clips(self, rows_ND: Rows, rate: float, of_longer: bool) -> Rows:
        cuts = None
        if self.cut_cosine is not None and of_longer:
            cuts = find_cuts(rows_ND, max(1, round(CUT_SECONDS[self.cut_cosine] * rate)), self.cut_cosine)
        return overlapping_clips(rows_ND, CLIP_SECONDS * rate, cuts)

    def queries(self, sentences: Sequence[str]) -> QueryEmbedding:
        return QueryEmbedding(torch.from_numpy(self.backbone.sentences(sentences)))
