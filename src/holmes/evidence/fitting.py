"""Fit a calibration on held-out queries: scored over a gallery of unseen videos, as those of a search are.

Q queries, V videos, K candidates
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from holmes.evidence.calibration import Calibration
from holmes.evidence.distribution import (
    Background,
    background,
    fit_odds_correction,
    fit_score_evidence,
    gallery_opinion,
)
from holmes.evidence.judging import SMALLEST_VACUITY, Candidates, Judgement, judge
from holmes.evidence.kinds import CLEAR, MOST, is_precise, small_group
from holmes.evidence.quantities import fit_temperature
from holmes.records import QueryKind, Scores

CANDIDATES = 100
TEMPERATURES = tuple(torch.logspace(-2, 0, 41).tolist())  # τ to choose from
FOUND = 5  # a query found its video if it is among the first five
MISTAKEN = 0.05  # share of found queries called "not here", and of those not here called precise
SUREST, SURER = 0.05, 0.35  # elsewhere: shares of queries that count as precise, and as precise or several
LEAST_SPREAD = 0.05  # least deviation of the log of the vacuity
FEWEST_QUERIES = 20
FEWEST_VIDEOS = 20  # fewest videos of a gallery that can show what is said where the right one is missing
FEWEST_OF_A_KIND = 20
HERE = (MISTAKEN, 0.03, 0.02, 0.01)  # candidates for the floor of what is here, where kinds are known
SURE = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3)  # candidates for that of what is precise
STEPS = 40  # rounds of the search for the floors that reproduce known kinds best


def fit_calibration(
    scores: Scores,
    owner_Q: Tensor,
    frame_weight: float,
    clip_weight: float,
    model: str,
    known_Q: Tensor | None = None,
) -> Calibration | None:
    """A calibration from the scores of held-out queries over their gallery; None if they are too few.

    `known_Q` are their kinds as a `QueryKind`, -1 where nobody knows.
    """
    queries, videos = scores.clip_QV.shape
    if queries < FEWEST_QUERIES or videos < 2:
        return None
    score_QV = scores.combined(frame_weight, clip_weight)
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
    fitted = fit_floors(fitted, scores, owner_Q, ahead_Q < FOUND)
    if known_Q is not None and min((known_Q == kind).sum() for kind in QueryKind) >= FEWEST_OF_A_KIND:
        return fit_known_kinds(fitted, scores, known_Q)
    return fitted


def fit_floors(fitted: Calibration, scores: Scores, owner_Q: Tensor, found_Q: Tensor) -> Calibration:
    """What is said of queries as they are, and of the same ones in a gallery that lacks their video.

    Precise means that one video has most of the probability, and more than nearly any has where the right one
    is missing. Where a model hardly ever gets so far, its surest queries count as precise.
    """
    there, absent = judge_all(scores, fitted).gallery, judge_all(without(scores, owner_Q), fitted).gallery
    videos = scores.clip_QV.shape[1]
    first_Q, together_Q = there.probability_QK[:, 0], there.probability_top(small_group(videos))
    few = videos < FEWEST_VIDEOS  # among so few, whatever is left stands out
    mistaken = MOST if few else absent.probability_QK[:, 0].quantile(1 - MISTAKEN).item()
    log_vacuity_Q = there.vacuity_Q[found_Q].clamp(min=SMALLEST_VACUITY).log()
    return replace(
        fitted,
        vacuity_middle=log_vacuity_Q.mean().item(),
        vacuity_spread=max(log_vacuity_Q.std(correction=0).item(), LEAST_SPREAD),
        here_floor=MISTAKEN,
        precise_floor=min(max(MOST, mistaken), CLEAR, first_Q.quantile(1 - SUREST).item()),
        group_floor=min(MOST, together_Q.quantile(1 - SURER).item()),
    )


def fit_known_kinds(fitted: Calibration, scores: Scores, known_Q: Tensor) -> Calibration:
    """The floors that reproduce the known kinds best, by the mean of their F1 scores.

    What seems not to be here counts as a query that says too little.
    """
    judged = judge_all(scores, fitted)
    first_Q = judged.gallery.probability_QK[:, 0]
    together_Q = judged.gallery.probability_top(small_group(scores.clip_QV.shape[1]))
    share_S = torch.linspace(0, 1, STEPS + 2, dtype=first_Q.dtype, device=first_Q.device)[1:-1]
    precise_S, group_S = (held_Q.quantile(share_S).clamp(max=CLEAR) for held_Q in (first_Q, together_Q))

    def met(here: float, sure: float) -> Tensor:
        precise_SQ = is_precise(first_Q, judged.here_Q, precise_S.unsqueeze(1), sure)
        precise_SSQ = precise_SQ.unsqueeze(1).expand(-1, STEPS, -1)
        several_SSQ = (together_Q >= group_S.unsqueeze(1)) & (judged.here_Q >= here) & ~precise_SSQ
        said = precise_SSQ, several_SSQ, ~(precise_SSQ | several_SSQ)
        return torch.stack([_f1(said_SSQ, known_Q, kind) for kind, said_SSQ in enumerate(said)]).mean(0)

    choices = [(here, sure) for sure in SURE for here in HERE]
    f1_CSS = torch.stack([met(here, sure) for here, sure in choices])
    choice, precise, group = (int(place) for place in torch.unravel_index(f1_CSS.argmax(), f1_CSS.shape))
    return replace(
        fitted,
        here_floor=choices[choice][0],
        sure_floor=choices[choice][1],
        precise_floor=precise_S[precise].item(),
        group_floor=group_S[group].item(),
    )


def _f1(said_SSQ: Tensor, known_Q: Tensor, kind: int) -> Tensor:
    right_SS = (said_SSQ & (known_Q == kind)).sum(-1)
    return 2 * right_SS / (said_SSQ[..., known_Q >= 0].sum(-1) + (known_Q == kind).sum())


def judge_all(scores: Scores, calibration: Calibration) -> Judgement:
    """Judge queries whose whole gallery was scored."""
    best, all_scores = best_candidates(scores, calibration)
    return judge(Candidates(best, scores.clip_QV.shape[1], all_scores), calibration)


def best_candidates(scores: Scores, calibration: Calibration) -> tuple[Scores, Background]:
    """The best of a gallery that was scored as a whole, best first, and the scores of all as two numbers."""
    score_QV = calibration.score(scores)
    best_QK = score_QV.topk(min(calibration.candidates, score_QV.shape[1])).indices
    return Scores(scores.frame_QV.gather(1, best_QK), scores.clip_QV.gather(1, best_QK)), background(score_QV)


def without(scores: Scores, video_Q: Tensor) -> Scores:
    """The same queries, each in a gallery that lacks one video."""
    place_N = torch.arange(scores.clip_QV.shape[1] - 1, device=video_Q.device)
    others_QN = place_N + (place_N >= video_Q.unsqueeze(1)).long()
    return Scores(scores.frame_QV.gather(1, others_QN), scores.clip_QV.gather(1, others_QN))
