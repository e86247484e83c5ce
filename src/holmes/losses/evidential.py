"""L_U: expected squared error between a label and the probabilities of a Dirichlet (eq. 17).

Q queries (or any leading shape), K classes
"""

from __future__ import annotations

from torch import Tensor

from holmes.evidence.dirichlet import strength


def evidential_loss(concentration_QK: Tensor, target_QK: Tensor) -> Tensor:
    """L_U = Σ_j (ŷ_j - m_j)² + m_j (1 - m_j) / (S + 1) with m = α / S.

    The variance equals α (S - α) / (S² (S + 1)); written with m it cannot overflow.
    """
    strength_Q1 = strength(concentration_QK).unsqueeze(-1)
    mean_QK = concentration_QK / strength_Q1
    variance_QK = mean_QK * (1 - mean_QK) / (strength_Q1 + 1)
    return ((target_QK - mean_QK).square() + variance_QK).sum(-1)
