"""The last correction of a probability: how often held-out queries were right when so much was said.

The opinion on a gallery has one temperature for all queries. Where some are far clearer than others, the sure
ones are right more often than it says and the unsure ones less often. A line through the log-odds mends that
and keeps their order. It is fitted in the held-out gallery; in another one, which has only more or fewer
videos to share with, the effect of its size is taken out first and put back afterwards.

Q queries
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from holmes.evidence.logistic import fit_logistic

CERTAIN = 1e-9  # log-odds are finite up to here
PRIOR = 10.0  # pulls towards no correction, as strongly as a few dozen queries would
LEAST_SLOPE = 0.1


@dataclass(frozen=True)
class OddsCorrection:
    """log-odds → shift + slope · log-odds, in a gallery of `videos`."""

    shift: float
    slope: float
    videos: int

    def of(self, probability_Q: Tensor, videos: int) -> Tensor:
        """The corrected probability of the first hit in a gallery of so many videos."""
        if videos == 1:  # the only one there is
            return probability_Q
        size = math.log((videos - 1) / max(self.videos - 1, 1))
        odds_Q = log_odds(probability_Q) + size
        return torch.sigmoid(self.shift + self.slope * odds_Q - size).to(probability_Q.dtype)


def log_odds(probability_Q: Tensor) -> Tensor:
    return torch.logit(probability_Q.double(), eps=CERTAIN)


def fit_odds_correction(probability_Q: Tensor, right_Q: Tensor, videos: int) -> OddsCorrection:
    """Logistic regression of "the first hit is right" on its log-odds."""
    odds_Q2 = torch.stack([torch.ones_like(probability_Q, dtype=torch.float64), log_odds(probability_Q)], 1)
    line_2 = fit_logistic(odds_Q2, right_Q, PRIOR, towards_X=torch.tensor([0.0, 1.0]))
    shift, slope = line_2.tolist()
    return OddsCorrection(shift, max(slope, LEAST_SLOPE), videos)
