"""Localisation within the right video, by the best clip or frame, and by the alignment.

Q queries, V videos, M queries of one video, P positions (frames or clips), C clips, D width
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holmes.evaluation.scoring import Encoded
from holmes.moments import best_windows
from holmes.transport.alignment import Alignment, scale_to_unit

Floats = NDArray[np.floating]
ROUNDING = 1e-6  # moments are float32: half or a fifth of a video must not fall into the next group
QUERIES_AT_ONCE = 512  # each along its own video
VIDEOS_AT_ONCE = 256


@torch.inference_mode()
def localisation(encoded: Encoded, moments_Q2: Floats) -> dict[str, float] | None:
    """Figures in percent over the queries whose moment is known; None if there are none."""
    known_Q = ~np.isnan(moments_Q2).any(1)
    if not known_Q.any():
        return None
    moments_Q2 = moments_Q2[known_Q].astype(np.float64)
    rows_Q = torch.from_numpy(np.flatnonzero(known_Q)).to(encoded.owner_Q.device)
    owner_Q = encoded.owner_Q[rows_Q]
    queries = encoded.queries
    clip_QC = similarity_along(queries.query_QD[rows_Q], encoded.timeline_VCD, owner_Q).cpu().numpy()
    clips = clip_QC.shape[1]
    clips_Q = np.full(len(moments_Q2), clips)
    overlap_Q = overlap(best_windows(clip_QC) / clips + [0, 1 / clips], moments_Q2)
    figures = {
        "clip_hit@1": hits(clip_QC.argmax(1), clips_Q, moments_Q2).mean(),
        **({"frame_hit@1": frame_hits(encoded, rows_Q, moments_Q2)} if encoded.has_frames else {}),
        "chance_hit@1": positions_inside(moments_Q2, clips).mean(),
        "mIoU": overlap_Q.mean(),
        "IoU>=0.5": (overlap_Q >= 0.5 - ROUNDING).mean(),
    }
    return {"queries": len(moments_Q2), **{name: 100 * float(value) for name, value in figures.items()}}


def frame_hits(encoded: Encoded, rows_Q: Tensor, moments_Q2: Floats) -> float:
    """How often the best frame falls in the moment."""
    videos, owner_Q = encoded.videos, encoded.owner_Q[rows_Q]
    frame_QF = similarity_along(frame_query(encoded)[rows_Q], videos.frames_VFD, owner_Q)
    frame_QF = frame_QF.masked_fill(~videos.frame_mask_VF[owner_Q], -torch.inf)
    frames_Q = videos.frame_mask_VF.sum(1)[owner_Q].cpu().numpy()
    return float(hits(frame_QF.argmax(1).cpu().numpy(), frames_Q, moments_Q2).mean())


def frame_query(encoded: Encoded) -> Tensor:
    """What a frame is compared with along the timeline: the pooled query, or the weighted tokens' sum."""
    queries = encoded.queries
    if queries.tokens_QTD is None or queries.token_weights_QT is None:
        return queries.query_QD
    return torch.einsum("qt,qtd->qd", queries.token_weights_QT.float(), queries.tokens_QTD)


def similarity_along(query_QD: Tensor, video_VPD: Tensor, owner_Q: Tensor) -> Tensor:
    """The similarity of each query along its own video."""
    parts = [
        (video_VPD[owner] @ query.unsqueeze(-1)).squeeze(-1)
        for query, owner in zip(query_QD.split(QUERIES_AT_ONCE), owner_Q.split(QUERIES_AT_ONCE), strict=True)
    ]
    return torch.cat(parts)


def hits(
    position_Q: NDArray[np.int64], positions_Q: NDArray[np.int64], moments_Q2: Floats
) -> NDArray[np.bool_]:
    """Whether a position of a video falls in the moment: the centre of either lies in the other.

    So a moment shorter than a clip can be hit too.
    """
    centre_Q, moment_centre_Q = (position_Q + 0.5) / positions_Q, moments_Q2.mean(1)
    start_Q, end_Q = position_Q / positions_Q, (position_Q + 1) / positions_Q
    in_moment_Q = (moments_Q2[:, 0] <= centre_Q) & (centre_Q <= moments_Q2[:, 1])
    return in_moment_Q | ((start_Q <= moment_centre_Q) & (moment_centre_Q < end_Q))


def positions_inside(moments_Q2: Floats, positions: int) -> NDArray[np.bool_]:
    """Which of a video's positions fall in each moment: Q × P."""
    every_P, count = np.arange(positions), np.array(positions)
    queries = len(moments_Q2)
    flat = hits(np.tile(every_P, queries), count, np.repeat(moments_Q2, positions, axis=0))
    return flat.reshape(queries, positions)


def overlap(ours_Q2: Floats, true_Q2: Floats) -> Floats:
    """Intersection over union of intervals."""
    shared_Q = np.minimum(ours_Q2[:, 1], true_Q2[:, 1]) - np.maximum(ours_Q2[:, 0], true_Q2[:, 0])
    shared_Q = shared_Q.clip(min=0)
    return shared_Q / (np.ptp(ours_Q2, axis=1) + np.ptp(true_Q2, axis=1) - shared_Q)


@torch.inference_mode()
def aligned_mass(
    encoded: Encoded, moments_Q2: NDArray[np.float32], alignments: dict[str, Alignment]
) -> dict[str, float] | None:
    """Percent of a query's aligned clips that fall in its moment, averaged over queries, for each alignment.

    All queries of a video take part in its alignment, as in training; those with a known moment count. `even`
    is the share of an alignment that knows nothing. None where no moment is known.
    """
    known_Q = ~np.isnan(moments_Q2).any(1)
    if not known_Q.any():
        return None
    clips_VCD = encoded.timeline_VCD
    videos, clips = clips_VCD.shape[:2]
    query_VMD, mask_VM, position_Q = by_video(encoded.queries.query_QD, encoded.owner_Q, videos)
    rows_Q = torch.from_numpy(np.flatnonzero(known_Q)).to(clips_VCD.device)
    inside_QC = positions_inside(moments_Q2[known_Q].astype(np.float64), clips)
    inside_on_device_QC = torch.from_numpy(inside_QC).to(clips_VCD.device)
    figures = {"queries": len(inside_QC), "even": 100 * float(inside_QC.mean())}
    for name, align in alignments.items():
        alignment_VMC = torch.cat(
            [
                align(scale_to_unit(query @ clip.transpose(1, 2), mask), mask)
                for query, clip, mask in zip(
                    query_VMD.split(VIDEOS_AT_ONCE),
                    clips_VCD.split(VIDEOS_AT_ONCE),
                    mask_VM.split(VIDEOS_AT_ONCE),
                    strict=True,
                )
            ]
        )
        own_QC = alignment_VMC.flatten(0, 1)[position_Q[rows_Q]]
        figures[name] = 100 * (own_QC * inside_on_device_QC).sum(1).mean().item()
    return figures


def by_video(query_QD: Tensor, owner_Q: Tensor, videos: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, sorted by video, regrouped as V × M × D; the mask; and each query's position."""
    counts_V = torch.bincount(owner_Q, minlength=videos)
    most = int(counts_V.max())
    slot_Q = torch.arange(len(owner_Q), device=owner_Q.device) - (counts_V.cumsum(0) - counts_V)[owner_Q]
    position_Q = owner_Q * most + slot_Q
    query_ND = query_QD.new_zeros(videos * most, query_QD.shape[1]).index_copy(0, position_Q, query_QD)
    mask_VM = torch.arange(most, device=owner_Q.device) < counts_V.unsqueeze(1)
    return query_ND.unflatten(0, (videos, most)), mask_VM, position_Q
