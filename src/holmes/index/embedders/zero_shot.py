"""A joint image-text model as the model of an index, without training.

N raw rows, D width
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from holmes.data.pooling import overlapping_clips, unit_rows, video_frames
from holmes.index.embedders.protocol import Rows
from holmes.index.embedders.scenes import clips_in_scenes, find_scenes
from holmes.media.backbones import JointBackbone
from holmes.records import QueryEmbedding

# A joint model sees single frames, and a clip of a minute's video would be two seconds of them. Averaged over
# five they find more. In a long video a clip stays inside its scene and is moved rather than shortened, and
# there six seconds find more than five.
CLIP_SECONDS = 5.0
FILM_CLIP_SECONDS = 6.0
# The price of one more scene, for `find_scenes`: the spread of two seconds of frames with nothing in common.
SCENE_PRICE = 2.0
LONGEST_SCENE = 128.0  # seconds; a longer scene has to be cut, wherever that costs least
SCENE_RATE = 2.0  # frames per second that scenes are found with; more take much memory
PART_SECONDS = 64.0  # the longest part of a video; its 32 clips then lie two seconds apart


class ZeroShot:
    """Joint image-text embeddings as they are: no captions needed, nothing trained."""

    compares_images = True
    frame_weight, clip_weight = 0.4, 0.6
    part_seconds = PART_SECONDS

    def __init__(self, backbone: JointBackbone, device: str = "auto", by_name: bool = False) -> None:
        """`by_name` says that other processes can load the same encoder by its name."""
        self.backbone = self.visual = backbone
        self.extractor = backbone.name if by_name else backbone
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

    def videos(
        self, features: Sequence[Rows], seconds: Sequence[float], parts: Sequence[Sequence[slice]]
    ) -> list[list[tuple[Rows, Rows]]]:
        return [
            self._parts(rows_ND, len(rows_ND) / max(length, 1e-3), own)
            for rows_ND, length, own in zip(features, seconds, parts, strict=True)
        ]

    def _parts(self, rows_ND: Rows, rate: float, parts: Sequence[slice]) -> list[tuple[Rows, Rows]]:
        if len(parts) == 1:  # short videos mostly show one thing, and are found less often scene by scene
            return [(video_frames(rows_ND), overlapping_clips(rows_ND, CLIP_SECONDS * rate))]
        clips = partial(
            clips_in_scenes, rows_ND, least=FILM_CLIP_SECONDS * rate, edges=scene_edges(rows_ND, rate)
        )
        return [(video_frames(rows_ND[part]), clips(part)) for part in parts]

    def queries(self, sentences: Sequence[str]) -> QueryEmbedding:
        forms = getattr(self.backbone, "neutral_forms", None)
        if forms is None or not len(sentences):
            return QueryEmbedding(torch.from_numpy(self.backbone.sentences(sentences)))
        worded = [forms(sentence) for sentence in sentences]
        rows = self.backbone.sentences([form for each in worded for form in each])
        mean_QD = rows.reshape(len(worded), -1, rows.shape[1]).mean(axis=1)
        return QueryEmbedding(torch.from_numpy(unit_rows(mean_QD)))


def scene_edges(rows_ND: Rows, rate: float) -> NDArray[np.int64]:
    every = max(1, round(rate / SCENE_RATE))
    rate /= every
    longest = max(1, round(LONGEST_SCENE * rate))
    edges = every * find_scenes(unit_rows(rows_ND[::every]), SCENE_PRICE * rate, longest)
    edges[-1] = len(rows_ND)
    return edges
