"""MS-SL's losses of the frame branch, over queries × queries (Dong et al., ACM MM 2022).

A query meets the frame vectors that all queries of the batch gathered, each from its own video through its
own best window. Only its own vector is positive: other queries of the same video are negatives.

Q queries, V videos, M queries of one video, P windows of clips, D width
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from holmes.losses.objective import QueryOwners
from holmes.losses.reduce import masked_mean
from holmes.records import QueryEmbedding, VideoEmbedding
from holmes.similarity import inverse_length


def gathered_by_own_query(query: QueryEmbedding, video: VideoEmbedding, owners: QueryOwners) -> Tensor:
    """Q × D: the frame vector that belongs to each query's best window in its own video."""
    query_VMD, _ = owners.by_video(query.query_QD, len(video.clips_VCD))
    unit_VPD = F.normalize(video.clips_VCD.float(), dim=-1)
    key_VM = (F.normalize(query_VMD.float(), dim=-1) @ unit_VPD.transpose(1, 2)).argmax(-1)
    key_Q = key_VM[owners.owner_Q, owners.slot_Q]
    return video.frames_VFD[owners.owner_Q, key_Q].float()


def pair_scores(query_QD: Tensor, gathered_QD: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and dot products of query i and the vector of query j: Q × Q each."""
    dot_QQ = (query_QD.float() @ gathered_QD.T).float()
    return dot_QQ * inverse_length(query_QD).unsqueeze(1) * inverse_length(gathered_QD), dot_QQ


def pair_triplet_loss(
    cosine_QQ: Tensor, mask_Q: Tensor, uniform_QN: Tensor, margin: float, hard_pool: int | None
) -> Tensor:
    """mean_i [m + c_ij - c_ii]₊ + mean_i [m + c_ji - c_ii]₊, j ≠ i: any, or of the `hard_pool` hardest."""
    positive_Q = cosine_QQ.diagonal()
    total = cosine_QQ.new_zeros(())
    for direction, scores_QQ in enumerate((cosine_QQ, cosine_QQ.T)):
        uniform_Q = uniform_QN[:, direction % uniform_QN.shape[1]]
        negative_Q = one_of_the_others(scores_QQ, mask_Q, uniform_Q, hard_pool)
        total = total + masked_mean((margin + negative_Q - positive_Q).clamp(min=0), mask_Q)
    return total


def one_of_the_others(scores_QQ: Tensor, mask_Q: Tensor, uniform_Q: Tensor, hard_pool: int | None) -> Tensor:
    """For each row one other column, drawn by a number in [0, 1); -inf where there is none."""
    itself_QQ = torch.eye(len(mask_Q), dtype=torch.bool, device=mask_Q.device)
    other_QQ = mask_Q.unsqueeze(0) & ~itself_QQ
    choices_Q = other_QQ.sum(1)
    wrong_QQ = scores_QQ.masked_fill(~other_QQ, -torch.inf)
    if hard_pool is None:
        drawn_Q = (uniform_Q * choices_Q).long() + 1  # the how-manieth of the others
        column_Q = ((other_QQ.cumsum(1) == drawn_Q.unsqueeze(1)) & other_QQ).int().argmax(1)
        return wrong_QQ.gather(1, column_Q.unsqueeze(1)).squeeze(1)
    hardest_QP = wrong_QQ.topk(min(hard_pool, len(mask_Q)), dim=1).values
    drawn_Q = (uniform_Q * choices_Q.clamp(max=hardest_QP.shape[1])).long()
    return hardest_QP.gather(1, drawn_Q.unsqueeze(1)).squeeze(1)


def pair_contrastive_loss(dot_QQ: Tensor, mask_Q: Tensor) -> Tensor:
    """mean_i (log Σ_j e^{x_ij} + e^{x_ji}) - x_ii: row and column share one denominator."""
    valid_QQ = dot_QQ.masked_fill(~(mask_Q.unsqueeze(0) & mask_Q.unsqueeze(1)), -torch.inf)
    # A padded query keeps its own entry, so that its row is finite; it does not count.
    own_QQ = torch.diag_embed(dot_QQ.diagonal())
    padded_QQ = torch.diag_embed(~mask_Q)
    valid_QQ = torch.where(padded_QQ, own_QQ, valid_QQ)
    everyone_Q = torch.cat([valid_QQ, valid_QQ.T], 1).logsumexp(1)
    return masked_mean(everyone_Q - dot_QQ.diagonal(), mask_Q)


def cross_query_losses(
    query: QueryEmbedding,
    video: VideoEmbedding,
    owners: QueryOwners,
    uniform_QN: Tensor,
    margin: float,
    hard_pool: int | None,
) -> dict[str, Tensor]:
    """Both losses of the frame branch."""
    cosine_QQ, dot_QQ = pair_scores(query.query_QD, gathered_by_own_query(query, video, owners))
    return {
        "triplet_frame": pair_triplet_loss(cosine_QQ, owners.mask_Q, uniform_QN, margin, hard_pool),
        "contrastive_frame": pair_contrastive_loss(dot_QQ, owners.mask_Q),
    }
