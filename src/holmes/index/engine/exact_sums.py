"""Exact sums of scores, equal for one index and for many shards.

Scores are counted in whole steps. Whole numbers add up to the same total in any order, so the sums over
shards equal the sum over the whole index.

Q queries, S parts of videos
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from holmes.evidence.distribution import Background

QUERY_STEP, WEIGHT_STEP = 2.0**-28, 2.0**-26


def on_grid(numbers: Tensor, step: float) -> Tensor:
    """The nearest multiples of a power of two."""
    return (numbers / step).round() * step


STEP = 2.0**-18  # scores are counted in these; squares of 2^27 of them fit into 64 bits


@dataclass(frozen=True)
class ScoreSums:
    count: int
    sum_Q: Tensor  # int64
    squares_Q: Tensor  # int64

    def __add__(self, other: ScoreSums) -> ScoreSums:
        return ScoreSums(self.count + other.count, self.sum_Q + other.sum_Q, self.squares_Q + other.squares_Q)

    def to(self, device: torch.device | str) -> ScoreSums:
        return ScoreSums(self.count, self.sum_Q.to(device), self.squares_Q.to(device))

    @property
    def background(self) -> Background:
        """Mean and deviation of the scores."""
        count = max(self.count, 1)
        mean_Q = self.sum_Q.double() / count
        variance_Q = (self.squares_Q.double() / count - mean_Q.square()).clamp(min=0)
        return Background((STEP * mean_Q).float(), (STEP * variance_Q.sqrt()).float())


def sum_scores(score_QS: Tensor, compared_S: Tensor | None) -> tuple[Tensor, Tensor]:
    """Sum and sum of squares of the scores that were compared, in steps."""
    steps_QS = (score_QS / STEP).round().long()
    if compared_S is not None:
        steps_QS = steps_QS * compared_S
    return steps_QS.sum(1), steps_QS.square().sum(1)
