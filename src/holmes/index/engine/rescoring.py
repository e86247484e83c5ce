"""Exact scores of given pairs of a query and a part.

Codes have a known error. The best row of a part is among the rows whose code comes within twice that error of
the best code: a few in a hundred. Only these rows are read in float16 and multiplied in float64. A GPU
multiplies all rows of the part.

Q queries, T probes of a query, U queries of a chunk, R probes of several, S parts of videos, N pairs,
P rows of a part, K rows that may be the best, D width
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from holmes.errors import HolmesError
from holmes.index.engine.exact_sums import WEIGHT_STEP, on_grid
from holmes.index.engine.gallery import AROUND_ROW, Gallery, GallerySlab
from holmes.index.engine.kernels import code_products
from holmes.index.engine.scan import NOT_FINITE, Probes
from holmes.index.storage.checksums import checksums
from holmes.index.storage.codes import LONGEST_ROW, SCALE, SLACK, ProbeCodes
from holmes.index.storage.segments import rows_do_not_match

if torch.cuda.is_available():  # a CPU has no use for Triton, which takes long to import
    from holmes.index.engine.gpu_kernels import HAS_TRITON, best_of_pairs_fused
else:
    HAS_TRITON = False

CODES_AT_ONCE = (2**22, 2**28)  # bytes of codes gathered: fit for a CPU's cache, for a GPU


@dataclass(frozen=True)
class Pairs:
    """Pairs of a query and a part, with their exact scores."""

    query_N: Tensor
    part_N: Tensor
    branches_N2: Tensor  # the frames' and the clips' weighted sum over the probes, float64

    @cached_property
    def score_N(self) -> Tensor:
        return self.branches_N2.sum(1)


def score_pairs(gallery: Gallery, probes: Probes, query_N: Tensor, part_N: Tensor) -> Pairs:
    """Pairs in the order of their queries, then of their parts."""
    branches_N2 = torch.zeros((len(part_N), 2), dtype=torch.float64, device=gallery.device)
    weights_Q2T = probes.weights_QT2.transpose(1, 2).double()
    fused = HAS_TRITON and bool(gallery.slabs) and gallery.slabs[0].rows_SPD.is_cuda
    for slab, at in _chunks(gallery, part_N, fused):
        query, part = query_N[at], part_N[at] - slab.first
        weights_N2T = weights_Q2T[query]
        if fused:
            best_N2T = torch.stack(
                best_of_pairs_fused(probes.rows_QTD, query, slab.rows_SPD, part, gallery.clips), 1
            )
        else:
            best_N2T = best_rows(gallery, slab, probes, query, part, weights_N2T)
        branches_N2[at] = (weights_N2T * on_grid(best_N2T, WEIGHT_STEP)).sum(2)
    if not bool(branches_N2.isfinite().all()):
        raise HolmesError(NOT_FINITE)
    return Pairs(query_N, part_N, branches_N2)


def best_rows(
    gallery: Gallery, slab: GallerySlab, probes: Probes, query_N: Tensor, part_N: Tensor, weights_N2T: Tensor
) -> Tensor:
    """The best frame and the best clip of a part for every probe of a query, N × 2 × T, exact; 0 where a
    probe has no weight."""
    (_, T, _), P, pairs = probes.rows_QTD.shape, slab.codes_SPD.shape[1], len(part_N)
    first, last = int(query_N[0]), int(query_N[-1])
    asked = slice(first * T, (last + 1) * T)
    own_N = query_N - first
    codes_NPD, numbers_N3 = slab.codes_SPD.index_select(0, part_N), slab.numbers_S3[part_N]
    similarity_NPT, error_N1T = _fine_similarity(codes_NPD, probes.codes[asked], T, own_N)
    similarity_NPT *= numbers_N3[:, SCALE, None, None]
    branches = similarity_NPT[:, : -gallery.clips], similarity_NPT[:, -gallery.clips :]
    # The best row is within twice the codes' error of the best code.
    error_N2T = torch.addcmul(LONGEST_ROW * error_N1T + SLACK, 1 + error_N1T, numbers_N3[:, 1:].unsqueeze(2))
    least_N2T = torch.stack([branch_NPT.amax(1) for branch_NPT in branches], 1) - 2 * error_N2T
    least_N2T.masked_fill_(weights_N2T == 0, torch.inf)
    may_be_NPT = torch.cat([branches[at] >= least_N2T[:, at : at + 1] for at in range(2)], 1)
    pair_K, row_K, t_K = may_be_NPT.nonzero().unbind(1)
    at_K = (part_N[pair_K] * P + row_K).to(slab.rows_SPD.device)
    rows_KD = slab.rows_SPD.flatten(0, 1).index_select(0, at_K)
    refuse_damaged(rows_KD, slab.sums_SP, at_K)
    gallery.mapped_rows.touched += AROUND_ROW * len(rows_KD)
    probes_RD = probes.rows_QTD.flatten(0, 1)[asked].double()
    probes_KD = probes_RD.index_select(0, own_N[pair_K] * T + t_K)
    # float16 → float32 → float64 is eight times as fast as float16 → float64.
    exact_K = torch.linalg.vecdot(rows_KD.to(query_N.device).float().double(), probes_KD)
    best_N2T = torch.zeros((pairs, 2, T), dtype=torch.float64, device=query_N.device)
    index_K = (2 * pair_K + (row_K >= P - gallery.clips)) * T + t_K
    best_N2T.view(-1).scatter_reduce_(0, index_K, exact_K, "amax", include_self=False)
    return best_N2T


def refuse_damaged(rows_KD: Tensor, sums_SP: Tensor | None, at_K: Tensor) -> None:
    """Refuse rows that do not match their checksums."""
    if sums_SP is not None and not torch.equal(checksums(rows_KD), sums_SP.view(-1).index_select(0, at_K)):
        raise HolmesError(rows_do_not_match("the index"))


def _fine_similarity(codes_NPD: Tensor, probes: ProbeCodes, T: int, own_N: Tensor) -> tuple[Tensor, Tensor]:
    """Each row's similarity to the T probes of its query, before its part's scale, and their error."""
    product_NPR = code_products(probes.codes_R2D.flatten(0, 1))(codes_NPD)
    product_NPUT2 = product_NPR.view(*codes_NPD.shape[:2], -1, T, 2)
    product_NPT2 = product_NPUT2[torch.arange(len(own_N), device=own_N.device), :, own_N]
    scale_N1T2 = probes.scale_R2.view(-1, 1, T, 2)[own_N]
    coarse_NPT, fine_NPT = (product_NPT2 * scale_N1T2).unbind(3)
    return coarse_NPT + fine_NPT, probes.error_R2[:, 1].view(-1, 1, T)[own_N]


def _chunks(gallery: Gallery, part_N: Tensor, fused: bool) -> list[tuple[GallerySlab, Tensor]]:
    """The pairs of each slab, in chunks whose gathered codes fit the cache."""
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
