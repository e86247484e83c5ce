"""Data for the figures about moments: similarity along the timeline, and alignments.

Q queries, V videos, M queries of one video, F frames, C clips
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holmes.config.schema import AlignmentConfig, ScoreConfig
from holmes.data.store import Split, Store
from holmes.errors import HolmesError
from holmes.evaluation.localisation import by_video, frame_query
from holmes.evaluation.scoring import Encoded
from holmes.evaluation.split_report import Evaluated
from holmes.records import Scores
from holmes.report.figures.timeline import Film, TimelinePair, Track
from holmes.report.figures.transport import Transport, mass_inside
from holmes.transport.alignment import (
    flexible_alignment,
    flexible_plan,
    normalised_rows,
    plain_plan,
    scale_to_unit,
)


@dataclass(frozen=True)
class Seen:
    """A split as one model sees it."""

    encoded: Encoded
    scores: Scores
    score_QV: Tensor  # both branches together
    rank_Q: NDArray[np.int64]  # of the right video
    weights: ScoreConfig

    @classmethod
    def of(cls, evaluated: Evaluated, weights: ScoreConfig) -> Seen:
        if evaluated.encoded is None:
            raise HolmesError("a file of scores has no embeddings, which this figure needs.")
        return cls(evaluated.encoded, evaluated.scores, evaluated.score_QV, evaluated.rank_Q, weights)


def track(seen: Seen, row: int, video: int) -> Track:
    """A query along a video: at every frame the weighted similarity of it and of the clip around it."""
    videos, queries = seen.encoded.videos, seen.encoded.queries
    clip_C = seen.encoded.timeline_VCD[video] @ queries.query_QD[row]
    if not seen.encoded.has_frames:
        return Track(clip_C.cpu().numpy(), float(seen.score_QV[row, video]))
    frames_FD = videos.frames_VFD[video][videos.frame_mask_VF[video]]
    frame_F = frames_FD @ frame_query(seen.encoded)[row]
    middle_F = (torch.arange(len(frame_F), device=frame_F.device) + 0.5) / len(frame_F)
    clip_F = clip_C[(middle_F * len(clip_C)).long()]
    similarity_F = seen.weights.frame_weight * frame_F + seen.weights.clip_weight * clip_F
    return Track(similarity_F.cpu().numpy(), float(seen.score_QV[row, video]))


def moment_of(store: Store, query: int) -> tuple[float, float] | None:
    start, end = store.moments_Q2[query].tolist()
    return None if np.isnan(start) else (start, end)


@torch.inference_mode()
def timelines(seen: list[Seen], store: Store, split: Split, chosen: int | None = None) -> list[TimelinePair]:
    """Three queries with known moments: how they were chosen is said with each. Empty where none is known.

    With two runs, by how much the first gains over the second; with one, by how clearly the right video wins.
    Queries that other videos fit too are not chosen: their rival is not a mistake.
    """
    if len(split.videos) < 2:
        return []  # no rival
    margin_RQ = torch.stack([margins(one) for one in seen]).cpu().numpy()
    if chosen is not None:
        return [timeline(seen, store, split, chosen, "chosen", margin_RQ[:, chosen])]
    plain_Q = np.array([int(query) not in store.also_fits for query in split.queries])
    rows = np.flatnonzero(plain_Q & ~np.isnan(store.moments_Q2[split.queries, 0]))
    if len(rows) == 0:
        return []
    if len(seen) == 1:
        worth, names = margin_RQ[0], {"clear": 0.9, "typical": 0.5, "hard": 0.1}
    else:
        worth, names = margin_RQ[0] - margin_RQ[1], {"helped most": 1.0, "typical": 0.5, "hurt most": 0.0}
    ordered = rows[np.argsort(worth[rows], kind="stable")]
    picks = {why: int(ordered[round(share * (len(ordered) - 1))]) for why, share in names.items()}
    return [timeline(seen, store, split, row, why, margin_RQ[:, row]) for why, row in picks.items()]


def compared_timelines(
    evaluated: list[tuple[Evaluated, ScoreConfig]], store: Store, chosen: dict[int, str]
) -> list[TimelinePair]:
    """Timelines of chosen queries (rows of the split, and why) as several models see them."""
    split = evaluated[0][0].split
    if len(split.videos) < 2:
        return []
    seen = [Seen.of(one, weights) for one, weights in evaluated]
    margin_RQ = torch.stack([margins(one) for one in seen]).cpu().numpy()
    return [timeline(seen, store, split, row, why, margin_RQ[:, row]) for row, why in chosen.items()]


def margins(seen: Seen) -> Tensor:
    """How far the right video lies above the best other one."""
    owner_Q1 = seen.encoded.owner_Q.unsqueeze(1)
    others_QV = seen.score_QV.scatter(1, owner_Q1, -torch.inf)
    return seen.score_QV.gather(1, owner_Q1).squeeze(1) - others_QV.amax(1)


def timeline(
    seen: list[Seen], store: Store, split: Split, row: int, why: str, margin_R: np.ndarray
) -> TimelinePair:
    """The rival is the one of the run that has more trouble with the query."""
    query, own = int(split.queries[row]), int(split.owner[row])
    score_V = seen[int(margin_R.argmin())].score_QV[row].clone()
    score_V[own] = -torch.inf

    def film(video: int, moment: tuple[float, float] | None) -> Film:
        seconds = float(store.durations_V[split.videos[video]])
        tracks = tuple(track(one, row, video) for one in seen)
        name = store.video_ids[int(split.videos[video])]
        return Film(name, tracks, None if np.isnan(seconds) else seconds, moment)

    return TimelinePair(
        why, store.captions[query], film(own, moment_of(store, query)), film(int(score_V.argmax()), None)
    )


@torch.inference_mode()
def transport(seen: Seen, store: Store, split: Split, settings: AlignmentConfig, video: int) -> Transport:
    """The alignments of one video's queries, as training would compute them."""
    rows = split.query_offsets[video], split.query_offsets[video + 1]
    query_MD, clips_CD = seen.encoded.queries.query_QD[slice(*rows)], seen.encoded.timeline_VCD[video]
    queries = split.queries[slice(*rows)]
    mask_1M = torch.ones((1, len(queries)), dtype=torch.bool, device=query_MD.device)
    similarity_1MC = scale_to_unit((query_MD @ clips_CD.T).unsqueeze(0), mask_1M)
    plain_1MC = plain_plan(similarity_1MC, mask_1M, settings.entropy_weight, settings.iterations)
    flexible_1NC = flexible_plan(
        similarity_1MC, mask_1M, settings.entropy_weight, settings.dustbin_ratio, settings.iterations
    )
    return Transport(
        video=store.video_ids[int(split.videos[video])],
        captions=[store.captions[query] for query in queries],
        moments_M2=store.moments_Q2[queries].astype(np.float64),
        plain_MC=normalised_rows(plain_1MC, mask_1M)[0].cpu().numpy(),
        flexible_MC=normalised_rows(flexible_1NC[:, :-1], mask_1M)[0].cpu().numpy(),
        dustbin_C=(flexible_1NC[0, -1] * flexible_1NC.shape[-1]).cpu().numpy(),
    )


@torch.inference_mode()
def typical_video(
    seen: Seen, store: Store, split: Split, settings: AlignmentConfig, videos: list[int]
) -> int:
    """Of some videos, in ascending order, one whose queries put the median share of mass into their moments.

    Among those with at least three queries and all moments known; if there are none, the one with the most
    queries.
    """
    known_Q = ~np.isnan(store.moments_Q2[split.queries, 0])
    known_V = np.bincount(split.owner, known_Q, len(split.videos)) == split.queries_of_video
    eligible = np.array([v for v in videos if known_V[v] and split.queries_of_video[v] >= 3], np.int64)
    if len(eligible) == 0:
        return max(videos, key=lambda video: int(split.queries_of_video[video]))
    encoded = seen.encoded
    query_VMD, mask_VM, _ = by_video(encoded.queries.query_QD, encoded.owner_Q, len(split.videos))
    some = torch.from_numpy(eligible).to(query_VMD.device)
    query_VMD, mask_VM, clips_VCD = query_VMD[some], mask_VM[some], encoded.timeline_VCD[some]
    similarity_VMC = scale_to_unit(query_VMD @ clips_VCD.transpose(1, 2), mask_VM)
    alignment_VMC = flexible_alignment(
        similarity_VMC, mask_VM, settings.entropy_weight, settings.dustbin_ratio, settings.iterations
    )
    rows_Q = np.isin(split.owner, eligible)
    inside_Q = mass_inside(alignment_VMC[mask_VM].cpu().numpy(), store.moments_Q2[split.queries[rows_Q]])
    mean_V = np.bincount(split.owner[rows_Q], inside_Q)[eligible] / split.queries_of_video[eligible]
    return int(eligible[np.argsort(mean_V, kind="stable")[len(eligible) // 2]])


def find_video(store: Store, split: Split, name: str) -> int:
    """The position of a video in a split."""
    ids = [store.video_ids[video] for video in split.videos]
    if name not in ids:
        raise HolmesError(f"split '{split.name}' has no video '{name}'; it has '{ids[0]}' and others.")
    return ids.index(name)


def find_query(store: Store, split: Split, name: str) -> int:
    """The position of a query in a split."""
    ids = [store.query_ids[query] for query in split.queries]
    if name not in ids:
        raise HolmesError(f"split '{split.name}' has no query '{name}'; it has '{ids[0]}' and others.")
    return ids.index(name)
