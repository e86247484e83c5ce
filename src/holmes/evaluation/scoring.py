"""Encode a split and score every query against every video of it.

Q queries, V videos, F frames, C clips, D width
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from holmes.data.bank import FeatureBank
from holmes.data.store import Split
from holmes.encoders.model import HolmesModel
from holmes.parallel import ALONE, World, gather_rows
from holmes.records import QueryEmbedding, Scores, VideoEmbedding
from holmes.similarity import branch_scores

VIDEO_CHUNK, QUERY_CHUNK = 128, 512  # encoded at once
SCORE_ELEMENTS = 1 << 28  # largest table of query-position similarities held at once


@dataclass(frozen=True)
class Encoded:
    """A split in the common space: unit vectors, so that dot products are cosines.

    With several processes, all videos but only this process's queries, the last share filled up.
    """

    videos: VideoEmbedding
    queries: QueryEmbedding
    owner_Q: Tensor


def encoder_precision(device: torch.device) -> AbstractContextManager[Any]:
    """bf16 for the encoders on a GPU, float32 elsewhere."""
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")


@torch.inference_mode()
def encode_split(model: HolmesModel, bank: FeatureBank, split: Split, world: World = ALONE) -> Encoded:
    """The videos and queries of a split, chunk by chunk, each process its share."""
    video_share, query_share = share(split.videos, -1, world), share(split.queries, -1, world)
    was_training = model.training
    model.eval()
    with encoder_precision(bank.device):
        videos = [unit_videos(model.encode_videos(*bank.videos(i))) for i in chunks(video_share, VIDEO_CHUNK)]
        queries = [
            unit_queries(model.encode_queries(*bank.queries(i))) for i in chunks(query_share, QUERY_CHUNK)
        ]
    model.train(was_training)
    own = joined(videos, len(video_share))
    everyone = VideoEmbedding(
        *(gather_rows(getattr(own, f.name), world)[: len(split.videos)] for f in fields(own))
    )
    owner_Q = torch.from_numpy(share(split.owner, 0, world)).to(bank.device)
    return Encoded(everyone, joined(queries, len(query_share)), owner_Q)


@torch.inference_mode()
def score_all(encoded: Encoded) -> Scores:
    """Both branches' cosines, Q × V, a block of queries at a time."""
    videos, queries = encoded.videos, encoded.queries
    positions = videos.frames_VFD.shape[0] * videos.frames_VFD.shape[1]
    tokens = 1 if queries.tokens_QTD is None else queries.tokens_QTD.shape[1]
    block = max(1, SCORE_ELEMENTS // (positions * tokens))
    blocks = [taken(queries, slice(at, at + block)) for at in range(0, len(queries.query_QD), block)]
    return joined(
        [branch_scores(queries, videos, normalised=False) for queries in blocks], len(encoded.owner_Q)
    )


def share(values: np.ndarray, filler: int, world: World) -> np.ndarray:
    """This process's equal part of an array, the last one filled up."""
    size = -(-len(values) // world.size)
    padded = np.full(size * world.size, filler, dtype=np.int64)
    padded[: len(values)] = values
    return padded[world.rank * size : (world.rank + 1) * size]


def chunks(index: np.ndarray, size: int) -> tuple[Tensor, ...]:
    """Equal pieces of an index, the last one filled up with padding (-1): one shape for all."""
    padded = np.full(-(-len(index) // size) * size, -1, dtype=np.int64)
    padded[: len(index)] = index
    return torch.from_numpy(padded).split(size)


def unit_videos(video: VideoEmbedding) -> VideoEmbedding:
    return VideoEmbedding(unit(video.frames_VFD), video.frame_mask_VF, unit(video.clips_VCD))


def unit_queries(query: QueryEmbedding) -> QueryEmbedding:
    tokens_QTD = None if query.tokens_QTD is None else unit(query.tokens_QTD)
    return QueryEmbedding(unit(query.query_QD), tokens_QTD, query.token_weights_QT, query.token_weights_QT)


def unit(vectors: Tensor) -> Tensor:
    return F.normalize(vectors.float(), dim=-1)


def joined(parts: list[Any], count: int) -> Any:
    """One record out of many of the same kind, cut to `count` rows."""

    def column(name: str) -> Tensor | None:
        values = [getattr(part, name) for part in parts]
        return None if values[0] is None else torch.cat(values)[:count]

    return type(parts[0])(**{field.name: column(field.name) for field in fields(parts[0])})


def taken(queries: QueryEmbedding, place: slice | Tensor) -> QueryEmbedding:
    values = {field.name: getattr(queries, field.name) for field in fields(queries)}
    return replace(queries, **{name: value[place] for name, value in values.items() if value is not None})
