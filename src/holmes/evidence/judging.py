"""Judge queries whose answer nobody knows, by the scores of their best candidates.

    Candidates ─ judge ─ Judgement (tensors, of many queries) ─ Diagnosis (what a person is told of one)

Q queries, K candidates (best first)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from torch import Tensor

from holmes.evidence import wording
from holmes.evidence.calibration import Calibration
from holmes.evidence.distribution import Background, GalleryOpinion, gallery_opinion
from holmes.evidence.film_parts import best_by_video, count_videos, sum_by_video
from holmes.evidence.kinds import AnswerKind, kinds_of
from holmes.evidence.quantities import Quantities, candidate_quantities
from holmes.records import Scores

SMALLEST_VACUITY = 1e-30
TOPS = (5, 10)  # "the answer is among the top k"


@dataclass(frozen=True)
class Candidates:
    """Many queries, by the scores of their best candidates in a gallery of `videos`.

    In an index with long videos candidates are parts of videos and the gallery is one of parts, but the
    judgement is about videos, in the order of their best parts.
    """

    scores: Scores  # of the candidates, Q × K
    videos: int
    all_scores: Background | None = None  # of the whole gallery; guessed from the candidates if not known
    video_QK: Tensor | None = None  # whose part each candidate is, where they are parts
    video_parts_QK: Tensor | None = None  # how many parts of that video were compared
    copies_Q: Tensor | None = None  # how many of the first videos show the very same moment, where any do
    # Which queries are a mere word or two, where any are: they have little evidence wherever it is, so none
    # of them is said not to be here.
    terse_Q: Tensor | None = None
    # The floor that was asked for instead of the judge's own: a query is said not to be here if a smaller
    # share of answerable queries had as little evidence.
    here_floor: float | None = None


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


def judge(queries: Candidates, calibration: Calibration) -> Judgement:
    """Judge queries, by as many candidates as the calibration was fitted with."""
    candidates = calibration.candidates
    scores = Scores(queries.scores.frame_QV[:, :candidates], queries.scores.clip_QV[:, :candidates])
    score_QK = calibration.score(scores)
    gallery = gallery_opinion(
        score_QK, queries.videos, calibration.evidence, queries.all_scores, calibration.correction
    )
    quantities = candidate_quantities(scores, candidates, calibration.temperature)
    here_Q = answered_with_less(gallery, calibration)
    if queries.video_QK is not None:
        video_QK = queries.video_QK[:, :candidates]
        parts_QK = None if queries.video_parts_QK is None else queries.video_parts_QK[:, :candidates]
        gallery, score_QK = gallery.merged(video_QK, parts_QK), best_by_video(score_QK, video_QK)
    rules = calibration.rules(queries.videos)
    if queries.here_floor is not None:
        rules = replace(rules, here=queries.here_floor)
    copies_Q = torch.ones_like(here_Q, dtype=torch.long) if queries.copies_Q is None else queries.copies_Q
    seen_Q = here_Q if queries.terse_Q is None else here_Q.masked_fill(queries.terse_Q, 1)
    kinds_Q, group_Q = kinds_of(gallery.probability_QK, seen_Q, copies_Q, rules)
    return Judgement(quantities, gallery, here_Q, seen_Q < rules.here, score_QK, kinds_Q, group_Q)


def answered_with_less(gallery: GalleryOpinion, calibration: Calibration) -> Tensor:
    """The share of held-out queries that found their video on no more evidence: small where it is not there.

    Evidence is compared as if the gallery had the size of the held-out one.
    """
    log_vacuity_Q = gallery.resized(calibration.videos).vacuity_Q.clamp(min=SMALLEST_VACUITY).log()
    return 1 - torch.special.ndtr((log_vacuity_Q - calibration.vacuity_middle) / calibration.vacuity_spread)


@dataclass(frozen=True)
class Diagnosis:
    """What the scores of the best candidates say about one query; by default, of a model never calibrated."""

    beliefs: tuple[float, ...] = field(repr=False)  # in each candidate, best first
    quantities: dict[str, float]  # the numbers behind it
    kind: str = "unknown"  # precise, several_fit, too_little, not_here; or unknown
    explanation: str = wording.NOTHING_TO_COMPARE  # one sentence for the person who asked
    advice: str = wording.BEST_MOMENT  # what would help
    probability: float | None = None  # that the first hit is right, if the right video is here at all
    probabilities: tuple[float, ...] = field(default=(), repr=False)  # of each candidate to be the right one
    words: str = wording.NOT_JUDGED  # the kind as people say it
    probability_top: dict[int, float] = field(default_factory=dict)  # that it is among the best k
    group: int = 0  # how many of the first hits the kind is about: the one, its copies, or those that fit
    here: float | None = None  # the share of answerable queries that had no more evidence
    rough: bool = True  # the probabilities are a guess that no right answer has confirmed


class Judge(Protocol):
    """Judges queries by the scores of their best candidates, without labels."""

    @property
    def candidates(self) -> int: ...  # how many it wants to see

    def __call__(self, queries: Candidates) -> Sequence[Diagnosis]:
        """One diagnosis for each query; its probabilities and beliefs are of videos, never of their parts."""
        ...


@dataclass(frozen=True)
class UncalibratedJudge:
    """The fused opinion of both branches over the candidates."""

    candidates: int = 128
    temperature: float = 0.05

    def __call__(self, queries: Candidates) -> list[Diagnosis]:
        quantities = candidate_quantities(queries.scores, self.candidates, self.temperature)
        belief_QK = quantities.fused.belief_QV[:, : queries.scores.clip_QV.shape[1]]
        beliefs_QK = sum_by_video(belief_QK, queries.video_QK).tolist()
        columns = {
            "uncertainty": quantities.uncertainty_Q.tolist(),
            "entropy": quantities.entropy_Q.tolist(),
            "conflict": quantities.conflict_Q.tolist(),
            "agreement": quantities.agreement_Q.tolist(),
        }
        return [
            Diagnosis(
                tuple(beliefs),
                {name: column[q] for name, column in columns.items()},
                explanation=wording.UNCALIBRATED,
                advice=wording.CALIBRATE,
            )
            for q, beliefs in enumerate(beliefs_QK)
        ]


@dataclass(frozen=True)
class CalibratedJudge:
    """Judges queries of a model that was calibrated."""

    calibration: Calibration

    @property
    def candidates(self) -> int:
        return self.calibration.candidates

    def __call__(self, queries: Candidates) -> Sequence[Diagnosis]:
        """One diagnosis for each query."""
        judged, video_QK = judge(queries, self.calibration), queries.video_QK
        gallery, quantities = judged.gallery, judged.quantities
        probability_QK, score_QK = gallery.probability_QK, judged.score_QK
        shown = probability_QK.shape[1]
        second = min(1, shown - 1)
        belief_QK = sum_by_video(quantities.fused.belief_QV[:, :shown], video_QK)
        shown_Q = [shown] * len(score_QK) if video_QK is None else count_videos(video_QK).tolist()
        columns = {
            "uncertainty": quantities.uncertainty_Q,
            "frame_uncertainty": quantities.frame.uncertainty_Q,
            "clip_uncertainty": quantities.clip.uncertainty_Q,
            "entropy": quantities.entropy_Q,
            "conflict": quantities.conflict_Q,
            "agreement": quantities.agreement_Q,
            "belief_gap": quantities.belief_gap_Q
            if video_QK is None
            else belief_QK[:, 0] - belief_QK[:, second],
            "vacuity": gallery.vacuity_Q,
            "margin": score_QK[:, 0] - score_QK[:, second],
            "fits": gallery.fits_Q,
        }
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        return [
            self._describe(
                AnswerKind(kind),
                group,
                here,
                little,
                terse,
                dict(zip(columns, row, strict=True)),
                shares[:n],
                beliefs[:n],
            )
            for kind, group, here, little, terse, row, shares, beliefs, n in zip(
                judged.kinds_Q.tolist(),
                judged.group_Q.tolist(),
                judged.here_Q.tolist(),
                judged.little_Q.tolist(),
                [False] * len(score_QK) if queries.terse_Q is None else queries.terse_Q.tolist(),
                rows,
                probability_QK.tolist(),
                belief_QK.tolist(),
                shown_Q,
                strict=True,
            )
        ]

    def _describe(
        self,
        kind: AnswerKind,
        group: int,
        here: float,
        little: bool,
        terse: bool,
        quantities: dict[str, float],
        probabilities: list[float],
        beliefs: list[float],
    ) -> Diagnosis:
        held = sum(probabilities[:group])
        explanation, advice = wording.explain(kind, group, probabilities[0], held, little, terse)
        return Diagnosis(
            kind=kind.name.lower(),
            words=kind.words,
            explanation=explanation,
            advice=advice,
            group=group,
            here=here,
            probability=probabilities[0],
            probability_top={k: sum(probabilities[:k]) for k in TOPS},
            probabilities=tuple(probabilities),
            beliefs=tuple(beliefs),
            quantities=quantities,
            rough=self.calibration.rough,
        )
