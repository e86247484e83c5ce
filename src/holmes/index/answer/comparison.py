"""Compare indexes of the same videos on the same sentences.

Q sentences, V videos
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from holmes.index.answer.calibration import videos_of
from holmes.index.answer.searcher import Index


@dataclass(frozen=True)
class IndexRanks:
    """The rank of each sentence's video, from 1, and the probability of the first hit."""

    rank_Q: NDArray[np.int64]
    probability_Q: NDArray[np.float64]  # NaN without a calibration


def rank_videos(index: Index, captions: Sequence[tuple[str, str]]) -> IndexRanks:
    """Ranks of each (sentence, video) in an index; equal scores count against the right video."""
    sentences = [sentence for sentence, _ in captions]
    owner_Q = videos_of(captions, index.videos, index.store.path)
    embedder = index.embedder
    score_QV = index.every_score(sentences).combined(embedder.frame_weight, embedder.clip_weight)
    own_Q1 = score_QV.gather(1, owner_Q.unsqueeze(1))
    rank_Q = (score_QV >= own_Q1).sum(1).numpy()
    first = [answer.diagnosis.probability for answer in index.search_many(sentences, 1)]
    return IndexRanks(rank_Q, np.array([np.nan if each is None else each for each in first]))
