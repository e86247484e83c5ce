"""A model for benchmarks of search: every sentence is a random direction of its own."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from holmes.records import QueryEmbedding


class Directions:
    """Stands in for an embedder whose sentences have been encoded already."""

    frame_weight, clip_weight, calibration = 0.4, 0.6, None
    compares_images = True
    record: dict[str, Any] = {"name": "synthetic", "digest": ""}  # noqa: RUF012

    def __init__(self, width: int) -> None:
        self.width = width

    def queries(self, sentences: Sequence[str]) -> QueryEmbedding:
        seeds = [zlib.crc32(sentence.encode()) for sentence in sentences]
        rows_QD = np.stack([np.random.default_rng(seed).normal(size=self.width) for seed in seeds])
        return QueryEmbedding(torch.from_numpy(rows_QD.astype(np.float32)))
