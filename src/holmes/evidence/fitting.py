"""Fit a calibration on held-out queries: scored over a gallery of unseen videos, as those of a search are.

Q queries, V videos, K candidates
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from holmes.evidence.answer_kinds import SMALL_GROUP
from holmes.evidence.confidence import Background, background, fit_score_evidence, gallery_opinion
from holmes.evidence.diagnosis import Calibration, judge
from holmes.evidence.odds import fit_odds_correction
from holmes.evidence.presence import fit_presence, presence_numbers
from holmes.evidence.quantities import fit_temperature
from holmes.records import Scores

CANDIDATES = 100
TEMPERATURES = tuple(torch.logspace(-2, 0, 41).tolist())  # τ to choose from
FOUND = 5  # a query found its video if it is among the first five
MISTAKEN = 0.05  # of the queries that found theirs are said not to be here; of those not here, to be precise
FEWEST_QUERIES = 20


def fit_calibration(
    scores: Scores, owner_Q: Tensor, frame_weight: float, clip_weight: float, model: str
) -> Calibration | None:
    """A calibration from the scores of held-out queries over their gallery; None if they are too few."""
    queries, videos = scores.clip_QV.shape
    if queries < FEWEST_QUERIES or videos < 2:
        return None
    score_QV = frame_weight * scores.frame_QV + clip_weight * scores.clip_QV
    evidence = fit_score_evidence(score_QV, owner_Q)
    own_Q1 = score_QV.gather(1, owner_Q.unsqueeze(1))
    ahead_Q = (score_QV > own_Q1).sum(1)
    if not (ahead_Q < FOUND).any():
        return None
    plain = gallery_opinion(score_QV.sort(1, descending=True).values, videos, evidence)
    correction = fit_odds_correction(plain.probability_QK[:, 0], ahead_Q == 0, videos)
    fitted = Calibration(
        model=model,
        candidates=CANDIDATES,
        frame_weight=frame_weight,
        clip_weight=clip_weight,
        temperature=fit_temperature(scores, owner_Q, CANDIDATES, TEMPERATURES),
        score_temperature=evidence.temperature,
        score_offset=evidence.offset,
        odds_shift=correction.shift,
        odds_slope=correction.slope,
        videos=videos,
        queries=queries,
    )
    return fit_kinds(fitted, scores, owner_Q, ahead_Q < FOUND)


def fit_kinds(fitted: Calibration, scores: Scores, owner_Q: Tensor, found_Q: Tensor) -> Calibration:
    """What is said of queries as they are, and of the same ones in a gallery that lacks their video."""
    gone = without(scores, owner_Q)
    there_QN, gone_QN = (
        presence_numbers(fitted.score(best), galleries.clip_QV.shape[1], all_scores)
        for galleries in (scores, gone)
        for best, all_scores in [best_candidates(galleries, fitted)]
    )
    presence = fit_presence(there_QN, gone_QN)
    fitted = replace(fitted, here_shift=presence.shift, here_score=presence.score, here_lead=presence.lead)
    there, absent = (
        judge(best, galleries.clip_QV.shape[1], fitted, all_scores)
        for galleries in (scores, gone)
        for best, all_scores in [best_candidates(galleries, fitted)]
    )
    together_Q = absent.probability_QK[:, :SMALL_GROUP].sum(1)
    return replace(
        fitted,
        here_floor=there.here_Q[found_Q].quantile(MISTAKEN).item(),
        precise_floor=absent.probability_QK[:, 0].quantile(1 - MISTAKEN).item(),
        group_floor=together_Q.median().item(),
    )


def best_candidates(scores: Scores, calibration: Calibration) -> tuple[Scores, Background]:
    """The best of a gallery that was scored as a whole, best first; and the scores of all as two numbers."""
    score_QV = calibration.score(scores)
    best_QK = score_QV.topk(min(calibration.candidates, score_QV.shape[1])).indices
    return Scores(scores.frame_QV.gather(1, best_QK), scores.clip_QV.gather(1, best_QK)), background(score_QV)


def without(scores: Scores, video_Q: Tensor) -> Scores:
    """The same queries, each in a gallery that lacks one video."""
    place_N = torch.arange(scores.clip_QV.shape[1] - 1, device=video_Q.device)
    others_QN = place_N + (place_N >= video_Q.unsqueeze(1)).long()
    return Scores(scores.frame_QV.gather(1, others_QN), scores.clip_QV.gather(1, others_QN))
