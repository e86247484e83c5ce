"""The interface of a model for an index: vectors of videos and sentences, and an identity.

A video, or a part of a long one, becomes up to 128 frames and 32 clips, and a sentence a query.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from holmes.media.backbones import VisualBackbone
from holmes.records import QueryEmbedding

Rows = NDArray[np.float32]


class Embedder(Protocol):
    """A model behind an index."""

    width: int
    frame_weight: float
    clip_weight: float
    part_seconds: float  # seconds of a video that it sees well at once; longer ones are cut into parts
    device: str  # auto, cpu or cuda: where it and its encoders work
    # Whether similar vectors mean similar images; training brings all videos that match a sentence together.
    compares_images: bool

    @property
    def record(self) -> dict[str, Any]:
        """What an index stores about the model: how to load it again, and digests that identify it."""
        ...

    @property
    def calibration(self) -> Any:
        """The stored calibration of its confidence; None if it has none."""
        ...

    @property
    def visual(self) -> VisualBackbone:
        """The encoder its features come from."""
        ...

    @property
    def extractor(self) -> str | VisualBackbone:
        """The same for extraction: a name that worker processes load, or an object for this process."""
        ...

    @property
    def rate(self) -> float:
        """The sampling rate that suits it best."""
        ...

    def videos(
        self, features: Sequence[Rows], seconds: Sequence[float], parts: Sequence[Sequence[slice]]
    ) -> list[list[tuple[Rows, Rows]]]:
        """Frames and clips of each part of each video, given by its feature rows, length and parts."""
        ...

    def queries(self, sentences: Sequence[str]) -> QueryEmbedding: ...


def readable(embedder: Embedder, sentence: str) -> str:
    """The beginning of a sentence that a model reads; all of it if its text encoder sets no limit."""
    text = getattr(embedder, "text", None) or embedder.visual
    cut = getattr(text, "readable", None)
    return sentence if cut is None else str(cut(sentence))
