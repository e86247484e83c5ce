"""The exact scores of chosen pairs of a query and a part of a video.

The best row of a part is one of those whose codes come within twice their error of the best code: a few of a
hundred. Only these are read in float16 and multiplied in float64. A GPU multiplies all rows where they lie.

Q queries, T probes of a query, U queries of a chunk, R probes of all of these, S parts of videos, N pairs,
P rows of a part, K rows that may be the best, D width
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from holmes.errors import HolmesError
from holmes.index.codes import LONGEST_ROW, SCALE, SLACK
from holmes.index.gallery import Gallery, GallerySlab
from holmes.index.grid import WEIGHT_STEP, on_grid
from holmes.index.kernel import code_products
from holmes.index.scan import NOT_FINITE, Probes

if torch.cuda.is_available():  # a CPU has no use for Triton, which takes long to import
    from holmes.index.gpu_kernel import HAS_TRITON, best_of_pairs_fused
else:
    HAS_TRITON = False

CODES_AT_ONCE = (2**22, 2**28)  # bytes of codes gathered: fit for a CPU's cache, for a GPU


@dataclass(frozen=True)
class Pairs:
    """Queries and parts, and the exact scores of these."""

    query_N: Tensor
    part_N: Tensor
    frame_N: Tensor  # each branch's weighted sum over the probes, float64
    clip_N: Tensor

    def __getitem__(self, at_N: Tensor) -> Pairs:
        return Pairs(*(value_N[at_N] for value_N in vars(self).values()))

    @property
    def score_N(self) -> Tensor:
        return self.frame_N + self.clip_N


def score_pairs(gallery: Gallery, probes: Probes, query_N: Tensor, part_N: Tensor) -> Pairs:
    """Pairs in the order of their queries, then of their parts."""
    branches_2N = torch.zeros((2, len(part_N)), dtype=torch.float64, device=gallery.device)
    weights_2QT = torch.stack([probes.frame_weight_QT, probes.clip_weight_QT]).double()
    fused = HAS_TRITON and bool(gallery.slabs) and gallery.slabs[0].rows_SPD.is_cuda

    def score_chunk(slab: GallerySlab, at_N: Tensor) -> None:
        query, part = query_N[at_N], part_N[at_N] - slab.first
        if fused:
            best_2NT = torch.stack(
                best_of_pairs_fused(probes.rows_QTD, query, slab.rows_SPD, part, gallery.clips)
            )
        else:
            best_2NT = best_rows(gallery, slab, probes, query, part)
        weighted_2NT = weights_2QT[:, query] * on_grid(best_2NT, WEIGHT_STEP)
        branches_2N[:, at_N] = weighted_2NT.sum(-1)

    for chunk in _chunks(gallery, part_N, fused):
        score_chunk(*chunk)
    if not bool(branches_2N.isfinite().all()):
        raise HolmesError(NOT_FINITE)
    return Pairs(query_N, part_N, *branches_2N.unbind(0))


def best_rows(gallery: Gallery, slab: GallerySlab, probes: Probes, query_N: Tensor, part_N: Tensor) -> Tensor:
    """The best frame and the best clip of a part for every probe of a query, 2 × N × T, exact; 0 where a
    probe has no weight."""
    (_, T, _), P, pairs = probes.rows_QTD.shape, slab.codes_SPD.shape[1], len(part_N)
    query_U, own_N = torch.unique_consecutive(query_N, return_inverse=True)
    t_T = torch.arange(T, device=query_N.device)
    codes = probes.codes[(query_U.unsqueeze(1) * T + t_T).flatten()]
    own_NT = own_N.unsqueeze(1) * T + t_T  # which of these are a pair's own
    gathered_NPD = slab.codes_SPD.index_select(0, part_N)
    product_NPR = code_products(torch.cat([codes.coarse_RD, codes.fine_RD]))(gathered_NPD).view(pairs, P, -1)
    coarse_NPT, fine_NPT = (
        product_NPR.gather(2, (own_NT + start).unsqueeze(1).expand(-1, P, -1))
        for start in (0, len(codes.coarse_RD))
    )
    numbers_N3, own = slab.numbers_S3[part_N], codes[own_NT]
    similarity_NPT = own.scale_R.unsqueeze(1) * coarse_NPT + own.fine_scale_R.unsqueeze(1) * fine_NPT
    similarity_NPT *= numbers_N3[:, SCALE, None, None]
    may_be_NPT = torch.cat(
        [
            _may_be_best(similarity, numbers_N3[:, 1 + branch, None], own.fine_error_R, weight_QT[query_N])
            for branch, (similarity, weight_QT) in enumerate(
                zip(
                    (similarity_NPT[:, : -gallery.clips], similarity_NPT[:, -gallery.clips :]),
                    (probes.frame_weight_QT, probes.clip_weight_QT),
                    strict=True,
                )
            )
        ],
        1,
    )
    pair_K, row_K, t_K = may_be_NPT.nonzero().unbind(1)
    place = slab.rows_SPD.device
    rows_KD = slab.rows_SPD.flatten(0, 1).index_select(0, (part_N[pair_K] * P + row_K).to(place))
    probes_KD = probes.rows_QTD[query_N[pair_K], t_K]
    # By way of float32: eight times as fast.
    exact_K = torch.linalg.vecdot(rows_KD.to(query_N.device).float().double(), probes_KD.double())
    best_2NT = torch.full((2, pairs, T), -torch.inf, dtype=torch.float64, device=query_N.device)
    index_K = ((row_K >= P - gallery.clips) * pairs + pair_K) * T + t_K
    best_2NT.view(-1).scatter_reduce_(0, index_K, exact_K, "amax")
    return best_2NT.masked_fill(best_2NT.isneginf(), 0.0)


def _may_be_best(similarity_NPT: Tensor, error_N1: Tensor, error_NT: Tensor, weight_NT: Tensor) -> Tensor:
    """Which rows of a branch are within twice the codes' error of the best, for probes that have weight."""
    error_NT = (1 + error_NT) * error_N1 + LONGEST_ROW * error_NT + SLACK
    least_NT = (similarity_NPT.amax(1) - 2 * error_NT).masked_fill(weight_NT == 0, torch.inf)
    return similarity_NPT >= least_NT.unsqueeze(1)


def _chunks(gallery: Gallery, part_N: Tensor, fused: bool) -> list[tuple[GallerySlab, Tensor]]:
    """Which pairs lie in each slab, not too many at once where their codes are gathered."""
    if len(gallery.slabs) == 1:
        split = [torch.arange(len(part_N), device=gallery.device)]
    else:
        first = [slab.first for slab in gallery.slabs[1:]]
        slab_N = torch.bucketize(part_N, torch.tensor(first, device=gallery.device), right=True)
        counts = slab_N.bincount(minlength=len(gallery.slabs)).tolist()
        split = list(slab_N.argsort(stable=True).split_with_sizes(counts))
    chunks = []
    for slab, own_N in zip(gallery.slabs, split, strict=True):
        most = CODES_AT_ONCE[gallery.device.type != "cpu"] // slab.codes_SPD[:1].numel()
        step = max(len(own_N) if fused else most, 1)
        chunks += [(slab, own_N[at : at + step]) for at in range(0, len(own_N), step)]
    return chunks
