"""Records that packages exchange: enums and frozen dataclasses.

Shape suffixes used throughout the project:
Q queries, V videos, F frames, C clips, T tokens, D width, G blocks, H heads, M queries of one video.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any

import torch
from torch import Tensor

FRAMES = 128  # positions of the frame branch; shorter videos are padded to this
CLIPS = 32  # positions of the clip branch; every video is pooled to exactly this many
TOKENS = 30  # longest query


class Stage(IntEnum):
    """The two stages of training: a warm-up, then calibration, alignment and hard negatives."""

    WARM_UP = 1
    CALIBRATED = 2


class QueryKind(IntEnum):
    """Kinds of query, ordered by uncertainty dominance (Definition 3.6): branches merge by maximum."""

    PRECISE = 0
    POLYSEMOUS = 1
    UNDERDETERMINED = 2


@dataclass(frozen=True)
class Batch:
    """Videos with all their queries, padded to fixed shapes.

    Queries of one video are neighbours, in the order of the videos. A padded query has no tokens
    (`token_lengths_Q == 0`), belongs to video 0 and takes part in nothing.
    """

    frames_VFD: Tensor
    frame_lengths_V: Tensor
    clips_VCD: Tensor
    tokens_QTD: Tensor
    token_lengths_Q: Tensor
    owner_Q: Tensor  # the batch's video that holds the query's moment
    slot_Q: Tensor  # its number among its video's queries: 0 … queries_per_video - 1
    queries_per_video: int  # the most any video of the collection has: the M of V×M layouts

    @property
    def query_mask_Q(self) -> Tensor:
        return self.token_lengths_Q > 0


@dataclass(frozen=True)
class VideoEmbedding:
    """Encoded videos: one vector per frame and one per clip, not normalised."""

    frames_VFD: Tensor
    frame_mask_VF: Tensor
    clips_VCD: Tensor
    extra: Mapping[str, Tensor] = field(default_factory=dict)
    """What a loss of the encoder's own needs, in training only: by name, a row for every video."""


@dataclass(frozen=True)
class QueryEmbedding:
    """Encoded queries: a pooled vector, and for dual-query models the frame branch's weighted tokens.

    The weights of normalised tokens go with cosines, those of raw tokens with dot products.
    """

    query_QD: Tensor
    tokens_QTD: Tensor | None = None
    token_weights_QT: Tensor | None = None
    raw_token_weights_QT: Tensor | None = None
    extra: Mapping[str, Tensor] = field(default_factory=dict)
    """As in `VideoEmbedding`: a row for every query."""


AtOnce = Callable[..., list[Any]]


def one_after_another(*pieces: Callable[[], Any]) -> list[Any]:
    """The results of pieces that do not depend on each other. A GPU runs them at once (`training.step`)."""
    return [piece() for piece in pieces]


def each_tensor(record: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The record with every tensor replaced by what `change` makes of it, those of `extra` too."""

    def changed(value: Any) -> Any:
        if isinstance(value, Tensor):
            return change(value)
        return {name: change(tensor) for name, tensor in value.items()} if value else value

    return type(record)(**{each.name: changed(getattr(record, each.name)) for each in fields(record)})


@dataclass(frozen=True)
class Scores:
    """Both branches' similarities of every query to every video."""

    frame_QV: Tensor
    clip_QV: Tensor

    def combined(self, frame_weight: float, clip_weight: float) -> Tensor:
        """s = α_f s^f + α_c s^c, eq. 2: the score that ranks videos."""
        return frame_weight * self.frame_QV + clip_weight * self.clip_QV


@dataclass(frozen=True)
class Opinion:
    """A subjective opinion: belief in each video and what is left, belief + uncertainty = 1."""

    belief_QV: Tensor
    uncertainty_Q: Tensor


def in_float32(record: Any) -> Any:
    """Evidence and losses are computed in float32 or better, whatever the encoders used."""
    halves = (torch.bfloat16, torch.float16)
    return each_tensor(record, lambda value: value.float() if value.dtype in halves else value)
