"""Fit a calibration on held-out queries, scored like those of a search.

Q queries, V videos, K candidates
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from holmes.evidence.calibration import Calibration
from holmes.evidence.distribution import EXPECT_MISSING, Background, background, contrast, fit_distribution
from holmes.evidence.judging import Candidates, Judgement, judge
from holmes.evidence.logistic import fit_logistic
from holmes.evidence.quantities import fit_temperature
from holmes.records import Scores

CANDIDATES = 100
TEMPERATURES = tuple(torch.logspace(-2, 0, 41).tolist())  # τ to choose from
FOUND = 5  # a query found its video if it is among the first five
FEWEST_QUERIES = 20
FEWEST_FITTING = 20  # pairs of a query and another video that fits, to learn from
LOOKED_AT = 20  # best videos of a query that are asked whether they fit
FIT_PRIOR = 1.0


def fit_calibration(
    scores: Scores,
    owner_Q: Tensor,
    frame_weight: float,
    clip_weight: float,
    model: str,
    also_fits_QV: Tensor | None = None,
    before: Calibration | None = None,
) -> Calibration | None:
    """A calibration from the scores of held-out queries over their gallery; None if they are too few.

    `also_fits_QV` says which videos fit a query besides its own, where that is known. `before` is the model's
    calibration on other queries, which few queries change little.
    """
    queries, videos = scores.clip_QV.shape
    if queries < FEWEST_QUERIES or videos < 2:
        return None
    score_QV = scores.combined(frame_weight, clip_weight)
    own_Q1 = score_QV.gather(1, owner_Q.unsqueeze(1))
    if not ((score_QV > own_Q1).sum(1) < FOUND).any():
        return None
    known = None if before is None else (before.evidence, before.absence)
    evidence, absence = fit_distribution(score_QV, owner_Q, known=known)
    fitted = Calibration(
        model=model,
        candidates=CANDIDATES,
        frame_weight=frame_weight,
        clip_weight=clip_weight,
        temperature=fit_temperature(scores, owner_Q, CANDIDATES, TEMPERATURES),
        score_temperature=evidence.temperature,
        score_offset=evidence.offset,
        score_spread=evidence.spread,
        spread_power=evidence.spread_power,
        score_lead=evidence.lead,
        lead_power=evidence.lead_power,
        absence_shift=absence.shift,
        absence_slope=absence.slope,
        absence_middle=absence.middle,
        absence_size_power=absence.size_power,
        absence_outweighs=absence.outweighs,
        part_rest=0.0 if before is None else before.part_rest,
        videos=videos,
        queries=queries,
    )
    return fitted if also_fits_QV is None else fit_fitting(fitted, score_QV, owner_Q, also_fits_QV)


def fit_fitting(fitted: Calibration, score_QV: Tensor, owner_Q: Tensor, also_fits_QV: Tensor) -> Calibration:
    """How the evidence for a video tells whether it fits, though it is not the one that is meant."""
    others_QV = score_QV.scatter(1, owner_Q.unsqueeze(1), -torch.inf)
    best = others_QV.topk(min(LOOKED_AT, score_QV.shape[1] - 1))
    fits_QN = also_fits_QV.gather(1, best.indices)
    if fits_QN.sum() < FEWEST_FITTING:
        return fitted
    shown = contrast(score_QV.amax(1), background(score_QV), score_QV.shape[1])
    sharpness_Q = fitted.evidence.sharpness(shown)
    log_alpha_QN = fitted.evidence.log_alpha(best.values, sharpness_Q)
    # Of many videos that fit a vague sentence none has much evidence: what counts is how near the best it is.
    log_best_Q1 = fitted.evidence.log_alpha(score_QV.amax(1, keepdim=True), sharpness_Q)
    inputs_QN3 = torch.stack([torch.ones_like(log_alpha_QN), log_alpha_QN, log_alpha_QN - log_best_Q1], 2)
    found_3 = fit_logistic(inputs_QN3.flatten(0, 1), fits_QN.flatten(), FIT_PRIOR)
    shift, slope, behind = found_3.tolist()
    return replace(fitted, fit_shift=shift, fit_slope=slope, fit_behind=behind)


def judge_all(scores: Scores, calibration: Calibration, expect_missing: float = EXPECT_MISSING) -> Judgement:
    """Judge queries whose whole gallery was scored."""
    best, all_scores = best_candidates(scores, calibration)
    videos = scores.clip_QV.shape[1]
    return judge(Candidates(best, videos, all_scores, expect_missing=expect_missing), calibration)


def best_candidates(scores: Scores, calibration: Calibration) -> tuple[Scores, Background]:
    """The best of a gallery that was scored as a whole, best first, and the scores of all as two numbers."""
    score_QV = calibration.score(scores)
    best_QK = score_QV.topk(min(calibration.candidates, score_QV.shape[1])).indices
    return Scores(scores.frame_QV.gather(1, best_QK), scores.clip_QV.gather(1, best_QK)), background(score_QV)


def without(scores: Scores, video_Q: Tensor) -> Scores:
    """The same queries, each in a gallery that lacks one video."""
    column_N = torch.arange(scores.clip_QV.shape[1] - 1, device=video_Q.device)
    others_QN = column_N + (column_N >= video_Q.unsqueeze(1)).long()
    return Scores(scores.frame_QV.gather(1, others_QN), scores.clip_QV.gather(1, others_QN))
