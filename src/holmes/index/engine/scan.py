"""The int8 scan: an approximate score of every part, with a bound on its error.

Both branches and both kinds of query take one form here. A query is a few probes, and it scores a part with
Σ over probes of (frame weight · best frame + clip weight · best clip). A single query is one probe with both
weights. A dual query is one probe for each token (frames only) and one for the pooled vector (clips only).

Q queries, T probes of a query, R probes of all queries, S parts of videos, P rows of a part, D width
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from holmes.base.parallel import in_threads
from holmes.errors import HolmesError
from holmes.index.engine.exact_sums import QUERY_STEP, WEIGHT_STEP, ScoreSums, on_grid, sum_scores
from holmes.index.engine.gallery import Gallery, GallerySlab
from holmes.index.engine.kernels import FEW, best_codes
from holmes.index.storage.codes import LONGEST_ROW, SCALE, SLACK, ProbeCodes, encode_probes
from holmes.index.storage.segments import TILE
from holmes.records import QueryEmbedding

if torch.cuda.is_available():  # a CPU has no use for Triton, which takes long to import
    from holmes.index.engine.gpu_kernels import HAS_TRITON, weighted_best_fused
else:
    HAS_TRITON = False

NOT_FINITE = "the index holds numbers that are not finite; run 'holmes index check'."
GPU_WRITES = 2**28  # similarities that a block of the scan may write on a GPU: a GB at most


@dataclass(frozen=True)
class Probes:
    """Queries as unit vectors with weights, all on the grid of exact scores; a padded probe has weight 0."""

    rows_QTD: Tensor  # float32
    frame_weight_QT: Tensor
    clip_weight_QT: Tensor

    @cached_property
    def codes(self) -> ProbeCodes:
        """The codes of all probes, query by query."""
        return encode_probes(self.rows_QTD.flatten(0, 1))

    @cached_property
    def weights_QT2(self) -> Tensor:
        """The weights of frames and of clips."""
        return torch.stack([self.frame_weight_QT, self.clip_weight_QT], 2)

    @cached_property
    def error_Q3(self) -> Tensor:
        """How far an exact score may exceed the scan's: times a part's ρ of frames, its ρ of clips, and 1."""
        error_QT1 = self.codes.error_R2[:, 0].view_as(self.frame_weight_QT).unsqueeze(2)
        of_parts_Q2 = ((1 + error_QT1) * self.weights_QT2).sum(1)
        of_probes_Q = ((LONGEST_ROW * error_QT1 + SLACK) * self.weights_QT2).sum((1, 2))
        return torch.cat([of_parts_Q2, of_probes_Q.unsqueeze(1)], 1)

    def __getitem__(self, at_Q: Tensor | slice) -> Probes:
        """Some of the queries, with their codes."""
        some = Probes(self.rows_QTD[at_Q], self.frame_weight_QT[at_Q], self.clip_weight_QT[at_Q])
        codes = ProbeCodes(
            *(
                value.unflatten(0, self.frame_weight_QT.shape)[at_Q].flatten(0, 1)
                for value in vars(self.codes).values()
            )
        )
        some.__dict__.update(codes=codes, error_Q3=self.error_Q3[at_Q], weights_QT2=self.weights_QT2[at_Q])
        return some

    def to(self, device: torch.device | str) -> Probes:
        if self.rows_QTD.device == torch.device(device):
            return self
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


def scan(gallery: Gallery, probes: Probes, compared_S: Tensor | None) -> tuple[Tensor, ScoreSums]:
    """A bound on the exact score of every part, Q × S, and the sums of the scores that the scan found.

    Parts that are not compared get -inf. `compared_S` is None if all are compared.
    """
    queries, (codes, weights_R2, owner_R) = len(probes.rows_QTD), _in_use(probes)
    coarse_RD, scale_R1 = codes.codes_R2D[:, 0].contiguous(), codes.scale_R2[:, :1]
    score = block_scores(coarse_RD, scale_R1 * weights_R2)
    bound_QS = torch.zeros((queries, len(gallery)), device=gallery.device)

    def scan_block(block: GallerySlab) -> tuple[Tensor, Tensor, Tensor]:
        at = slice(block.first, block.first + len(block.codes_SPD))
        score_QS = _by_query(score(block.codes_SPD, gallery.clips), owner_R, queries)
        score_QS *= block.numbers_S3[:, SCALE]
        compared = None if compared_S is None else compared_S[at]
        sum_Q, squares_Q = sum_scores(score_QS, compared)
        errors_S3 = torch.cat([block.numbers_S3[:, 1:], torch.ones_like(block.numbers_S3[:, :1])], 1)
        bound_QS[:, at] = torch.addmm(score_QS, probes.error_Q3, errors_S3.T)
        finite = bound_QS[:, at].isfinite().all()
        if compared is not None:
            bound_QS[:, at].masked_fill_(~compared, -torch.inf)
        return sum_Q, squares_Q, finite

    done = in_threads(scan_block, blocks(gallery, len(weights_R2)), gallery.device)
    nothing_Q = bound_QS.new_zeros(queries, dtype=torch.int64)
    nothing = (nothing_Q, nothing_Q, torch.ones((), dtype=torch.bool, device=gallery.device))
    sum_BQ, squares_BQ, finite_B = map(torch.stack, zip(nothing, *done, strict=True))
    if not bool(finite_B.all()):
        raise HolmesError(NOT_FINITE)
    count = len(gallery) if compared_S is None else int(compared_S.sum())
    return bound_QS, ScoreSums(count, sum_BQ.sum(0), squares_BQ.sum(0))


def _by_query(value_RX: Tensor, owner_R: Tensor | None, queries: int) -> Tensor:
    """The sum over the probes of each query."""
    if owner_R is None:
        return value_RX
    return value_RX.new_zeros((queries, value_RX.shape[1])).index_add_(0, owner_R, value_RX)


def _in_use(probes: Probes) -> tuple[ProbeCodes, Tensor, Tensor | None]:
    """The probes with weight, their weights, and the query of each; None where every query is one probe."""
    weights_QT2 = probes.weights_QT2
    if weights_QT2.shape[1] == 1:
        return probes.codes, weights_QT2[:, 0], None
    used_QT = weights_QT2.sum(2) > 0
    return probes.codes[used_QT.flatten()], weights_QT2[used_QT], used_QT.nonzero()[:, 0]


def blocks(gallery: Gallery, probes: int) -> list[GallerySlab]:
    """Slabs cut into pieces: what is written for one stays in the cache of a CPU, or in a GB of a GPU."""
    if gallery.device.type == "cpu":
        rows = 65536 if probes <= FEW else 20480
    else:
        rows = (TILE if HAS_TRITON else 1) * GPU_WRITES // probes
    pieces = []
    for slab in gallery.slabs:
        step = max(1, rows // slab.codes_SPD.shape[1])
        for start in range(0, len(slab.codes_SPD), step):
            at = slice(start, start + step)
            arrays = (slab.codes_SPD[at], slab.numbers_S3[at], slab.rows_SPD[at])  # no sums: none is rescored
            pieces.append(GallerySlab(slab.first + start, *arrays))
    return pieces


def block_scores(codes_RD: Tensor, weights_R2: Tensor) -> Callable[[Tensor, int], Tensor]:
    """The inner loop: a function of parts' codes and the number of clips, giving the weighted sum of the best
    frame and the best clip, R × S, still to be multiplied by the parts' scales."""
    frame_weight_R, clip_weight_R = (weight_R.contiguous() for weight_R in weights_R2.unbind(1))
    if codes_RD.device.type == "cuda" and HAS_TRITON:
        return lambda codes_SPD, clips: weighted_best_fused(
            codes_RD, codes_SPD, clips, frame_weight_R, clip_weight_R
        )
    best = best_codes(codes_RD)

    def score(codes_SPD: Tensor, clips: int) -> Tensor:
        frame_RS, clip_RS = best(codes_SPD, clips)
        return frame_weight_R.unsqueeze(1) * frame_RS + clip_weight_R.unsqueeze(1) * clip_RS

    return score
