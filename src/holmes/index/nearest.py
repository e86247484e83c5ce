"""The best videos of every query, proven: whatever the scan's bound does not rule out is scored exactly.

Q queries, T probes of a query, S parts of videos, K best parts, M parts scored again, H hits, P rows of a
part, D width
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from holmes.errors import HolmesError
from holmes.evidence.parts import first_of_each
from holmes.index.gallery import Gallery, GallerySlab
from holmes.index.grid import WEIGHT_STEP, on_grid
from holmes.index.kernel import best_of_pairs
from holmes.index.scan import NOT_FINITE, Probes, scan
from holmes.index.score_sums import ScoreSums
from holmes.index.threads import in_threads

if torch.cuda.is_available():  # a CPU has no use for Triton, which takes long to import
    from holmes.index.gpu_kernel import HAS_TRITON, best_of_pairs_fused
else:
    HAS_TRITON = False

MARGIN = 6  # parts scored again at first beyond those asked for
PAIRS_AT_ONCE = 2**20  # of queries and parts to score again
SCORED_AT_ONCE = (2**22, 2**30)  # bytes of rows gathered to score again: fit for a CPU's cache, for a GPU

Scored = tuple[Tensor, Tensor, Tensor, Tensor]  # parts, scores, frame and clip similarities, each Q × K


@dataclass(frozen=True)
class Nearest:
    """The best parts of every query, best first, the best videos, and what they were chosen from.

    Equal scores are in the order of the gallery's keys, and of one video in order of time.
    """

    parts_QK: Tensor  # numbers in the gallery
    score_QK: Tensor  # exact, in float64
    frame_QK: Tensor  # each branch's own similarity
    clip_QK: Tensor
    video_QK: Tensor  # whose part it is
    hit_QH: Tensor  # the best part of each of the best videos
    hit_score_QH: Tensor
    all_scores: ScoreSums  # of all parts that were compared

    def to(self, device: torch.device | str) -> Nearest:
        return Nearest(*(value.to(device) for value in vars(self).values()))


def nearest_videos(
    gallery: Gallery, probes: Probes, top: int, candidates: int = 0, allowed_S: Tensor | None = None
) -> Nearest:
    """The `top` best live videos of every query, and at least so many candidates: the best parts of any."""
    compared_S = _compared(gallery, allowed_S)
    bound_QS, all_scores = scan(gallery, probes, compared_S)
    wanted = min(max(top, candidates), all_scores.count)
    best = prove_best(gallery, probes, bound_QS, wanted, all_scores.count)
    hits = min(top, _count_videos(gallery, compared_S, all_scores.count))
    hit_QH, hit_score_QH = best_of_each_video(gallery, probes, bound_QS, best, hits, all_scores.count)
    return Nearest(*best, gallery.video_S[best[0]], hit_QH, hit_score_QH, all_scores)


def prove_best(gallery: Gallery, probes: Probes, bound_QS: Tensor, top: int, count: int) -> Scored:
    """The best `top` of `count` parts, of which none scores more than its bound.

    A few are scored first. Whatever has a bound below the `top`-th of them cannot belong among the best; all
    the others are scored. Bounds have slack for the rounding of float32.
    """
    size = min(top + MARGIN, count)
    best = _score_highest(gallery, probes, bound_QS, size, top)
    if not top:
        return best
    needed_Q = ((bound_QS >= best[1][:, -1:].float()) & ~bound_QS.isneginf()).sum(1)
    open_Q = (needed_Q > size).nonzero()[:, 0]
    while len(open_Q):
        # Queries that need about equally many go together, as long as they are not too many at once.
        least = int(needed_Q[open_Q].min())
        some_Q = open_Q[needed_Q[open_Q] <= 2 * least][: max(1, PAIRS_AT_ONCE // (2 * least))]
        most = int(needed_Q[some_Q].max())
        found = _score_highest(gallery, _rows(probes, some_Q), bound_QS[some_Q], most, top)
        for whole_QK, part_QK in zip(best, found, strict=True):
            whole_QK[some_Q] = part_QK
        needed_Q[some_Q] = 0
        open_Q = (needed_Q > size).nonzero()[:, 0]
    return best


def _score_highest(gallery: Gallery, probes: Probes, bound_QS: Tensor, size: int, top: int) -> Scored:
    """The best `top` of those `size` parts that have the highest bounds."""
    parts_QM = bound_QS.topk(size).indices.sort(1).values
    if size > 2 * (top + MARGIN) and _place(gallery).type == "cpu":
        parts_QM = _best_roughly(gallery, probes, bound_QS, parts_QM, top)
    scored = rescore(gallery, probes, parts_QM, bound_QS.gather(1, parts_QM).isneginf())
    return scored[0][:, :top], scored[1][:, :top], scored[2][:, :top], scored[3][:, :top]


def _best_roughly(gallery: Gallery, probes: Probes, bound_QS: Tensor, parts_QM: Tensor, top: int) -> Tensor:
    """Of many parts those that float32, which a CPU is three times as fast in, leaves among the best."""
    frame_QM, clip_QM = _branch_scores(gallery, probes, parts_QM, torch.float32)
    near_QM = (frame_QM + clip_QM).masked_fill(bound_QS.gather(1, parts_QM).isneginf(), -torch.inf)
    # The error of a float32 sum of products of unit vectors, and that of a sum over the probes, each doubled.
    error = 4 * (probes.rows_QTD.shape[2] + probes.rows_QTD.shape[1]) * torch.finfo(torch.float32).eps
    least_Q1 = near_QM.topk(top).values[:, -1:] - error
    kept = int((near_QM >= least_Q1).sum(1).max())
    return parts_QM.gather(1, near_QM.topk(kept).indices).sort(1).values


def best_of_each_video(
    gallery: Gallery, probes: Probes, bound_QS: Tensor, best: Scored, hits: int, count: int
) -> tuple[Tensor, Tensor]:
    """The best part of each of the best videos, and its score, Q × H.

    Where a few long videos hold all of the best parts, they are set aside and the best of the others follow.
    """
    parts_QK, score_QK = best[:2]
    if not gallery.in_parts or not hits:
        return parts_QK[:, :hits], score_QK[:, :hits]
    hit_QH = parts_QK.new_zeros((len(parts_QK), hits + 1))  # the last column takes what is not wanted
    hit_score_QH = score_QK.new_zeros(hit_QH.shape)
    open_Q, found_Q = torch.arange(len(parts_QK), device=gallery.device), parts_QK.new_zeros(len(parts_QK))
    while True:
        first_QK = first_of_each(gallery.video_S[parts_QK]) & score_QK.isfinite()
        place_QK = (found_Q.unsqueeze(1) + first_QK.cumsum(1) - 1).clamp(max=hits)
        place_QK = place_QK.masked_fill(~first_QK, hits)
        for whole_QH, part_QK in ((hit_QH, parts_QK), (hit_score_QH, score_QK)):
            whole_QH[open_Q] = whole_QH[open_Q].scatter(1, place_QK, part_QK)
        found_Q = found_Q + first_QK.sum(1)
        left_Q = (found_Q < hits).nonzero()[:, 0]
        if not len(left_Q):
            return hit_QH[:, :hits], hit_score_QH[:, :hits]
        aside_QS = _parts_of(gallery, gallery.video_S[parts_QK[left_Q]])
        bound_QS = bound_QS[left_Q].masked_fill(aside_QS, -torch.inf)
        probes, open_Q, found_Q = _rows(probes, left_Q), open_Q[left_Q], found_Q[left_Q]
        parts_QK, score_QK = prove_best(gallery, probes, bound_QS, hits, count)[:2]


def rescore(gallery: Gallery, probes: Probes, parts_QM: Tensor, aside_QM: Tensor) -> Scored:
    """These parts of each query exactly, sorted by score, those that were set aside last, with -inf.

    `parts_QM` rises in every row.
    """
    frame_QM, clip_QM = _branch_scores(gallery, probes, parts_QM, torch.float64)
    order_QM = gallery.key_S[parts_QM].argsort(dim=1, stable=True)
    score_QM = (frame_QM + clip_QM).masked_fill(aside_QM, -torch.inf).gather(1, order_QM)
    score_QM, by_score_QM = score_QM.sort(dim=1, descending=True, stable=True)
    order_QM = order_QM.gather(1, by_score_QM)
    frame_weight_Q1, clip_weight_Q1 = (
        weight_QT.double().sum(1, keepdim=True).clamp(min=1e-12)
        for weight_QT in (probes.frame_weight_QT, probes.clip_weight_QT)
    )
    return (
        parts_QM.gather(1, order_QM),
        score_QM,
        (frame_QM.gather(1, order_QM) / frame_weight_Q1).float(),
        (clip_QM.gather(1, order_QM) / clip_weight_Q1).float(),
    )


def _branch_scores(
    gallery: Gallery, probes: Probes, parts_QM: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """The weighted sums over the probes of the best frames and of the best clips; exact in float64."""
    frame_QM, clip_QM = torch.zeros((2, *parts_QM.shape), dtype=dtype, device=gallery.device).unbind(0)
    place = _place(gallery)
    best = best_of_pairs_fused if place.type == "cuda" and HAS_TRITON else partial(best_of_pairs, dtype=dtype)
    frame_weight_QT, clip_weight_QT = probes.frame_weight_QT.to(dtype), probes.clip_weight_QT.to(dtype)
    rows_QTD = probes.rows_QTD.to(place)

    def score_pairs(pairs: tuple[GallerySlab, Tensor]) -> None:
        slab, (query_N, at_N) = pairs[0], pairs[1].unbind(1)
        part_N = parts_QM[query_N, at_N] - slab.first
        best_NT = best(rows_QTD, query_N.to(place), slab.rows_SPD, part_N.to(place), gallery.clips)
        best_frame_NT, best_clip_NT = (on_grid(branch.to(gallery.device), WEIGHT_STEP) for branch in best_NT)
        frame_QM[query_N, at_N] = (frame_weight_QT[query_N] * best_frame_NT).sum(-1)
        clip_QM[query_N, at_N] = (clip_weight_QT[query_N] * best_clip_NT).sum(-1)

    in_threads(score_pairs, _pairs(gallery, parts_QM), gallery.device)
    if not bool((frame_QM + clip_QM).isfinite().all()):
        raise HolmesError(NOT_FINITE)
    return frame_QM, clip_QM


def _place(gallery: Gallery) -> torch.device:
    """Where the float16 rows are: in the memory of the host, if a GPU has no room for them."""
    return gallery.slabs[0].rows_SPD.device if gallery.slabs else gallery.device


def _pairs(gallery: Gallery, parts_QM: Tensor) -> list[tuple[GallerySlab, Tensor]]:
    """The (query, place) pairs whose part lies in a slab, a bounded number of them at once."""
    at_once = SCORED_AT_ONCE[gallery.device.type != "cpu"]
    pieces = []
    for slab in gallery.slabs:
        inside_QM = (parts_QM >= slab.first) & (parts_QM < slab.first + len(slab.rows_SPD))
        pairs_N2 = inside_QM.nonzero()
        step = max(1, at_once // (8 * slab.rows_SPD[:1].numel()))
        pieces += [(slab, pairs_N2[at : at + step]) for at in range(0, len(pairs_N2), step)]
    return pieces


def _compared(gallery: Gallery, allowed_S: Tensor | None) -> Tensor | None:
    if allowed_S is None:
        return gallery.live_S if gallery.live < len(gallery) else None
    return gallery.live_S & allowed_S


def _count_videos(gallery: Gallery, compared_S: Tensor | None, count: int) -> int:
    if not gallery.in_parts:
        return count
    video_S = gallery.video_S if compared_S is None else gallery.video_S[compared_S]
    return 1 + int((video_S[1:] != video_S[:-1]).sum()) if len(video_S) else 0


def _parts_of(gallery: Gallery, video_QK: Tensor) -> Tensor:
    """Q × S: whether a part belongs to one of the query's videos."""
    of_query_QV = torch.zeros((len(video_QK), gallery.videos), dtype=torch.bool, device=gallery.device)
    return of_query_QV.scatter(1, video_QK, True)[:, gallery.video_S]


def _rows(probes: Probes, at_Q: Tensor) -> Probes:
    return Probes(probes.rows_QTD[at_Q], probes.frame_weight_QT[at_Q], probes.clip_weight_QT[at_Q])
