"""Tiny random batches, each also as the plain lists that the slow twins take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holmes.config.schema import ModelConfig
from holmes.encoders.model import HolmesModel
from holmes.losses.objective import QueryOwners
from holmes.records import QueryEmbedding, VideoEmbedding

NOISE = 50.0  # size of the numbers in padded places: they would be noticed


def tensor(values: Any, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.tensor(np.asarray(values), dtype=dtype)


def assert_close(ours: Any, twin: Any, tolerance: float = 2e-6) -> None:
    """Both the same, up to a share of the twin's largest value."""
    ours, twin = np.asarray(ours, dtype=np.float64), np.asarray(twin, dtype=np.float64)
    assert ours.shape == twin.shape
    np.testing.assert_allclose(ours, twin, rtol=0, atol=tolerance * max(1.0, float(np.abs(twin).max())))


@dataclass(frozen=True)
class Embedded:
    """Encoded videos and queries as the package takes them, and what is real in them as the twins do."""

    query: QueryEmbedding
    video: VideoEmbedding
    owners: QueryOwners
    queries: np.ndarray
    tokens: list[np.ndarray]
    weights: list[np.ndarray]
    raw_weights: list[np.ndarray]
    frames: list[np.ndarray]
    clips: list[np.ndarray]
    owner: list[int]

    @property
    def groups(self) -> list[np.ndarray]:
        """The queries of each video."""
        owner = np.array(self.owner)
        return [self.queries[owner == v] for v in range(len(self.clips))]


def embedded(
    seed: int = 0,
    counts: tuple[int, ...] = (3, 1, 2, 4),
    width: int = 6,
    clips: int = 8,
    dual: bool = False,
    spare_queries: int = 0,
    spare_frames: int = 0,
    spare_tokens: int = 0,
    spare_slots: int = 0,
) -> Embedded:
    """`counts` says how many queries each video has. The real numbers depend on neither spare."""
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(len(counts)), counts)
    queries = rng.normal(size=(len(owner), width)).astype(np.float32)
    frames = [rng.normal(size=(n, width)).astype(np.float32) for n in rng.integers(1, 10, len(counts))]
    clip_list = [rng.normal(size=(clips, width)).astype(np.float32) for _ in counts]
    tokens = [rng.normal(size=(n, width)).astype(np.float32) for n in rng.integers(1, 6, len(owner))]
    weights = [rng.dirichlet(np.ones(len(t))).astype(np.float32) for t in tokens]
    raw_weights = [rng.dirichlet(np.ones(len(t))).astype(np.float32) for t in tokens]

    def pad(rows: list[np.ndarray], length: int, filler: float) -> Tensor:
        """Ragged rows in one tensor, `filler` times noise behind them."""
        tail = rows[0].shape[1:]
        padded = (filler * rng.normal(size=(len(rows), length, *tail))).astype(np.float32)
        for place, row in zip(padded, rows, strict=True):
            place[: len(row)] = row
        return torch.from_numpy(padded)

    frame_slots = max(map(len, frames)) + spare_frames
    lengths = torch.tensor([len(f) for f in frames])
    video = VideoEmbedding(
        frames_VFD=pad(frames, frame_slots, NOISE),
        frame_mask_VF=torch.arange(frame_slots) < lengths.unsqueeze(1),
        clips_VCD=torch.from_numpy(np.stack(clip_list)),
    )
    noise = (NOISE * rng.normal(size=(spare_queries, width))).astype(np.float32)
    query_QD = torch.from_numpy(np.concatenate([queries, noise]))
    token_slots = max(map(len, tokens)) + spare_tokens
    no_tokens = [np.zeros((0, width), np.float32)] * spare_queries
    no_weights = [np.zeros(0, np.float32)] * spare_queries
    query = QueryEmbedding(query_QD)
    if dual:
        query = QueryEmbedding(
            query_QD,
            pad(tokens + no_tokens, token_slots, NOISE),
            pad(weights + no_weights, token_slots, 0.0),
            pad(raw_weights + no_weights, token_slots, 0.0),
        )
    slot = np.concatenate([np.arange(n) for n in counts])
    spare = np.zeros(spare_queries, dtype=int)
    owners = QueryOwners(
        owner_Q=torch.from_numpy(np.concatenate([owner, spare])),
        slot_Q=torch.from_numpy(np.concatenate([slot, spare])),
        mask_Q=torch.arange(len(owner) + spare_queries) < len(owner),
        queries_per_video=max(counts) + spare_slots,
    )
    return Embedded(
        query, video, owners, queries, tokens, weights, raw_weights, frames, clip_list, owner.tolist()
    )


def tiny_config(dual: bool = False, **changes: Any) -> ModelConfig:
    settings: dict[str, Any] = {
        "video_width": 10,
        "text_width": 7,
        "width": 16,
        "heads": 4,
        "frames": 12,
        "clips": 8,
        "tokens": 6,
        "dropout": 0.0,
        "dual_query": dual,
    }
    return ModelConfig(**(settings | changes))


def tiny_model(dual: bool = False, seed: int = 0, spread: float = 0.3, **changes: Any) -> HolmesModel:
    """A model whose parameters are all random, biases and norms too, and larger than at the start."""
    torch.manual_seed(seed)
    model = HolmesModel(tiny_config(dual, **changes))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(spread * torch.randn_like(parameter))
    return model.eval()


@dataclass(frozen=True)
class Features:
    """What a model is fed."""

    frames_VFD: Tensor
    frame_lengths_V: Tensor
    clips_VCD: Tensor
    tokens_QTD: Tensor
    token_lengths_Q: Tensor
    owners: QueryOwners


def features(config: ModelConfig, counts: tuple[int, ...] = (2, 1, 3), seed: int = 0) -> Features:
    """Random features for `counts` queries per video; videos and queries of every length."""
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(len(counts)), counts)
    frame_lengths = rng.integers(1, config.frames + 1, len(counts))
    token_lengths = rng.integers(1, config.tokens + 1, len(owner))
    frames = rng.normal(size=(len(counts), config.frames, config.video_width))
    tokens = rng.normal(size=(len(owner), config.tokens, config.text_width))
    for row, length in [*zip(frames, frame_lengths, strict=True), *zip(tokens, token_lengths, strict=True)]:
        row[length:] = 0
    owners = QueryOwners(
        torch.from_numpy(owner),
        torch.from_numpy(np.concatenate([np.arange(n) for n in counts])),
        torch.ones(len(owner), dtype=torch.bool),
        max(counts),
    )
    return Features(
        tensor(frames),
        torch.from_numpy(frame_lengths),
        tensor(rng.normal(size=(len(counts), config.clips, config.video_width))),
        tensor(tokens),
        torch.from_numpy(token_lengths),
        owners,
    )
