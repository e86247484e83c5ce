"""Fit the calibration of a trained model, with the weights its configuration gives the branches."""

from __future__ import annotations

from torch import Tensor

from holmes.config.schema import ScoreConfig
from holmes.evidence import fitting
from holmes.evidence.diagnosis import Calibration
from holmes.evidence.fitting import best_candidates
from holmes.records import Scores

__all__ = ["best_candidates", "fit_calibration"]


def fit_calibration(
    scores: Scores, owner_Q: Tensor, weights: ScoreConfig, model: str, known_Q: Tensor | None = None
) -> Calibration | None:
    """A calibration from the scores of held-out queries over their gallery; None if they are too few."""
    return fitting.fit_calibration(scores, owner_Q, weights.frame_weight, weights.clip_weight, model, known_Q)
