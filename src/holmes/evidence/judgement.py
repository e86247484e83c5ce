"""Judge queries whose answer nobody knows, by the scores of their best candidates, as whole batches.

    scores of the best K ┬ opinion on the gallery: probability of each hit, vacuity ─ kind
                         └ opinions of the branches on the K: beliefs, u, ξ, δ

Q queries, K candidates (best first)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from holmes.evidence.answer_kinds import kinds_of
from holmes.evidence.calibration_record import Calibration
from holmes.evidence.case import Case
from holmes.evidence.confidence import GalleryOpinion, gallery_opinion
from holmes.evidence.film_parts import best_by_video
from holmes.evidence.quantities import Quantities, candidate_quantities
from holmes.records import Scores

SMALLEST_VACUITY = 1e-30


@dataclass(frozen=True)
class Judgement:
    """The judgement on many queries at once."""

    quantities: Quantities
    gallery: GalleryOpinion
    here_Q: Tensor  # the share of answerable queries that had no more evidence than this one
    little_Q: Tensor  # whether that is so little that it may not be here
    score_QK: Tensor
    kinds_Q: Tensor  # AnswerKind
    group_Q: Tensor  # how many of the best candidates a sentence on the kind is about


def judge(case: Case, calibration: Calibration) -> Judgement:
    """Judge the queries of a case, by as many candidates as the calibration was fitted with."""
    candidates = calibration.candidates
    scores = Scores(case.scores.frame_QV[:, :candidates], case.scores.clip_QV[:, :candidates])
    score_QK = calibration.score(scores)
    gallery = gallery_opinion(
        score_QK, case.videos, calibration.evidence, case.all_scores, calibration.correction
    )
    quantities = candidate_quantities(scores, candidates, calibration.temperature)
    here_Q = answered_with_less(gallery, calibration)
    if case.video_QK is not None:
        video_QK = case.video_QK[:, :candidates]
        parts_QK = None if case.video_parts_QK is None else case.video_parts_QK[:, :candidates]
        gallery, score_QK = gallery.merged(video_QK, parts_QK), best_by_video(score_QK, video_QK)
    rules = calibration.rules(case.videos)
    if case.here_floor is not None:
        rules = replace(rules, here=case.here_floor)
    copies_Q = torch.ones_like(here_Q, dtype=torch.long) if case.copies_Q is None else case.copies_Q
    seen_Q = here_Q if case.terse_Q is None else here_Q.masked_fill(case.terse_Q, 1)
    kinds_Q, group_Q = kinds_of(gallery.probability_QK, seen_Q, copies_Q, rules)
    return Judgement(quantities, gallery, here_Q, seen_Q < rules.here, score_QK, kinds_Q, group_Q)


def answered_with_less(gallery: GalleryOpinion, calibration: Calibration) -> Tensor:
    """The share of held-out queries that found their video on no more evidence: small where it is not there.

    Evidence is compared as if the gallery had the size of the held-out one.
    """
    log_vacuity_Q = gallery.resized(calibration.videos).vacuity_Q.clamp(min=SMALLEST_VACUITY).log()
    return 1 - torch.special.ndtr((log_vacuity_Q - calibration.vacuity_middle) / calibration.vacuity_spread)
