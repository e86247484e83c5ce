"""L_nce: InfoNCE on raw dot products, without temperature (appendix B.1).

Q queries, V videos of the batch
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from holmes.losses.reduce import masked_mean


def contrastive_loss(dot_QV: Tensor, owner_Q: Tensor, mask_Q: Tensor) -> Tensor:
    """-log of the positive's share of exp(scores), text→video and video→text.

    Video→text has all of a video's queries in the numerator.
    """
    dot_QV = dot_QV.float()
    positive_Q = dot_QV.gather(1, owner_Q.unsqueeze(1)).squeeze(1)
    text_to_video_Q = dot_QV.logsumexp(1) - positive_Q

    own_QV = F.one_hot(owner_Q, dot_QV.shape[1]).bool() & mask_Q.unsqueeze(1)
    everyone_V = dot_QV.masked_fill(~mask_Q.unsqueeze(1), -torch.inf).logsumexp(0)
    # A video without queries would give logsumexp of nothing and NaN gradients: it keeps all queries instead.
    lonely_V = ~own_QV.any(0)
    own_V = dot_QV.masked_fill(~(own_QV | lonely_V), -torch.inf).logsumexp(0)
    return masked_mean(text_to_video_Q, mask_Q) + masked_mean(everyone_V - own_V, ~lonely_V)
