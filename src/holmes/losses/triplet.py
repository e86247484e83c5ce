"""L_trip: a positive must beat a negative by a margin, in both directions (appendix B.1).

Randomness comes in as uniform numbers, so that every device of a run can draw the same ones.

Q queries, V videos of the batch
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from holmes.losses.reduce import masked_mean


def triplet_loss(
    similarity_QV: Tensor,
    owner_Q: Tensor,
    mask_Q: Tensor,
    uniform_QV: Tensor,
    margin: float,
    hard_pool: int | None = None,
) -> Tensor:
    """Σ max(0, m + s(negative) - s(positive)), averaged over queries and over videos.

    `hard_pool` is None for random negatives; otherwise a query meets one of that many hardest videos, drawn
    at random, and a video meets its hardest query.
    """
    similarity_QV = similarity_QV.float()
    own_QV = F.one_hot(owner_Q, similarity_QV.shape[1]).bool() & mask_Q.unsqueeze(1)
    other_QV = ~own_QV & mask_Q.unsqueeze(1)

    positive_Q = similarity_QV.gather(1, owner_Q.unsqueeze(1)).squeeze(1)
    negative_Q = negative_video(similarity_QV, other_QV, uniform_QV, hard_pool)
    text_to_video_Q = (margin + negative_Q - positive_Q).clamp(min=0)

    positive_V = masked_mean(similarity_QV, own_QV, dim=0)
    negative_V = negative_query(similarity_QV, other_QV, uniform_QV, hard_pool)
    video_to_text_V = (margin + negative_V - positive_V).clamp(min=0)
    return masked_mean(text_to_video_Q, mask_Q) + masked_mean(video_to_text_V, own_QV.any(0))


def negative_video(
    similarity_QV: Tensor, other_QV: Tensor, uniform_QV: Tensor, hard_pool: int | None
) -> Tensor:
    """For each query the score of one wrong video: any, or one of the `hard_pool` hardest.

    -inf, and so no loss, where a query has no wrong video at all.
    """
    wrong_QV = similarity_QV.masked_fill(~other_QV, -torch.inf)
    if hard_pool is None:
        return random_choice(wrong_QV, other_QV, uniform_QV, dim=1)
    hardest_QP = wrong_QV.topk(min(hard_pool, wrong_QV.shape[1]), dim=1).values
    exist_QP = hardest_QP > -torch.inf
    return random_choice(hardest_QP, exist_QP, uniform_QV[:, : hardest_QP.shape[1]], dim=1)


def negative_query(
    similarity_QV: Tensor, other_QV: Tensor, uniform_QV: Tensor, hard_pool: int | None
) -> Tensor:
    """For each video the score of one wrong query: any, or the hardest."""
    wrong_QV = similarity_QV.masked_fill(~other_QV, -torch.inf)
    return random_choice(wrong_QV, other_QV, uniform_QV, dim=0) if hard_pool is None else wrong_QV.amax(0)


def random_choice(values: Tensor, allowed: Tensor, uniform: Tensor, dim: int) -> Tensor:
    """One allowed value along `dim`, each equally likely: the one with the largest random number."""
    winner = uniform.masked_fill(~allowed, -1).argmax(dim, keepdim=True)
    return values.gather(dim, winner).squeeze(dim)
