"""Recall at K from ranks.

Q queries, V videos
"""

from __future__ import annotations

import torch
from torch import Tensor

CUTOFFS = (1, 5, 10, 100)
NOWHERE = 2**62  # the place of a video without a score


def rank_of_owner(scores_QV: Tensor, owner_Q: Tensor) -> Tensor:
    """The place of each query's own video, 1 for the first.

    Ties count against it: a model that scores everything alike finds nothing.
    """
    own_Q1 = scores_QV.gather(1, owner_Q.unsqueeze(1))
    # Counted from the end: a comparison with NaN is false, and must not pass for a hit.
    rank_Q = scores_QV.shape[1] - (scores_QV < own_Q1).sum(1)
    return rank_Q.masked_fill(own_Q1.squeeze(1).isnan(), NOWHERE)


def recall(ranks_Q: Tensor, cutoffs: tuple[int, ...] = CUTOFFS) -> dict[str, float]:
    """R@K in percent, and SumR, their sum. NaN where there is no query."""
    hits_K = (
        (ranks_Q.unsqueeze(0) <= torch.tensor(cutoffs, device=ranks_Q.device).unsqueeze(1)).double().mean(1)
    )
    values = (100 * hits_K).tolist()
    named = {f"R@{cutoff}": value for cutoff, value in zip(cutoffs, values, strict=True)}
    return named | {"SumR": sum(values)}
