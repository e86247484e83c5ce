"""Fit a calibration on held-out queries: scored over a gallery of unseen videos, as those of a search are.

Q queries, V videos, K candidates
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from holmes.config.schema import ScoreConfig
from holmes.evaluation.recall import rank_of_owner
from holmes.evidence.confidence import Background, background, fit_score_evidence, gallery_opinion
from holmes.evidence.diagnosis import Calibration
from holmes.evidence.odds import fit_odds_correction
from holmes.evidence.quantities import fit_temperature
from holmes.records import Scores

CANDIDATES = 100
TEMPERATURES = tuple(torch.logspace(-2, 0, 41).tolist())  # τ to choose from
FOUND = 5  # a query found its video if it is among the first five
FOUND_SHARE = 0.95  # of these queries are on the good side of each threshold
CLEAR = 0.95  # a hit this probable is clear, however good the other queries are
FEWEST_QUERIES = 20


def fit_calibration(scores: Scores, owner_Q: Tensor, weights: ScoreConfig, model: str) -> Calibration | None:
    """A calibration from the scores of held-out queries over their gallery; None if they are too few."""
    queries, videos = scores.clip_QV.shape
    if queries < FEWEST_QUERIES or videos < 2:
        return None
    score_QV = weights.frame_weight * scores.frame_QV + weights.clip_weight * scores.clip_QV
    evidence = fit_score_evidence(score_QV, owner_Q)
    rank_Q = rank_of_owner(score_QV, owner_Q)
    found_Q = rank_Q <= FOUND
    if not found_Q.any():
        return None
    plain = gallery_opinion(score_QV.sort(1, descending=True).values, videos, evidence)
    correction = fit_odds_correction(plain.probability_QK[:, 0], rank_Q == 1, videos)
    gallery = replace(plain, correction=correction)
    vacuity_Q, probability_Q = gallery.vacuity_Q, gallery.probability_QK[:, 0]
    return Calibration(
        model=model,
        candidates=CANDIDATES,
        frame_weight=weights.frame_weight,
        clip_weight=weights.clip_weight,
        temperature=fit_temperature(scores, owner_Q, CANDIDATES, TEMPERATURES),
        score_temperature=evidence.temperature,
        score_offset=evidence.offset,
        vacuity_ceiling=vacuity_Q[found_Q].quantile(FOUND_SHARE).item(),
        probability_least=probability_Q[found_Q].quantile(1 - FOUND_SHARE).item(),
        probability_floor=min(probability_Q.median().item(), CLEAR),
        odds_shift=correction.shift,
        odds_slope=correction.slope,
        videos=videos,
        queries=queries,
    )


def best_candidates(scores: Scores, calibration: Calibration) -> tuple[Scores, Background]:
    """The best of a gallery that was scored as a whole, best first; and the scores of all as two numbers."""
    score_QV = calibration.score(scores)
    best_QK = score_QV.topk(min(calibration.candidates, score_QV.shape[1])).indices
    return Scores(scores.frame_QV.gather(1, best_QK), scores.clip_QV.gather(1, best_QK)), background(score_QV)
