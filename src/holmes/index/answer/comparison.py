"""Indexes of the same videos on the same sentences: where each ranks the right video, and how sure it is.

Q sentences, V videos
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from holmes.errors import HolmesError
from holmes.index.answer.searcher import Index


@dataclass(frozen=True)
class IndexRanks:
    """The rank of each sentence's video, from 1, and the probability of the first hit."""

    rank_Q: NDArray[np.int64]
    probability_Q: NDArray[np.float64]  # NaN without a calibration


def rank_videos(index: Index, captions: Sequence[tuple[str, str]]) -> IndexRanks:
    """Ranks of each (sentence, video) in an index; equal scores count against the right video."""
    positions: dict[str, int] = {}
    for position, name in enumerate(index.videos):
        for known_as in (name, Path(name).name, Path(name).stem):
            positions.setdefault(known_as, position)
    unknown = [video for _, video in captions if video not in positions]
    if unknown:
        raise HolmesError(
            f"{index.store.path} has no video '{unknown[0]}' ({len(unknown)} of {len(captions)} are unknown)."
        )
    sentences = [sentence for sentence, _ in captions]
    owner_Q = torch.tensor([positions[video] for _, video in captions])
    embedder = index.embedder
    score_QV = index.every_score(sentences).combined(embedder.frame_weight, embedder.clip_weight)
    own_Q1 = score_QV.gather(1, owner_Q.unsqueeze(1))
    rank_Q = (score_QV >= own_Q1).sum(1).numpy()
    first = [answer.diagnosis.probability for answer in index.search_many(sentences, 1)]
    return IndexRanks(rank_Q, np.array([np.nan if each is None else each for each in first]))
