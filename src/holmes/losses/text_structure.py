"""DreamPRVR's terms: similar queries of one video, and well-formed registers (CVPR 2026).

Q queries, V videos, D width
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from holmes.losses.objective import LossInputs
from holmes.losses.reduce import masked_mean


def text_structure_loss(query_QD: Tensor, owner_Q: Tensor, mask_Q: Tensor, temperature: float) -> Tensor:
    """Supervised contrastive loss between queries: those of one video are positives, the query is left out.

    mean over queries with partners of -1/|P| Σ_{p∈P} log (e^{cos_p/τ} / Σ_{j≠i} e^{cos_j/τ})
    """
    unit_QD = F.normalize(query_QD.float(), dim=-1)
    logits_QQ = (unit_QD @ unit_QD.T).float() / temperature
    itself_QQ = torch.eye(len(owner_Q), dtype=torch.bool, device=owner_Q.device)
    others_QQ = mask_Q.unsqueeze(0) & mask_Q.unsqueeze(1) & ~itself_QQ
    partners_QQ = others_QQ & (owner_Q.unsqueeze(0) == owner_Q.unsqueeze(1))
    # A query without any other keeps itself, so that its sum is finite; it does not count.
    summed_QQ = others_QQ | (itself_QQ & ~others_QQ.any(1, keepdim=True))
    everyone_Q1 = logits_QQ.masked_fill(~summed_QQ, -torch.inf).logsumexp(1, keepdim=True)
    loss_Q = masked_mean(everyone_Q1 - logits_QQ, partners_QQ, dim=1)
    return masked_mean(loss_Q, partners_QQ.any(1))


def text_structure_term(inputs: LossInputs, temperature: float) -> Tensor:
    owners = inputs.owners
    return text_structure_loss(inputs.query.query_QD, owners.owner_Q, owners.mask_Q, temperature)


def video_mean_term(inputs: LossInputs, name: str) -> Tensor:
    """The mean of a loss that the encoder computed video by video, over the videos that have queries."""
    loss_V, owners = inputs.video.extra[name], inputs.owners
    queries_V = torch.zeros_like(loss_V).index_add(0, owners.owner_Q, owners.mask_Q.to(loss_V.dtype))
    return masked_mean(loss_V, queries_V > 0)
