"""The score of a sentence and a video: the best-matching position of each branch (eq. 1-2).

`reference_scores` says what a score is, in the plainest way. Training (`cosine_and_dot`), evaluation
(`evaluation.scoring.score_all`) and search (`index.nearest`) each have a faster scorer for what they need;
tests compare every one of them with the reference. `Scores.combined` joins the branches for all of them.

Q queries, V videos, P positions (frames or clips), T tokens, D width
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from holmes.records import QueryEmbedding, Scores, VideoEmbedding, in_float32


def dot_similarity(query_QD: Tensor, video_VPD: Tensor) -> Tensor:
    """⟨q, v_p⟩ for every position p: Q × V × P."""
    return (query_QD @ video_VPD.flatten(0, 1).T).unflatten(1, video_VPD.shape[:2])


def masked_max(similarity_QVP: Tensor, mask_VP: Tensor | None) -> Tensor:
    """The best position, padding excluded (never multiplied by 0: a padded 0 could win)."""
    if mask_VP is not None:
        similarity_QVP = similarity_QVP.masked_fill(~mask_VP, -torch.inf)
    return similarity_QVP.amax(-1)


def masked_max_cosine(query_QD: Tensor, video_VPD: Tensor, mask_VP: Tensor | None = None) -> Tensor:
    """s(T, V) = max_p cos(q, v_p), eq. 1."""
    return masked_max_dot(F.normalize(query_QD, dim=-1), F.normalize(video_VPD, dim=-1), mask_VP)


def masked_max_dot(query_QD: Tensor, video_VPD: Tensor, mask_VP: Tensor | None = None) -> Tensor:
    """max_p ⟨q, v_p⟩: the raw twin of eq. 1 that InfoNCE uses."""
    return masked_max(dot_similarity(query_QD, video_VPD), mask_VP)


def weighted_tokens(weights_QT: Tensor, best_NV: Tensor) -> Tensor:
    """Σ_t w_t · best match of token t: the frame branch of dual queries; N = Q · T."""
    best_QTV = best_NV.unflatten(0, weights_QT.shape).to(weights_QT.dtype)
    return torch.einsum("qt,qtv->qv", weights_QT, best_QTV)


def reference_scores(query: QueryEmbedding, video: VideoEmbedding, normalised: bool = True) -> Scores:
    """The reference scorer: both branches' cosines, or raw dot products when `normalised` is false."""
    best = masked_max_cosine if normalised else masked_max_dot
    weights_QT = query.token_weights_QT if normalised else query.raw_token_weights_QT
    if query.tokens_QTD is None or weights_QT is None:
        frame_QV = best(query.query_QD, video.frames_VFD, video.frame_mask_VF)
    else:
        best_NV = best(query.tokens_QTD.flatten(0, 1), video.frames_VFD, video.frame_mask_VF)
        frame_QV = weighted_tokens(weights_QT, best_NV)
    return Scores(frame_QV=frame_QV, clip_QV=best(query.query_QD, video.clips_VCD, None))


BestOfBoth = Callable[[Tensor, Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor]]


def best_of_both(
    query_QD: Tensor, video_VPD: Tensor, scale_VP: Tensor, mask_VP: Tensor | None
) -> tuple[Tensor, Tensor]:
    """max_p ⟨q, v_p⟩ and max_p scale_p · ⟨q, v_p⟩, both Q × V."""
    dot_QVP = dot_similarity(query_QD, video_VPD).float()
    return masked_max(dot_QVP, mask_VP), masked_max(dot_QVP * scale_VP, mask_VP)


def cosine_and_dot(
    query: QueryEmbedding, video: VideoEmbedding, best: BestOfBoth = best_of_both
) -> tuple[Scores, Scores]:
    """Cosine and raw scores of both branches, with one product per branch: what training needs.

    A cosine is the dot product over both lengths, so the large product is formed once.
    """
    if best is best_of_both:
        query, video = in_float32(query), in_float32(video)

    def scores(query_QD: Tensor, video_VPD: Tensor, mask_VP: Tensor | None) -> tuple[Tensor, Tensor]:
        dot_QV, scaled_QV = best(query_QD, video_VPD, inverse_length(video_VPD), mask_VP)
        return scaled_QV * inverse_length(query_QD).unsqueeze(1), dot_QV

    clip_cosine_QV, clip_dot_QV = scores(query.query_QD, video.clips_VCD, None)
    frames_VFD, mask_VF = video.frames_VFD, video.frame_mask_VF
    if query.tokens_QTD is None or query.token_weights_QT is None or query.raw_token_weights_QT is None:
        frame_cosine_QV, frame_dot_QV = scores(query.query_QD, frames_VFD, mask_VF)
    else:
        cosine_NV, dot_NV = scores(query.tokens_QTD.flatten(0, 1), frames_VFD, mask_VF)
        frame_cosine_QV = weighted_tokens(query.token_weights_QT, cosine_NV)
        frame_dot_QV = weighted_tokens(query.raw_token_weights_QT, dot_NV)
    return Scores(frame_cosine_QV, clip_cosine_QV), Scores(frame_dot_QV, clip_dot_QV)


def inverse_length(vectors: Tensor) -> Tensor:
    """1/|x|, safe for the zero vector, as in F.normalize."""
    return 1 / vectors.float().norm(dim=-1).clamp(min=1e-12)


def window_means(clips_VCD: Tensor) -> Tensor:
    """The mean of every run of neighbouring clips, V × C(C+1)/2 × D, shortest first: clips, then pairs, …"""
    clips = clips_VCD.shape[1]
    ends_VCD = torch.cat([torch.zeros_like(clips_VCD[:, :1]), clips_VCD], 1).cumsum(1)
    lengths = torch.arange(1, clips + 1, device=clips_VCD.device)
    length_W = lengths.repeat_interleave(clips + 1 - lengths, output_size=clips * (clips + 1) // 2)
    order_W = torch.arange(len(length_W), device=clips_VCD.device)
    start_W = order_W - (length_W - 1) * (2 * clips + 2 - length_W) // 2  # shorter windows come first
    return (ends_VCD[:, start_W + length_W] - ends_VCD[:, start_W]) / length_W.unsqueeze(-1)


def guided_match(query_QD: Tensor, clips_VPD: Tensor, frames_VPD: Tensor) -> tuple[Tensor, Tensor]:
    """Of frames and clips, both Q × V: the best clip position, and the frame vector that belongs to it."""
    clip_QV, key_QV = dot_similarity(query_QD, clips_VPD).max(-1)
    frame_QVP = dot_similarity(query_QD, frames_VPD)
    return frame_QVP.gather(-1, key_QV.unsqueeze(-1)).squeeze(-1), clip_QV


def guided_cosine_and_dot(query: QueryEmbedding, video: VideoEmbedding) -> tuple[Scores, Scores]:
    """`cosine_and_dot` for models whose frame vectors belong to the clip positions one by one.

    The key position is the one with the best cosine.
    """
    query, video = in_float32(query), in_float32(video)
    query_scale_Q11 = inverse_length(query.query_QD)[:, None, None]
    clip_QVP = dot_similarity(query.query_QD, video.clips_VCD).float()
    frame_QVP = dot_similarity(query.query_QD, video.frames_VFD).float()
    clip_cosine_QVP = clip_QVP * query_scale_Q11 * inverse_length(video.clips_VCD)
    clip_QV, key_QV = clip_cosine_QVP.max(-1)
    frame_QV = frame_QVP.gather(-1, key_QV.unsqueeze(-1)).squeeze(-1)
    scale_QV = (
        inverse_length(video.frames_VFD).expand_as(frame_QVP).gather(-1, key_QV.unsqueeze(-1)).squeeze(-1)
    )
    cosine = Scores(frame_QV * query_scale_Q11.squeeze(-1) * scale_QV, clip_QV)
    return cosine, Scores(frame_QV, clip_QVP.amax(-1))
