"""Is it there at all? Told from how well the best candidate fits and how far it stands out.

Held-out queries teach it twice over: as they are, and in a gallery from which the right video was taken. A
logistic regression tells the two apart. How often people look for what is not there no data can tell; we take
it that one query in ten does.

Q queries, K candidates (best first), N numbers about a query
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from holmes.evidence.confidence import SMALLEST_DEVIATION, Background
from holmes.evidence.dirichlet import at_least_float32

ABSENT = 0.1  # the share of queries that ask for what is not there
PRIOR = 10.0  # pulls towards "nothing can be told", as strongly as a few dozen queries would
ROUNDS = 50


@dataclass(frozen=True)
class Presence:
    """log-odds of being there = shift + score · (best score) + lead · (its lead), at even chances."""

    shift: float = 0.0
    score: float = 0.0
    lead: float = 0.0

    def probability(self, score_QK: Tensor, videos: int, all_scores: Background) -> Tensor:
        """That the collection holds what each query asks for."""
        numbers_QN = presence_numbers(score_QK, videos, all_scores)
        odds_Q = numbers_QN @ numbers_QN.new_tensor([self.shift, self.score, self.lead])
        return torch.sigmoid(odds_Q + math.log((1 - ABSENT) / ABSENT)).to(at_least_float32(score_QK).dtype)


def presence_numbers(score_QK: Tensor, videos: int, all_scores: Background) -> Tensor:
    """One, the best score, and how far it lies above all others' mean: Q × N.

    The lead is in deviations, beyond what the best of so many chance scores would have.
    """
    best_Q = score_QK[:, 0].double()
    deviation_Q = all_scores.deviation_Q.double().clamp(min=SMALLEST_DEVIATION)
    usual = float(torch.special.ndtri(torch.tensor(1 - 0.5 / videos, dtype=torch.float64)))
    lead_Q = (best_Q - all_scores.mean_Q.double()) / deviation_Q - usual
    return torch.stack([torch.ones_like(best_Q), best_Q, lead_Q], 1)


def fit_presence(there_QN: Tensor, gone_QN: Tensor) -> Presence:
    """Logistic regression of "it is there" on the numbers, by Newton's method, in their deviations."""
    both_QN = torch.cat([there_QN, gone_QN])
    there_Q = torch.arange(len(both_QN), device=both_QN.device) < len(there_QN)
    mean_N, scale_N = both_QN.mean(0), both_QN.std(0).clamp(min=SMALLEST_DEVIATION)
    mean_N[0], scale_N[0] = 0.0, 1.0
    unit_QN = (both_QN - mean_N) / scale_N
    line_N, pull_NN = torch.zeros_like(mean_N), PRIOR * torch.eye(len(mean_N)).to(mean_N)
    for _ in range(ROUNDS):
        said_Q = torch.sigmoid(unit_QN @ line_N)
        gradient_N = unit_QN.T @ (said_Q - there_Q.double()) + pull_NN @ line_N
        curvature_NN = unit_QN.T @ ((said_Q * (1 - said_Q)).unsqueeze(1) * unit_QN) + pull_NN
        line_N = line_N - torch.linalg.solve(curvature_NN, gradient_N)
    slope_N = line_N / scale_N
    shift = line_N[0] - (slope_N[1:] * mean_N[1:]).sum()
    return Presence(float(shift), *slope_N[1:].tolist())
