"""Encode a split and score every query against every video in it.

Q queries, V videos, F frames, C clips, D width
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from holmes.base.parallel import ALONE, World, gather_rows
from holmes.data.bank import FeatureBank
from holmes.data.store import Split
from holmes.encoders.fused import fused_kernels
from holmes.encoders.linear import many_rows
from holmes.encoders.model import HolmesModel, has_kernels
from holmes.encoders.precision import encoder_precision
from holmes.records import QueryEmbedding, Scores, VideoEmbedding, each_tensor
from holmes.similarity import guided_match, masked_max_dot

VIDEO_CHUNK, QUERY_CHUNK = 256, 2048  # encoded at once
VIDEO_GROUP = 256  # scored at once
SCORE_ELEMENTS = 1 << 28  # largest table of query-position similarities held at once


@dataclass(frozen=True)
class Encoded:
    """A split in the common space: unit vectors, so that dot products are cosines.

    With several processes, all videos but only this process's queries, the last share filled up.
    """

    videos: VideoEmbedding
    queries: QueryEmbedding
    owner_Q: Tensor
    clips: int | None = None  # how many clip positions follow the video from start to end; None for all
    guided: bool = False  # whether the frame branch is scored at the clip branch's best position

    @property
    def timeline_VCD(self) -> Tensor:
        """The clips from start to end; baselines have further positions behind them."""
        return self.videos.clips_VCD[:, : self.clips]

    @property
    def has_frames(self) -> bool:
        """Whether the frame branch has a vector per frame, instead of one per clip or one in all."""
        return not self.guided and self.videos.frames_VFD.shape[1] > 1


@torch.inference_mode()
def encode_split(model: HolmesModel, bank: FeatureBank, split: Split, world: World = ALONE) -> Encoded:
    """The videos and queries of a split, chunk by chunk, each process its share."""
    video_share, query_share = share(split.videos, -1, world), share(split.queries, -1, world)
    was_training = model.training
    model.eval()
    with encoder_precision(bank.device), fused_kernels(has_kernels(model, bank.device)), many_rows():
        videos = [
            unit_videos(model.encode_videos(*bank.videos(i)))
            for i in chunks(video_share, model.videos_at_once or VIDEO_CHUNK)
        ]
        queries = [
            unit_queries(model.encode_queries(*bank.queries(i))) for i in chunks(query_share, QUERY_CHUNK)
        ]
    model.train(was_training)
    own = joined(videos, len(video_share))
    everyone = each_tensor(own, lambda rows: gather_rows(rows, world)[: len(split.videos)])
    owner_Q = torch.from_numpy(share(split.owner, 0, world)).to(bank.device)
    return Encoded(everyone, joined(queries, len(query_share)), owner_Q, model.config.clips, model.guided)


@torch.inference_mode()
def score_all(encoded: Encoded) -> Scores:
    """Both branches' cosines, Q × V.

    Videos of similar length are scored together, so that little of the work is padding, and a block of
    queries at a time, so that the table of similarities stays small.
    """
    if encoded.guided:
        return score_guided(encoded)
    videos, probes = encoded.videos, frame_probes(encoded.queries)
    lengths_V = videos.frame_mask_VF.sum(1)
    order_V = lengths_V.argsort()
    frame_QV = torch.empty(len(encoded.owner_Q), len(order_V), device=order_V.device)
    for group_V in order_V.split(VIDEO_GROUP):
        frames_VFD = videos.frames_VFD[group_V, : int(lengths_V[group_V[-1]])]
        frame_QV[:, group_V] = probes.weighted(best_match(probes.vectors_ND, frames_VFD))
    return Scores(frame_QV, best_match(encoded.queries.query_QD, videos.clips_VCD))


def score_guided(encoded: Encoded) -> Scores:
    """The same for models in which a query's best clip position decides which frame vector it meets."""
    videos, query_QD = encoded.videos, encoded.queries.query_QD
    block = max(1, SCORE_ELEMENTS // (VIDEO_GROUP * videos.clips_VCD.shape[1]))
    rows = []
    for some_QD in query_QD.split(block):
        groups = zip(videos.clips_VCD.split(VIDEO_GROUP), videos.frames_VFD.split(VIDEO_GROUP), strict=True)
        rows.append([guided_match(some_QD, clips_VPD, frames_VPD) for clips_VPD, frames_VPD in groups])
    frame_QV, clip_QV = (torch.cat([torch.cat([part[n] for part in row], 1) for row in rows]) for n in (0, 1))
    return Scores(frame_QV, clip_QV)


def best_match(vectors_ND: Tensor, video_VPD: Tensor) -> Tensor:
    """N × V: each vector's best position; padded positions repeat a real one, so none need be masked."""
    block = max(1, SCORE_ELEMENTS // (video_VPD.shape[0] * video_VPD.shape[1]))
    return torch.cat([masked_max_dot(part_ND, video_VPD) for part_ND in vectors_ND.split(block)])


@dataclass(frozen=True)
class FrameProbes:
    """What meets the frames: pooled queries, or the valid tokens of dual queries with their weights."""

    vectors_ND: Tensor
    weights_N: Tensor | None = None
    query_N: Tensor | None = None
    queries: int = 0

    def weighted(self, best_NV: Tensor) -> Tensor:
        """Σ_t w_t · best match of token t, or the best match itself."""
        if self.weights_N is None or self.query_N is None:
            return best_NV
        total_QV = best_NV.new_zeros(self.queries, best_NV.shape[1])
        return total_QV.index_add_(0, self.query_N, best_NV * self.weights_N.unsqueeze(1))


def frame_probes(queries: QueryEmbedding) -> FrameProbes:
    if queries.tokens_QTD is None or queries.token_weights_QT is None:
        return FrameProbes(queries.query_QD)
    query_N, token_N = (queries.token_weights_QT > 0).nonzero(as_tuple=True)
    weights_N = queries.token_weights_QT[query_N, token_N]
    return FrameProbes(queries.tokens_QTD[query_N, token_N], weights_N, query_N, len(queries.query_QD))


def share(values: np.ndarray, filler: int, world: World) -> np.ndarray:
    """This process's equal part of an array, the last one filled up."""
    size = -(-len(values) // world.size)
    padded = np.full(size * world.size, filler, dtype=np.int64)
    padded[: len(values)] = values
    return padded[world.rank * size : (world.rank + 1) * size]


def chunks(index: np.ndarray, size: int) -> tuple[Tensor, ...]:
    """Equal pieces of an index, the last one filled up with padding (-1): one shape for all."""
    size = min(size, max(1, len(index)))
    padded = np.full(-(-len(index) // size) * size, -1, dtype=np.int64)
    padded[: len(index)] = index
    return torch.from_numpy(padded).split(size)


def unit_videos(video: VideoEmbedding) -> VideoEmbedding:
    """Unit vectors; padded frames repeat the first one, which changes no maximum."""
    frames_VFD = torch.where(video.frame_mask_VF.unsqueeze(-1), video.frames_VFD, video.frames_VFD[:, :1])
    return VideoEmbedding(unit(frames_VFD), video.frame_mask_VF, unit(video.clips_VCD))


def unit_queries(query: QueryEmbedding) -> QueryEmbedding:
    tokens_QTD = None if query.tokens_QTD is None else unit(query.tokens_QTD)
    return QueryEmbedding(unit(query.query_QD), tokens_QTD, query.token_weights_QT, query.token_weights_QT)


def unit(vectors: Tensor) -> Tensor:
    return F.normalize(vectors.float(), dim=-1)


def joined(parts: list[Any], count: int) -> Any:
    """One record out of many of the same kind, cut to `count` rows."""

    def column(name: str) -> Any:
        values = [getattr(part, name) for part in parts]
        return torch.cat(values)[:count] if isinstance(values[0], Tensor) else values[0]

    return type(parts[0])(**{field.name: column(field.name) for field in fields(parts[0])})


def taken(queries: QueryEmbedding, chosen: slice | Tensor) -> QueryEmbedding:
    """Some of the queries."""
    some: QueryEmbedding = each_tensor(queries, lambda rows: rows[chosen])
    return some
