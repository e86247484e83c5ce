"""The scan: a score of every part of every video, in the fastest precision, and how far it can be off.

Both branches and both kinds of query are one thing here. A query is a few probes, and its score of a part is
Σ over probes of (frame weight · best frame + clip weight · best clip): one probe with both weights, or for a
dual query one for each token (frames only) and one for the pooled vector (clips only).

Q queries, T probes of a query, R probes of all queries, S parts of videos, P rows of a part, D width
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from holmes.errors import HolmesError
from holmes.index.gallery import Gallery, GallerySlab
from holmes.index.grid import QUERY_STEP, WEIGHT_STEP, on_grid
from holmes.index.kernel import HAS_TRITON, best_positions, best_positions_of_many, weighted_best_fused
from holmes.index.score_sums import ScoreSums, sum_scores
from holmes.index.segment import TILE
from holmes.index.threads import in_threads
from holmes.records import QueryEmbedding

GPU_WRITES = 2**28  # similarities that a block of the scan may write on a GPU: a GB at most


@dataclass(frozen=True)
class Probes:
    """Queries as unit vectors with weights, all on the grid of exact scores; a padded probe has weight 0."""

    rows_QTD: Tensor  # float32
    frame_weight_QT: Tensor
    clip_weight_QT: Tensor

    def to(self, device: torch.device | str) -> Probes:
        return Probes(
            *(part.to(device) for part in (self.rows_QTD, self.frame_weight_QT, self.clip_weight_QT))
        )


def make_probes(query: QueryEmbedding, frame_weight: float, clip_weight: float) -> Probes:
    pooled_Q1D = F.normalize(query.query_QD.float(), dim=-1).unsqueeze(1)
    one_Q1 = torch.ones_like(pooled_Q1D[..., 0])
    if query.tokens_QTD is None or query.token_weights_QT is None:
        return _on_grid(pooled_Q1D, frame_weight * one_Q1, clip_weight * one_Q1)
    tokens_QTD = F.normalize(query.tokens_QTD.float(), dim=-1)
    weights_QT = query.token_weights_QT.float()
    return _on_grid(
        torch.cat([pooled_Q1D, tokens_QTD], 1),
        torch.cat([0 * one_Q1, frame_weight * weights_QT], 1),
        torch.cat([clip_weight * one_Q1, torch.zeros_like(weights_QT)], 1),
    )


def _on_grid(rows_QTD: Tensor, frame_weight_QT: Tensor, clip_weight_QT: Tensor) -> Probes:
    weights = (on_grid(weight_QT, WEIGHT_STEP) for weight_QT in (frame_weight_QT, clip_weight_QT))
    return Probes(on_grid(rows_QTD, QUERY_STEP), *weights)


def scan(gallery: Gallery, probes: Probes, compared_S: Tensor | None) -> tuple[Tensor, Tensor, ScoreSums]:
    """Scores of all parts in the fastest precision, Q × S, how far each query's can be off, and their sums.

    Parts that are not compared get -inf; `compared_S` is None where all are.
    """
    queries, (exact_RD, frame_weight_R, clip_weight_R, owner_R) = len(probes.rows_QTD), _in_use(probes)
    plan = scan_plan(len(exact_RD), gallery.device)
    rounded_RD = exact_RD.to(plan.dtype)
    score_QS = torch.zeros((queries, len(gallery)), device=gallery.device)

    def scan_block(block: GallerySlab) -> tuple[Tensor, ...]:
        rows_SPD = converted(block.rows_SPD, plan.dtype)
        weighted_RS, largest_R = plan.score(
            rounded_RD, rows_SPD, gallery.clips, frame_weight_R, clip_weight_R
        )
        at = slice(block.first, block.first + len(rows_SPD))
        if owner_R is None:
            score_QS[:, at] = weighted_RS
        else:
            score_QS[:, at].index_add_(0, owner_R, weighted_RS)
        finite = score_QS[:, at].isfinite().all()
        compared = None if compared_S is None else compared_S[at]
        sum_Q, squares_Q = sum_scores(score_QS[:, at], compared)
        if compared is not None:
            score_QS[:, at].masked_fill_(~compared, -torch.inf)
        return largest_R, sum_Q, squares_Q, finite

    done = in_threads(scan_block, blocks(gallery, plan.rows), gallery.device)
    nothing_Q = score_QS.new_zeros(queries, dtype=torch.int64)
    yes = torch.ones((), dtype=torch.bool, device=gallery.device)
    nothing = (torch.zeros_like(exact_RD[:, 0]), nothing_Q, nothing_Q, yes)
    largest_BR, sum_BQ, squares_BQ, finite_B = map(torch.stack, zip(nothing, *done, strict=True))
    if not bool(finite_B.all()):
        raise HolmesError("the index holds numbers that are not finite; run 'holmes index check'.")
    count = len(gallery) if compared_S is None else int(compared_S.sum())
    all_scores = ScoreSums(count, sum_BQ.sum(0), squares_BQ.sum(0))
    error_R = (frame_weight_R + clip_weight_R) * rounding_error(exact_RD, rounded_RD, largest_BR.amax(0))
    if owner_R is None:
        return score_QS, error_R, all_scores
    error_Q = torch.zeros(queries, device=gallery.device).index_add_(0, owner_R, error_R)
    return score_QS, error_Q, all_scores


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
        step = max(1, rows // slab.rows_SPD.shape[1])
        starts = range(0, len(slab.rows_SPD), step)
        pieces += [GallerySlab(slab.first + at, slab.rows_SPD[at : at + step]) for at in starts]
    return pieces


@dataclass(frozen=True)
class ScanPlan:
    """How to scan: the precision, the inner loop, and how many rows it is given at once.

    The inner loop takes probes, rows, the number of clips and both weights; it gives the scores, R × S, and
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
        probes_RD: Tensor, rows_SPD: Tensor, clips: int, frame_weight_R: Tensor, clip_weight_R: Tensor
    ) -> tuple[Tensor, Tensor]:
        frame_RS, clip_RS = (part.float() for part in best(probes_RD, rows_SPD, clips))
        weighted_RS = frame_weight_R.unsqueeze(1) * frame_RS + clip_weight_R.unsqueeze(1) * clip_RS
        return weighted_RS, torch.maximum(frame_RS.abs(), clip_RS.abs()).amax(1)

    return score


def score_fused(
    probes_RD: Tensor, rows_SPD: Tensor, clips: int, frame_weight_R: Tensor, clip_weight_R: Tensor
) -> tuple[Tensor, Tensor]:
    """The inner loop of a GPU. Its sums stay float32, so nothing is rounded after them."""
    weighted_RS = weighted_best_fused(probes_RD, rows_SPD, clips, frame_weight_R, clip_weight_R)
    return weighted_RS, torch.zeros_like(frame_weight_R)


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


def converted(rows_SPD: Tensor, dtype: torch.dtype) -> Tensor:
    """float16 rows in another precision; by way of float32, which is five times as fast to bfloat16."""
    return rows_SPD if dtype == rows_SPD.dtype else rows_SPD.float().to(dtype)


def _multiplies_bfloat16() -> bool:
    return bool(getattr(torch.cpu, "_is_avx512_bf16_supported", bool)())


def rounding_error(exact_RD: Tensor, rounded_RD: Tensor, largest_R: Tensor) -> Tensor:
    """A bound on |scanned - exact| of each probe's similarities, by Cauchy-Schwarz for unit vectors.

    |q·v - q̃·ṽ| ≤ |q - q̃| + |v - ṽ|, then the float32 summation, then the rounding of the result, here to
    its precision and of the exact one to its grid.
    """
    unit = torch.finfo(rounded_RD.dtype).eps / 2
    of_probe_R = (exact_RD - rounded_RD.float()).norm(dim=1)
    of_rows = unit if rounded_RD.dtype == torch.bfloat16 else 0.0  # stored float16 is exact in the other two
    of_sum = exact_RD.shape[1] * torch.finfo(torch.float32).eps
    error_R: Tensor = of_probe_R + of_rows + of_sum + WEIGHT_STEP + unit * largest_R
    return 1.01 * error_R  # stored rows are not exactly of unit length
