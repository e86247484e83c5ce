"""L_inter: evidential learning between videos, on either branch and on their fused opinion (eq. 18).

Q queries, V videos of the batch
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from holmes.evidence.dirichlet import concentration
from holmes.evidence.fusion import fuse_evidence
from holmes.losses.evidential import evidential_loss
from holmes.losses.reduce import masked_mean

TERMS = ("frame", "clip", "fused")


def inter_video_loss(
    frame_evidence_QV: Tensor,
    clip_evidence_QV: Tensor,
    target_QV: Tensor,
    mask_Q: Tensor,
    terms: Collection[str] = TERMS,
) -> dict[str, Tensor]:
    """L_inter = L_U(α^f, ŷ) + L_U(α^c, ŷ) + L_U(α^o, ŷ), as named terms; any subset of them."""
    evidence = {
        "frame": frame_evidence_QV,
        "clip": clip_evidence_QV,
        "fused": fuse_evidence(frame_evidence_QV, clip_evidence_QV),
    }
    chosen_NQV = torch.stack([concentration(evidence[term]) for term in TERMS if term in terms])
    losses_NQ = evidential_loss(chosen_NQV, target_QV)
    names = [f"inter_{term}" for term in TERMS if term in terms]
    return {name: masked_mean(loss_Q, mask_Q) for name, loss_Q in zip(names, losses_NQ, strict=True)}
