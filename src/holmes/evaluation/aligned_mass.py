"""How much of an alignment's mass lies inside the true moments.

V videos, M queries of one video, Q queries, C clips, D width
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holmes.evaluation.localise import positions_inside
from holmes.evaluation.scoring import Encoded
from holmes.transport.alignment import Alignment, scale_to_unit

CHUNK = 256  # videos aligned at once


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
    query_VMD, mask_VM, place_Q = by_video(encoded.queries.query_QD, encoded.owner_Q, videos)
    rows_Q = torch.from_numpy(np.flatnonzero(known_Q)).to(clips_VCD.device)
    inside_QC = positions_inside(moments_Q2[known_Q].astype(np.float64), clips)
    inside_on_device_QC = torch.from_numpy(inside_QC).to(clips_VCD.device)
    figures = {"queries": len(inside_QC), "even": 100 * float(inside_QC.mean())}
    for name, align in alignments.items():
        alignment_VMC = torch.cat(
            [
                align(scale_to_unit(query @ clip.transpose(1, 2), mask), mask)
                for query, clip, mask in zip(
                    query_VMD.split(CHUNK), clips_VCD.split(CHUNK), mask_VM.split(CHUNK), strict=True
                )
            ]
        )
        own_QC = alignment_VMC.flatten(0, 1)[place_Q[rows_Q]]
        figures[name] = 100 * (own_QC * inside_on_device_QC).sum(1).mean().item()
    return figures


def by_video(query_QD: Tensor, owner_Q: Tensor, videos: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, sorted by video, regrouped as V × M × D; the mask of places taken; each query's place."""
    counts_V = torch.bincount(owner_Q, minlength=videos)
    most = int(counts_V.max())
    slot_Q = torch.arange(len(owner_Q), device=owner_Q.device) - (counts_V.cumsum(0) - counts_V)[owner_Q]
    place_Q = owner_Q * most + slot_Q
    query_ND = query_QD.new_zeros(videos * most, query_QD.shape[1]).index_copy(0, place_Q, query_QD)
    mask_VM = torch.arange(most, device=owner_Q.device) < counts_V.unsqueeze(1)
    return query_ND.unflatten(0, (videos, most)), mask_VM, place_Q
