"""Compute probabilities, kind and sentence of an answer from the scores of the best candidates.

    Candidates ─ judge ─ Judgement (tensors, of many queries) ─ Diagnosis (what a person is told of one)

Q queries, K candidates (best first; of a judgement, videos, most probable first)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from holmes.evidence import wording
from holmes.evidence.calibration import Calibration
from holmes.evidence.distribution import (
    EXPECT_MISSING,
    Absence,
    Background,
    GalleryDistribution,
    ScoreEvidence,
    background,
    contrast,
    gallery_distribution,
)
from holmes.evidence.film_parts import best_by_video, count_videos, first_of_each, sum_by_video
from holmes.evidence.kinds import AnswerKind, fit_word, kinds_of
from holmes.evidence.quantities import Quantities, candidate_quantities
from holmes.evidence.sources import Fused, Told, fuse_sources
from holmes.records import Scores

TOPS = (5, 10)  # "the answer is among the top k"


@dataclass(frozen=True)
class Candidates:
    """Many queries, by the scores of their best candidates in a gallery of `videos`.

    In an index with long videos candidates are parts of videos and the gallery is one of parts, but the
    judgement is about videos.
    """

    scores: Scores  # of the candidates, Q × K
    videos: int
    all_scores: Background | None = None  # of the whole gallery, where it has more than the candidates
    video_QK: Tensor | None = None  # whose part each candidate is, where they are parts
    video_parts_QK: Tensor | None = None  # how many parts of that video were compared
    copies_Q: Tensor | None = None  # how many of the first videos show the very same moment, where any do
    told: Told | None = None  # the spoken and written words of some videos, where an index knows
    not_here_below: float | None = None  # "not here" if it is less probable that the video is here
    expect_missing: float = EXPECT_MISSING  # the stated share of queries whose video is not here


@dataclass(frozen=True)
class Judgement:
    """The judgement on many queries at once."""

    quantities: Quantities
    gallery: GalleryDistribution  # over videos, most probable first, and "none of them"
    order_QK: Tensor  # their ranks by score
    videos_Q: Tensor  # how many of them there are
    score_QK: Tensor
    fit_QK: Tensor  # the probability that each fits
    kinds_Q: Tensor  # AnswerKind
    group_Q: Tensor  # how many of the first videos a sentence on the kind is about
    copies_Q: Tensor  # how many of the first videos show the very same moment
    log_sources_QK3: Tensor | None = None  # the evidence of each source, where there are several

    @property
    def here_Q(self) -> Tensor:
        """The probability that the right video is in the collection."""
        return 1 - self.gallery.none_Q


def judge(queries: Candidates, calibration: Calibration) -> Judgement:
    """Judge queries by as many candidates as the calibration was fitted with."""
    count = calibration.candidates
    scores = Scores(queries.scores.frame_QV[:, :count], queries.scores.clip_QV[:, :count])
    score_QK = calibration.score(scores)
    gallery = gallery_distribution(
        score_QK,
        queries.videos,
        calibration.evidence,
        calibration.absence,
        queries.all_scores,
        queries.expect_missing,
    )
    videos_Q = torch.full((len(score_QK),), score_QK.shape[1], device=score_QK.device)
    log_alpha_QK = gallery.log_alpha_QK
    if queries.video_QK is not None:
        video_QK = queries.video_QK[:, :count]
        parts_QK = None if queries.video_parts_QK is None else queries.video_parts_QK[:, :count]
        gallery = gallery.merged(video_QK, parts_QK, calibration.part_rest)
        score_QK = best_by_video(score_QK, video_QK)
        log_alpha_QK = best_by_video(log_alpha_QK, video_QK)  # a film fits as well as its best part
        videos_Q = count_videos(video_QK)
    sources_QK3 = None
    if queries.told is not None:
        told_score_QM = calibration.score(queries.told.scores)
        log_vacuity_Q = math.log(queries.videos) - gallery.log_strength_Q
        none_Q = calibration.absence.none(log_vacuity_Q, queries.videos, EXPECT_MISSING)
        fused, log_alpha_QM = join_told(
            gallery, none_Q, score_QK, told_score_QM, queries, queries.told, calibration.evidence
        )
        score_QK = torch.cat([score_QK, told_score_QM.to(score_QK.dtype)], 1)
        log_alpha_QK = torch.cat([log_alpha_QK, log_alpha_QM.to(log_alpha_QK.dtype)], 1)
        gallery, videos_Q, sources_QK3 = fused.gallery, fused.videos_Q, fused.log_sources_QK3
    order_QK = gallery.log_alpha_QK.argsort(dim=1, descending=True, stable=True)
    gallery, score_QK = gallery.taken(order_QK), score_QK.gather(1, order_QK)
    probability_QK = gallery.probability_QK
    copies_Q = torch.ones_like(videos_Q) if queries.copies_Q is None else queries.copies_Q
    # Of the numbers as they are told, in float32: between 47% and 48% a last digit decides what is shown.
    told_QK, told_none_Q = (each.float().double() for each in (probability_QK, gallery.none_Q))
    kinds_Q, group_Q = kinds_of(told_QK, told_none_Q, copies_Q, queries.not_here_below)
    return Judgement(
        quantities=candidate_quantities(scores, count, calibration.temperature),
        gallery=gallery,
        order_QK=order_QK,
        videos_Q=videos_Q,
        score_QK=score_QK,
        fit_QK=calibration.fits(log_alpha_QK.gather(1, order_QK), probability_QK),
        kinds_Q=kinds_Q,
        group_Q=group_Q,
        copies_Q=copies_Q,
        log_sources_QK3=None if sources_QK3 is None else sources_QK3.gather(1, as_index(order_QK, 3)),
    )


def join_told(
    gallery: GalleryDistribution,
    none_Q: Tensor,
    score_QK: Tensor,
    told_score_QM: Tensor,
    queries: Candidates,
    told: Told,
    evidence: ScoreEvidence,
) -> tuple[Fused, Tensor]:
    """The distribution over the candidates' videos, which `gallery` has, and those with matching words.

    Also the concentrations of the latter by their pictures alone, Q × M.
    """
    count = score_QK.shape[1]
    video_QK = told.candidate_QK[:, :count]
    if queries.video_QK is not None:  # candidates are parts: the columns are their videos, then nothing
        first_QK = first_of_each(video_QK)
        at_QK = torch.where(first_QK, first_QK.cumsum(1) - 1, count)  # one more takes what is not wanted
        columns = torch.full((len(video_QK), count + 1), -1, dtype=video_QK.dtype, device=video_QK.device)
        video_QK = columns.scatter(1, at_QK, video_QK)[:, :count]
    all_scores = queries.all_scores or background(score_QK)
    sharpness_Q = evidence.sharpness(contrast(score_QK.amax(1), all_scores, queries.videos))
    best_QM = evidence.log_alpha(told_score_QM, sharpness_Q)
    alpha_QM = best_QM.double().exp() + (told.parts_QM - 1).clamp(min=0)  # other parts have about no evidence
    return fuse_sources(gallery, video_QK, told, alpha_QM.log(), none_Q, queries.expect_missing), best_QM


def as_index(order_QK: Tensor, size: int) -> Tensor:
    return order_QK.unsqueeze(2).expand(-1, -1, size)


@dataclass(frozen=True)
class Diagnosis:
    """What is known of one query's answer; by default, that nothing is."""

    beliefs: tuple[float, ...] = field(repr=False)  # in each video, most probable first
    quantities: dict[str, float]  # the numbers behind it
    kind: str = "unknown"  # precise, several_fit, too_little, not_here; or unknown
    explanation: str = wording.NOTHING_TO_COMPARE  # one sentence for the person who asked
    advice: str = wording.BEST_MOMENT  # what would help
    probability: float | None = None  # that the first hit is right
    probabilities: tuple[float, ...] = field(default=(), repr=False)  # of each video to be the right one
    words: str = wording.NOT_JUDGED  # the kind as people say it
    probability_top: dict[int, float] = field(default_factory=dict)  # that it is among the first k
    group: int = 0  # how many of the first hits the kind is about: the one, its copies, or those that fit
    copies: int = 1  # how many of the first hits show one and the same moment, and count as one
    here: float | None = None  # the probability that the right video is in the collection
    fits: tuple[str, ...] = field(default=(), repr=False)  # how well each video fits, in words
    order: tuple[int, ...] = field(default=(), repr=False)  # the videos' ranks by score, most probable first
    # The log evidence of each video by what is seen, said and written; empty where only pictures count.
    sources: tuple[tuple[float, float, float], ...] = field(default=(), repr=False)


class Judge(Protocol):
    """Judges queries by the scores of their best candidates, without labels."""

    @property
    def candidates(self) -> int: ...  # how many it wants to see

    def __call__(self, queries: Candidates) -> Sequence[Diagnosis]:
        """One diagnosis for each query; its probabilities and beliefs are of videos, never of their parts."""
        ...


@dataclass(frozen=True)
class UncalibratedJudge:
    """The fused opinion of both branches over the candidates, and no probability."""

    candidates: int = 128
    temperature: float = 0.05

    def __call__(self, queries: Candidates) -> list[Diagnosis]:
        quantities = candidate_quantities(queries.scores, self.candidates, self.temperature)
        belief_QK = quantities.fused.belief_QV[:, : queries.scores.clip_QV.shape[1]]
        beliefs_QK = rounded(sum_by_video(belief_QK, queries.video_QK))
        columns = {
            "uncertainty": rounded(quantities.uncertainty_Q),
            "entropy": rounded(quantities.entropy_Q),
            "conflict": rounded(quantities.conflict_Q),
            "agreement": rounded(quantities.agreement_Q),
        }
        if queries.told is not None:
            order_Q, sources_Q, beliefs_QK = _guessed_order(queries, queries.told, beliefs_QK)
        else:
            order_Q, sources_Q = [()] * len(beliefs_QK), [()] * len(beliefs_QK)
        return [
            Diagnosis(
                tuple(beliefs),
                {name: column[q] for name, column in columns.items()},
                explanation=wording.UNCALIBRATED,
                advice=wording.CALIBRATE,
                order=order_Q[q],
                sources=sources_Q[q],
            )
            for q, beliefs in enumerate(beliefs_QK)
        ]


GUESSED = ScoreEvidence(temperature=0.4, offset=3.0)  # in deviations: of models that were never calibrated


def _guessed_order(
    queries: Candidates, told: Told, beliefs: list[list[float]]
) -> tuple[list[tuple[int, ...]], list[tuple[tuple[float, float, float], ...]], list[list[float]]]:
    """The order of the videos, the evidence of each source and the beliefs, where nothing was calibrated."""
    score_QK = queries.scores.frame_QV + queries.scores.clip_QV
    told_score_QM = told.scores.frame_QV + told.scores.clip_QV
    known = background(score_QK)
    deviation_Q1 = known.deviation_Q.clamp(min=1e-6).unsqueeze(1)
    score_QK, told_score_QM = (
        (each - known.mean_Q.unsqueeze(1)) / deviation_Q1 for each in (score_QK, told_score_QM)
    )
    unit = Background(torch.zeros_like(known.mean_Q), torch.ones_like(known.mean_Q))
    gallery = gallery_distribution(score_QK, queries.videos, GUESSED, Absence(), unit)
    gallery = gallery.merged(queries.video_QK, queries.video_parts_QK)
    scaled = replace(queries, all_scores=unit)
    fused, _ = join_told(gallery, gallery.none_Q, score_QK, told_score_QM, scaled, told, GUESSED)
    order_QK = fused.gallery.log_alpha_QK.argsort(dim=1, descending=True, stable=True)
    sources_QK3 = fused.log_sources_QK3.gather(1, as_index(order_QK, 3))
    padded = [row + [0.0] * (order_QK.shape[1] - len(row)) for row in beliefs]
    counts = fused.videos_Q.tolist()
    orders = [tuple(row[:n]) for row, n in zip(order_QK.tolist(), counts, strict=True)]
    sources = [
        tuple((seen, said, written) for seen, said, written in row[:n])
        for row, n in zip(rounded(sources_QK3), counts, strict=True)
    ]
    return orders, sources, [[row[at] for at in order] for row, order in zip(padded, orders, strict=True)]


@dataclass(frozen=True)
class CalibratedJudge:
    """Judges queries of a model that was calibrated."""

    calibration: Calibration

    @property
    def candidates(self) -> int:
        return self.calibration.candidates

    def __call__(self, queries: Candidates) -> Sequence[Diagnosis]:
        """One diagnosis for each query."""
        judged = judge(queries, self.calibration)
        quantities, shown = judged.quantities, judged.score_QK.shape[1]
        belief_QK = sum_by_video(quantities.fused.belief_QV[:, :shown], queries.video_QK)
        belief_QK = F.pad(belief_QK, (0, shown - belief_QK.shape[1]))  # videos that only match by words
        belief_QK = belief_QK.gather(1, judged.order_QK)
        second = min(1, shown - 1)
        columns = {
            "uncertainty": quantities.uncertainty_Q,
            "frame_uncertainty": quantities.frame.uncertainty_Q,
            "clip_uncertainty": quantities.clip.uncertainty_Q,
            "entropy": quantities.entropy_Q,
            "conflict": quantities.conflict_Q,
            "agreement": quantities.agreement_Q,
            "belief_gap": belief_QK[:, 0] - belief_QK[:, second],
            "vacuity": judged.gallery.vacuity_Q,
            "margin": judged.score_QK[:, 0] - judged.score_QK[:, second],
            "about_equal": judged.gallery.about_equal_Q,
        }
        quantities_Q = {name: rounded(column) for name, column in columns.items()}
        kinds, groups, copies = (
            each_Q.tolist() for each_Q in (judged.kinds_Q, judged.group_Q, judged.copies_Q)
        )
        probabilities, missing = rounded(judged.gallery.probability_QK), rounded(judged.gallery.none_Q)
        beliefs = rounded(belief_QK)
        fits, orders = rounded(judged.fit_QK), judged.order_QK.tolist()
        sources = judged.log_sources_QK3
        sources_Q = [()] * len(belief_QK) if sources is None else rounded(sources)
        return [
            _describe(
                AnswerKind(kinds[q]),
                groups[q],
                copies[q],
                missing[q],
                {name: column[q] for name, column in quantities_Q.items()},
                probabilities[q][:n],
                beliefs[q][:n],
                fits[q][:n],
                orders[q][:n],
                sources_Q[q][:n],
            )
            for q, n in enumerate(judged.videos_Q.tolist())
        ]


def rounded(numbers: Tensor) -> list[Any]:
    """What is computed in float64, in float32.

    How many queries are judged at once changes the order of additions, and so the last digits of float64.
    After rounding, a query has the same numbers alone and among others.
    """
    found: list[Any] = (numbers.float() if numbers.is_floating_point() else numbers).tolist()
    return found


def _describe(
    kind: AnswerKind,
    group: int,
    copies: int,
    none: float,
    quantities: dict[str, float],
    probabilities: list[float],
    beliefs: list[float],
    fits: list[float],
    order: list[int],
    sources: Sequence[Sequence[float]],
) -> Diagnosis:
    here = 1 - none  # a sentence made from it later has the same numbers
    explanation, advice = wording.explain(kind, group, probabilities, 1 - here, sources=sources)
    return Diagnosis(
        kind=kind.name.lower(),
        words=wording.kind_words(kind, none),
        explanation=explanation,
        advice=advice,
        group=group,
        copies=copies,
        here=here,
        probability=probabilities[0],
        probability_top={k: sum(probabilities[:k]) for k in TOPS},
        probabilities=tuple(probabilities),
        beliefs=tuple(beliefs),
        fits=tuple(fit_word(fit, kind, rank < group) for rank, fit in enumerate(fits)),
        order=tuple(order),
        quantities=quantities,
        sources=tuple((seen, said, written) for seen, said, written in sources),
    )
