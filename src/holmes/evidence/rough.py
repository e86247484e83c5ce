"""A calibration without a single right answer: rough, and marked as such.

How far scores spread over the collection tells how much a lead is worth. T is set to half a deviation of the
scores that everyday sentences have there, which is what the two models that we looked at had, within a fifth.
It cannot tell a good model from a bad one, nor notice that something is not there.

Q queries
"""

from __future__ import annotations

from holmes.evidence.calibration_record import Calibration
from holmes.evidence.confidence import SMALLEST_DEVIATION, Background

CANDIDATES = 100
BRANCH_TEMPERATURE = 0.07  # τ of the branches' opinions
TEMPERATURE = 0.5  # deviations
OFFSET = -1.5  # deviations from the mean


def rough_calibration(
    everyday: Background, videos: int, frame_weight: float, clip_weight: float, model: str
) -> Calibration:
    """The calibration that the spread of everyday sentences' scores over a collection suggests."""
    deviation = max(float(everyday.deviation_Q.double().median()), SMALLEST_DEVIATION)
    return Calibration(
        model=model,
        candidates=CANDIDATES,
        frame_weight=frame_weight,
        clip_weight=clip_weight,
        temperature=BRANCH_TEMPERATURE,
        score_temperature=TEMPERATURE * deviation,
        score_offset=float(everyday.mean_Q.double().median()) + OFFSET * deviation,
        videos=max(videos, 2),
        queries=len(everyday.mean_Q),
        rough=True,
    )
