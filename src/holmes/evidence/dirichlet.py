"""From similarity to evidence, from evidence to a Dirichlet and the opinion it expresses (eq. 3-5, 9).

Everything here is computed in float32 or better: at τ = .04 evidence spans sixteen decades.

Q queries (or any leading shape), V candidates
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from holmes.records import Opinion

EvidenceForm = Callable[[Tensor, float], Tensor]


def sharp_evidence(similarity_QV: Tensor, temperature: float) -> Tensor:
    """e = exp(tanh(s) / τ): the form behind the published numbers."""
    return torch.exp(torch.tanh(at_least_float32(similarity_QV)) / temperature)


def bounded_evidence(similarity_QV: Tensor, temperature: float) -> Tensor:
    """e = exp(tanh(s / τ)), eq. 3 as printed: bounds u to [.269, .731]."""
    return torch.exp(torch.tanh(at_least_float32(similarity_QV) / temperature))


def concentration(evidence_QV: Tensor) -> Tensor:
    """α = e + 1, eq. 4."""
    return evidence_QV + 1


def strength(concentration_QV: Tensor) -> Tensor:
    """S = Σ_j α_j, eq. 5."""
    return concentration_QV.sum(-1)


def opinion(evidence_QV: Tensor) -> Opinion:
    """b_j = (α_j - 1) / S and u = K / S, eq. 5.

    Written with e rather than α - 1, which would lose small evidence to rounding.
    """
    strength_Q = strength(concentration(evidence_QV))
    return Opinion(evidence_QV / strength_Q.unsqueeze(-1), evidence_QV.shape[-1] / strength_Q)


def expected_entropy(concentration_QV: Tensor) -> Tensor:
    """ξ = Σ_k α_k/S (ψ(S + 1) - ψ(α_k + 1)), eq. 9: aleatoric uncertainty in nats."""
    strength_Q1 = concentration_QV.sum(-1, keepdim=True)
    surprise_QV = torch.digamma(strength_Q1 + 1) - torch.digamma(concentration_QV + 1)
    return (concentration_QV / strength_Q1 * surprise_QV).sum(-1)


def at_least_float32(values: Tensor) -> Tensor:
    return values if values.dtype == torch.float64 else values.float()
