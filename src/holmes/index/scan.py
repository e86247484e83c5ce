"""Exact search: a fast scan in low precision, then the nearest videos are scored again in float32, more and
more of them until it is proven that no other video belongs among the best.

Both branches and both kinds of query are one thing here. A query is a few probes, and its score of a video is
Σ over probes of (frame weight · best frame + clip weight · best clip): one probe with both weights, or for a
dual query one for each token (frames only) and one for the pooled vector (clips only).

Q queries, T probes of a query, R probes of all queries, V videos, K hits, P rows of a video, D width
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from holmes.errors import HolmesError
from holmes.evidence.confidence import Background, background
from holmes.index.gallery import Gallery, GallerySlab
from holmes.index.kernel import (
    HAS_TRITON,
    best_of_pairs,
    best_of_pairs_fused,
    best_positions,
    best_positions_of_many,
    weighted_best_fused,
)
from holmes.index.segment import TILE
from holmes.index.threads import in_threads
from holmes.records import QueryEmbedding

MARGIN = 6  # videos scored again at first beyond those asked for: enough to prove most queries
GPU_WRITES = 2**28  # similarities that a block of the scan may write on a GPU: a GB at most
SCORED_AT_ONCE = (2**22, 2**30)  # bytes of rows gathered to score again: fit for a CPU's cache, for a GPU


@dataclass(frozen=True)
class Probes:
    """Queries as unit vectors with weights; a padded probe has weight 0."""

    rows_QTD: Tensor  # float32
    frame_weight_QT: Tensor
    clip_weight_QT: Tensor

    def to(self, device: torch.device | str) -> Probes:
        return Probes(
            *(part.to(device) for part in (self.rows_QTD, self.frame_weight_QT, self.clip_weight_QT))
        )


Scored = tuple[Tensor, Tensor, Tensor, Tensor]  # videos, scores, frame and clip similarities, each Q × K


@dataclass(frozen=True)
class Nearest:
    """The best videos of every query, best first, and what they were chosen from."""

    videos_QK: Tensor  # numbers in the gallery
    score_QK: Tensor
    frame_QK: Tensor  # each branch's own similarity
    clip_QK: Tensor
    all_scores: Background  # of all videos that were compared
    compared: int

    def to(self, device: torch.device | str) -> Nearest:
        all_scores = self.all_scores
        return Nearest(
            self.videos_QK.to(device),
            self.score_QK.to(device),
            self.frame_QK.to(device),
            self.clip_QK.to(device),
            Background(all_scores.mean_Q.to(device), all_scores.deviation_Q.to(device)),
            self.compared,
        )


def make_probes(query: QueryEmbedding, frame_weight: float, clip_weight: float) -> Probes:
    pooled_Q1D = F.normalize(query.query_QD.float(), dim=-1).unsqueeze(1)
    one_Q1 = torch.ones_like(pooled_Q1D[..., 0])
    if query.tokens_QTD is None or query.token_weights_QT is None:
        return Probes(pooled_Q1D, frame_weight * one_Q1, clip_weight * one_Q1)
    tokens_QTD = F.normalize(query.tokens_QTD.float(), dim=-1)
    weights_QT = query.token_weights_QT.float()
    return Probes(
        torch.cat([pooled_Q1D, tokens_QTD], 1),
        torch.cat([0 * one_Q1, frame_weight * weights_QT], 1),
        torch.cat([clip_weight * one_Q1, torch.zeros_like(weights_QT)], 1),
    )


def nearest_videos(gallery: Gallery, probes: Probes, top: int, allowed_V: Tensor | None = None) -> Nearest:
    """The `top` best live videos of every query, in the order and with the scores of float32."""
    near_QV, error_Q = scan(gallery, probes)
    compared_QV, count = near_QV, gallery.live
    if allowed_V is not None or count < len(gallery):
        allowed_V = gallery.live_V if allowed_V is None else gallery.live_V & allowed_V
        compared_QV, count = near_QV[:, allowed_V], int(allowed_V.sum())
        near_QV.masked_fill_(~allowed_V, -torch.inf)
    all_scores = background(compared_QV if count else torch.zeros_like(error_Q).unsqueeze(1))
    if not bool(all_scores.mean_Q.isfinite().all()):
        raise HolmesError("the index holds numbers that are not finite; run 'holmes index check'.")
    best = prove_best(gallery, probes, near_QV, error_Q, min(top, count), count)
    return Nearest(*best, all_scores=all_scores, compared=count)


def prove_best(
    gallery: Gallery, probes: Probes, near_QV: Tensor, error_Q: Tensor, top: int, count: int
) -> Scored:
    """The best `top` of `count` videos from scores that are off by at most `error_Q`: the nearest ones are
    scored again, for some queries more and more of them, until no other can belong among the best."""
    empty_QK = torch.zeros((len(near_QV), top), device=near_QV.device)
    best: Scored = (empty_QK.long(), empty_QK, empty_QK.clone(), empty_QK.clone())
    open_Q, size = torch.arange(len(near_QV), device=near_QV.device), min(top + MARGIN, count)
    while top and len(open_Q):
        near_QM, videos_QM = near_QV.topk(size)
        found = rescore(gallery, probes, videos_QM.sort(1).values)
        for whole_QK, part_QM in zip(best, found, strict=True):
            whole_QK[open_Q] = part_QM[:, :top]
        # No video that was not scored again can have more than this.
        others_Q = near_QM[:, -1] + error_Q
        left_Q = ((found[1][:, top - 1] <= others_Q) & (size < count)).nonzero()[:, 0]
        if len(left_Q):
            probes, near_QV, error_Q = _rows(probes, left_Q), near_QV[left_Q], error_Q[left_Q]
        open_Q, size = open_Q[left_Q], min(2 * size, count)
    return best


def scan(gallery: Gallery, probes: Probes) -> tuple[Tensor, Tensor]:
    """Scores of all videos in the fastest precision, Q × V, and how far each query's can be off."""
    queries, (exact_RD, frame_weight_R, clip_weight_R, owner_R) = len(probes.rows_QTD), _in_use(probes)
    plan = scan_plan(len(exact_RD), gallery.device)
    rounded_RD = exact_RD.to(plan.dtype)
    score_QV = torch.zeros((queries, len(gallery)), device=gallery.device)

    def scan_block(block: GallerySlab) -> Tensor:
        rows_VPD = converted(block.rows_VPD, plan.dtype)
        weighted_RV, largest_R = plan.score(
            rounded_RD, rows_VPD, gallery.clips, frame_weight_R, clip_weight_R
        )
        part_QV = score_QV[:, block.first : block.first + len(rows_VPD)]
        if owner_R is None:
            part_QV.copy_(weighted_RV)
        else:
            part_QV.index_add_(0, owner_R, weighted_RV)
        return largest_R

    largest = in_threads(scan_block, blocks(gallery, plan.rows), gallery.device)
    largest_R = torch.stack([torch.zeros_like(exact_RD[:, 0]), *largest]).amax(0)
    error_R = (frame_weight_R + clip_weight_R) * rounding_error(exact_RD, rounded_RD, largest_R)
    if owner_R is None:
        return score_QV, error_R
    return score_QV, torch.zeros(queries, device=gallery.device).index_add_(0, owner_R, error_R)


def _in_use(probes: Probes) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """The probes of weight, in a row, and the query of each; none where every query is one probe."""
    if probes.rows_QTD.shape[1] == 1:
        return (
            probes.rows_QTD[:, 0],
            probes.frame_weight_QT[:, 0].contiguous(),
            probes.clip_weight_QT[:, 0].contiguous(),
            None,
        )
    used_QT = probes.frame_weight_QT + probes.clip_weight_QT > 0
    return (
        probes.rows_QTD[used_QT],
        probes.frame_weight_QT[used_QT],
        probes.clip_weight_QT[used_QT],
        used_QT.nonzero()[:, 0],
    )


def blocks(gallery: Gallery, rows: int) -> list[GallerySlab]:
    """Slabs cut into pieces of about so many rows."""
    pieces = []
    for slab in gallery.slabs:
        step = max(1, rows // slab.rows_VPD.shape[1])
        starts = range(0, len(slab.rows_VPD), step)
        pieces += [GallerySlab(slab.first + at, slab.rows_VPD[at : at + step]) for at in starts]
    return pieces


@dataclass(frozen=True)
class ScanPlan:
    """How to scan: the precision, the inner loop, and how many rows it is given at once.

    The inner loop takes probes, rows, the number of clips and both weights; it gives the scores, R × V, and
    each probe's largest similarity that was rounded after its sum.
    """

    dtype: torch.dtype
    score: Callable[[Tensor, Tensor, int, Tensor, Tensor], tuple[Tensor, Tensor]]
    rows: int


def score_with(
    best: Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]],
) -> Callable[[Tensor, Tensor, int, Tensor, Tensor], tuple[Tensor, Tensor]]:
    """The inner loop around a function for the best frames and clips."""

    def score(
        probes_RD: Tensor, rows_VPD: Tensor, clips: int, frame_weight_R: Tensor, clip_weight_R: Tensor
    ) -> tuple[Tensor, Tensor]:
        frame_RV, clip_RV = (part.float() for part in best(probes_RD, rows_VPD, clips))
        weighted_RV = frame_weight_R.unsqueeze(1) * frame_RV + clip_weight_R.unsqueeze(1) * clip_RV
        return weighted_RV, torch.maximum(frame_RV.abs(), clip_RV.abs()).amax(1)

    return score


def score_fused(
    probes_RD: Tensor, rows_VPD: Tensor, clips: int, frame_weight_R: Tensor, clip_weight_R: Tensor
) -> tuple[Tensor, Tensor]:
    """The inner loop of a GPU. Its sums stay float32, so nothing is rounded after them."""
    weighted_RV = weighted_best_fused(probes_RD, rows_VPD, clips, frame_weight_R, clip_weight_R)
    return weighted_RV, torch.zeros_like(frame_weight_R)


def scan_plan(probes: int, device: torch.device) -> ScanPlan:
    """The fastest plan that was measured. Embeddings are stored in float16, which GPUs multiply as it is.

    CPUs have a fast float16 product for a single vector only; beyond two, blocks that stay in the cache are
    converted, to bfloat16 where the CPU multiplies that and the probes are worth it.
    """
    if device.type == "cuda" and HAS_TRITON:
        return ScanPlan(torch.float16, score_fused, GPU_WRITES * TILE // probes)
    if device.type != "cpu":
        return ScanPlan(torch.float16, score_with(best_positions_of_many), GPU_WRITES // probes)
    if probes <= 2:
        return ScanPlan(torch.float16, score_with(best_positions), 20480)
    dtype = torch.bfloat16 if probes >= 16 and _multiplies_bfloat16() else torch.float32
    best = best_positions if probes < 64 else best_positions_of_many
    return ScanPlan(dtype, score_with(best), min(1280, 2**21 // probes))


def converted(rows_VPD: Tensor, dtype: torch.dtype) -> Tensor:
    """float16 rows in another precision; by way of float32, which is five times as fast to bfloat16."""
    return rows_VPD if dtype == rows_VPD.dtype else rows_VPD.float().to(dtype)


def _multiplies_bfloat16() -> bool:
    return bool(getattr(torch.cpu, "_is_avx512_bf16_supported", bool)())


def rounding_error(exact_RD: Tensor, rounded_RD: Tensor, largest_R: Tensor) -> Tensor:
    """A bound on |scanned - exact| of each probe's similarities, by Cauchy-Schwarz for unit vectors.

    |q·v - q̃·ṽ| ≤ |q - q̃| + |v - ṽ|, then the float32 summation, then the rounding of the result.
    """
    unit = torch.finfo(rounded_RD.dtype).eps / 2
    of_probe_R = (exact_RD - rounded_RD.float()).norm(dim=1)
    of_rows = unit if rounded_RD.dtype == torch.bfloat16 else 0.0  # stored float16 is exact in the other two
    of_sum = exact_RD.shape[1] * torch.finfo(torch.float32).eps
    error_R: Tensor = of_probe_R + of_rows + of_sum + unit * largest_R
    return 1.01 * error_R  # stored rows are not exactly of unit length


def rescore(gallery: Gallery, probes: Probes, videos_QM: Tensor) -> Scored:
    """These videos of each query in float32, sorted by score; equals keep the order of the gallery."""
    frame_QM = torch.zeros(videos_QM.shape, device=gallery.device)
    clip_QM = torch.zeros_like(frame_QM)
    best = best_of_pairs_fused if gallery.device.type == "cuda" and HAS_TRITON else best_of_pairs

    def score_pairs(pairs: tuple[GallerySlab, Tensor]) -> None:
        slab, (query_N, at_N) = pairs[0], pairs[1].unbind(1)
        video_N = videos_QM[query_N, at_N] - slab.first
        best_frame_NT, best_clip_NT = best(probes.rows_QTD, query_N, slab.rows_VPD, video_N, gallery.clips)
        frame_QM[query_N, at_N] = (probes.frame_weight_QT[query_N] * best_frame_NT).sum(-1)
        clip_QM[query_N, at_N] = (probes.clip_weight_QT[query_N] * best_clip_NT).sum(-1)

    in_threads(score_pairs, _pairs(gallery, videos_QM), gallery.device)
    score_QM, order_QM = (frame_QM + clip_QM).sort(dim=1, descending=True, stable=True)
    frame_weight_Q1 = probes.frame_weight_QT.sum(1, keepdim=True).clamp(min=1e-12)
    clip_weight_Q1 = probes.clip_weight_QT.sum(1, keepdim=True).clamp(min=1e-12)
    return (
        videos_QM.gather(1, order_QM),
        score_QM,
        frame_QM.gather(1, order_QM) / frame_weight_Q1,
        clip_QM.gather(1, order_QM) / clip_weight_Q1,
    )


def _pairs(gallery: Gallery, videos_QM: Tensor) -> list[tuple[GallerySlab, Tensor]]:
    """The (query, place) pairs whose video lies in a slab, a bounded number of them at once."""
    at_once = SCORED_AT_ONCE[gallery.device.type != "cpu"]
    pieces = []
    for slab in gallery.slabs:
        inside_QM = (videos_QM >= slab.first) & (videos_QM < slab.first + len(slab.rows_VPD))
        pairs_N2 = inside_QM.nonzero()
        step = max(1, at_once // (4 * slab.rows_VPD[:1].numel()))
        pieces += [(slab, pairs_N2[at : at + step]) for at in range(0, len(pairs_N2), step)]
    return pieces


def _rows(probes: Probes, at_Q: Tensor) -> Probes:
    return Probes(probes.rows_QTD[at_Q], probes.frame_weight_QT[at_Q], probes.clip_weight_QT[at_Q])
