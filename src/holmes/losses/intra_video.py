"""L_intra: evidential learning within a video, with a soft query-clip alignment as the label (section 3.3).

V videos, M queries of one video, C clips, D width
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from holmes.evidence.dirichlet import EvidenceForm, concentration, sharp_evidence
from holmes.losses.evidential import evidential_loss
from holmes.losses.reduce import masked_mean
from holmes.transport.alignment import Alignment, flexible_alignment, scale_to_unit


def clip_query_similarity(query_VMD: Tensor, clips_VCD: Tensor, mask_VM: Tensor) -> Tensor:
    """Cosines of a video's own queries and clips, scaled to [0, 1] per video: V × M × C."""
    cosine_VMC = F.normalize(query_VMD, dim=-1) @ F.normalize(clips_VCD, dim=-1).transpose(1, 2)
    return scale_to_unit(cosine_VMC.float(), mask_VM)


def intra_video_loss(
    query_VMD: Tensor,
    clips_VCD: Tensor,
    mask_VM: Tensor,
    temperature: float,
    align: Alignment = flexible_alignment,
    form: EvidenceForm = sharp_evidence,
) -> Tensor:
    """L_U between each query's clip evidence and its aligned clips: mean over queries, then over videos."""
    similarity_VMC = clip_query_similarity(query_VMD, clips_VCD, mask_VM)
    target_VMC = align(similarity_VMC.detach(), mask_VM)
    loss_VM = evidential_loss(concentration(form(similarity_VMC, temperature)), target_VMC)
    return masked_mean(masked_mean(loss_VM, mask_VM, dim=1), mask_VM.any(1))
