"""The scan that Holmes had before its codes: every float16 row, in the fastest precision a CPU has for it.

For comparison only. One query multiplies float16 as it is; many convert blocks that stay in the cache to
bfloat16, so this needs a CPU that multiplies bfloat16.

Q queries, S parts of videos, P rows of a part, D width
"""

from __future__ import annotations

import torch
from torch import Tensor

from holmes.base.threads import in_threads
from holmes.index.engine.gallery import Gallery
from holmes.index.engine.nearest import Scored, prove_best
from holmes.index.engine.scan import Probes


def float16_search(gallery: Gallery, probes: Probes, top: int) -> Scored:
    """The best parts, exactly, by way of the float16 scan."""
    return prove_best(gallery, probes, float16_scan(gallery, probes), top)


def float16_scan(gallery: Gallery, probes: Probes) -> Tensor:
    """A bound that no part's exact score exceeds, Q × S, for queries of one probe."""
    exact_QD = probes.rows_QTD[:, 0]
    frame_weight_Q1, clip_weight_Q1 = probes.frame_weight_QT, probes.clip_weight_QT
    few = len(exact_QD) <= 2
    dtype = torch.float16 if few else torch.bfloat16
    rounded_QD = exact_QD.to(dtype)
    bound_QS = torch.empty((len(exact_QD), len(gallery)))

    def scan_block(block: tuple[int, Tensor]) -> None:
        first, rows_SPD = block
        rows_ND = rows_SPD.flatten(0, 1)
        if few:
            similarity_QSP = (rows_ND @ rounded_QD.T).T.reshape(len(exact_QD), *rows_SPD.shape[:2])
            frame_QS = similarity_QSP[..., : -gallery.clips].amax(-1).float()
            clip_QS = similarity_QSP[..., -gallery.clips :].amax(-1).float()
        else:
            similarity_SPQ = (rows_ND.float().to(dtype) @ rounded_QD.T).view(*rows_SPD.shape[:2], -1)
            frame_QS = similarity_SPQ[:, : -gallery.clips].amax(1).T.float()
            clip_QS = similarity_SPQ[:, -gallery.clips :].amax(1).T.float()
        weighted_QS = frame_weight_Q1 * frame_QS + clip_weight_Q1 * clip_QS
        bound_QS[:, first : first + len(rows_SPD)] = weighted_QS

    in_threads(
        scan_block, _blocks(gallery, 20480 if few else min(1280, 2**21 // len(exact_QD))), gallery.device
    )
    unit = torch.finfo(dtype).eps / 2
    error_Q1 = (exact_QD - rounded_QD.float()).norm(dim=1, keepdim=True) + (0 if few else unit) + unit + 1e-4
    return bound_QS.add_(1.01 * error_Q1)


def _blocks(gallery: Gallery, rows: int) -> list[tuple[int, Tensor]]:
    pieces = []
    for slab in gallery.slabs:
        step = max(1, rows // slab.rows_SPD.shape[1])
        starts = range(0, len(slab.rows_SPD), step)
        pieces += [(slab.first + at, slab.rows_SPD[at : at + step]) for at in starts]
    return pieces
