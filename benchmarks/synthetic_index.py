"""A large index of synthetic videos, written quickly, and a model whose sentences are random directions.

Each video takes its rows from a pool of random unit vectors. The codes of the pool are made once, with one
scale, so that a video costs hardly more than writing it.

N rows of the pool, S parts, P rows of a part, D width
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holmes.index.storage.codes import LARGEST, SLACK, rotation
from holmes.index.storage.manifest import Manifest
from holmes.index.storage.segments import StoredVideo
from holmes.index.storage.writer import IndexWriter, create_index
from holmes.records import QueryEmbedding

POOL = 2**16  # rows
CHUNK = 4096  # videos added at once


def build_index(path: Path, videos: int, frames: int, clips: int, width: int) -> None:
    create_index(path, Manifest({"name": "synthetic"}, {}, width, clips))
    with IndexWriter(path) as writer:
        for chunk in synthetic_videos(videos, frames, clips, width):
            writer.add(chunk)


def synthetic_videos(
    videos: int, frames: int, clips: int, width: int, seed: int = 0
) -> Iterator[list[StoredVideo]]:
    """Videos in lists that fill a segment; `frames` is a multiple of 16."""
    rng = np.random.default_rng(seed)
    rows_ND = rng.standard_normal((POOL, width), np.float32)
    rows_ND = (rows_ND / np.linalg.norm(rows_ND, axis=1, keepdims=True)).astype(np.float16)
    rotated_ND = rows_ND.astype(np.float32) @ rotation(width).T.astype(np.float32)
    scale = np.abs(rotated_ND).max() / np.float32(LARGEST)
    codes_ND = np.rint(rotated_ND / scale)
    error_N = np.linalg.norm(rotated_ND - scale * codes_ND, axis=1) + np.float32(SLACK)
    codes_ND = codes_ND.astype(np.int8)
    edges = np.arange(frames + 1, dtype=np.float32)
    spans_F2 = np.stack([edges[:-1], edges[1:]], axis=1)
    spans_SP2 = np.concatenate([spans_F2, np.resize(spans_F2, (clips, 2))])[None]
    for first in range(0, videos, CHUNK):
        chunk = []
        for number in range(first, min(first + CHUNK, videos)):
            rows_P = rng.integers(POOL, size=frames + clips)
            error_P = error_N[rows_P]
            numbers = np.array([[scale, error_P[:-clips].max(), error_P[-clips:].max()]], np.float32)
            name = f"/videos/{number:07d}.mp4"
            rows_SPD, codes_SPD = rows_ND[rows_P][None], codes_ND[rows_P][None]
            chunk.append(
                StoredVideo(name, float(frames), frames, rows_SPD, codes_SPD, numbers, spans_SP2, number)
            )
        yield chunk


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
