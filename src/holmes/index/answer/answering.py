"""From the nearest videos to answers: judged, with moments; the same for one index and for many shards.

Q queries, K candidates
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from holmes.base.printing import printable
from holmes.base.threads import one_thread_per_operation
from holmes.errors import HolmesError
from holmes.evidence import wording
from holmes.evidence.film_parts import first_of_each
from holmes.evidence.judging import CalibratedJudge, Candidates, Diagnosis, Judge, UncalibratedJudge
from holmes.evidence.kinds import AnswerKind
from holmes.index.answer.answers import Answer, Hit
from holmes.index.answer.duplicates import DuplicateFinder, FramesOfHits
from holmes.index.answer.languages import with_language
from holmes.index.answer.request import SearchRequest
from holmes.index.engine.nearest import Nearest
from holmes.moments import Moment
from holmes.records import Scores

Found = tuple[str, tuple[Moment, ...]]  # a video's name and its moments


@torch.inference_mode()  # which every operation begins sooner in
@one_thread_per_operation()  # on so little, threads do nothing but wait for each other
def judge_answers(
    request: SearchRequest, nearest: Nearest, judge: Judge, in_parts: bool, copies_Q: Tensor | None = None
) -> Sequence[Diagnosis]:
    """One diagnosis for each sentence; `copies_Q` says how many first hits are copies, where any are."""
    compared, count = nearest.all_scores, judge.candidates
    queries = Candidates(
        Scores(nearest.frame_QK[:, :count].double(), nearest.clip_QK[:, :count].double()),
        compared.count,
        compared.background,
        video_QK=nearest.video_QK[:, :count] if in_parts else None,
        video_parts_QK=nearest.video_parts_QK[:, :count] if in_parts else None,
        copies_Q=copies_Q,
        not_here_below=request.not_here_below,
        expect_missing=request.missing_share,
    )
    alone = nearest.hit_score_QH.shape[1] < 2  # of a single video nothing can be said but that it is one
    plain = (alone and isinstance(judge, CalibratedJudge)) or not compared.count
    if plain:
        return [Diagnosis(said.beliefs, said.quantities) for said in UncalibratedJudge()(queries)]
    return judge(queries)


def in_order(nearest: Nearest, diagnoses: Sequence[Diagnosis], candidates: int, in_parts: bool) -> Nearest:
    """The same with its hits in the order of their probability.

    Hits are the candidates' videos, most probable first, and behind them those that are no candidates.
    """
    ranked = [diagnosis.order for diagnosis in diagnoses]
    hits = nearest.hit_QH.shape[1]
    if not hits or all(order[:hits] == tuple(range(min(hits, len(order)))) for order in ranked):
        return nearest  # as it is unless a long video has more probability than its best part
    video_QK = nearest.video_QK[:, :candidates] if in_parts else None
    hit_QH, score_QH = nearest.hit_QH.clone(), nearest.hit_score_QH.clone()
    for q, order in enumerate(ranked):
        first_K = slice(None) if video_QK is None else first_of_each(video_QK[q : q + 1])[0]
        best = torch.tensor(order[:hits], dtype=torch.int64)
        for whole_QH, part_QK in ((hit_QH, nearest.parts_QK), (score_QH, nearest.score_QK)):
            whole_QH[q, : len(best)] = part_QK[q, :candidates][first_K][best]
    return replace(nearest, hit_QH=hit_QH, hit_score_QH=score_QH)


@torch.inference_mode()
@one_thread_per_operation()
def compose_answers(
    request: SearchRequest,
    nearest: Nearest,
    diagnoses: Sequence[Diagnosis],
    judge: Judge,
    model: dict[str, Any],
    found: Callable[[int, int], Found],
    *,
    in_parts: bool,
    duplicates: DuplicateFinder,
    frames_of_hits: FramesOfHits,
    missing: Sequence[str] = (),
) -> list[Answer]:
    """One answer for each sentence, from hits in the order of their probability.

    `found` gives the video of a query's hit, both by number, and `frames_of_hits` the frames of such videos.
    """
    copies_Q = duplicates.copies(nearest.hit_score_QH, frames_of_hits)
    if bool((copies_Q > 1).any()):
        diagnoses = judge_answers(request, nearest, judge, in_parts, copies_Q)
    answers = []
    for q, diagnosis in enumerate(diagnoses):
        least = request.abstain_below
        if least is not None and diagnosis.probability is None:
            raise HolmesError(
                "without a probability a search cannot abstain: a single video has nothing to be compared "
                "with, and other models must be calibrated first ('holmes index calibrate')."
            )
        abstained = least is not None and (diagnosis.probability or 0.0) < least
        hits = () if abstained else compose_hits(q, diagnosis, nearest, request.top, found)
        told = with_names(diagnosis, hits)
        told = with_language(told, request.sentences[q], model)
        told = with_missing(told, missing)
        answers.append(Answer(request.sentences[q], told, hits, abstained, tuple(missing)))
    return answers


def compose_hits(
    q: int, diagnosis: Diagnosis | None, nearest: Nearest, top: int, found: Callable[[int, int], Found]
) -> tuple[Hit, ...]:
    told = diagnosis or Diagnosis((), {})
    hits = []
    for rank, score in enumerate(nearest.hit_score_QH[q, :top].tolist()):
        name, moments = found(q, rank)
        belief = told.beliefs[rank] if rank < len(told.beliefs) else 0.0
        probability = told.probabilities[rank] if rank < len(told.probabilities) else None
        fit = told.fits[rank] if rank < len(told.fits) else None
        hits.append(Hit(name, score, belief, probability, moments, fit))
    return tuple(hits)


def with_names(diagnosis: Diagnosis, hits: Sequence[Hit]) -> Diagnosis:
    """A diagnosis that calls the videos by their names."""
    if not hits or not diagnosis.order or diagnosis.here is None:
        return diagnosis
    names = [printable(Path(hit.video).name) for hit in hits[: max(1, diagnosis.group)]]
    kind = AnswerKind[diagnosis.kind.upper()]
    explanation, advice = wording.explain(
        kind, diagnosis.group, diagnosis.probabilities, 1 - diagnosis.here, names
    )
    return replace(diagnosis, explanation=explanation, advice=advice)


def with_missing(diagnosis: Diagnosis, missing: Sequence[str]) -> Diagnosis:
    """A diagnosis that says so if not all videos were searched."""
    if not missing:
        return diagnosis
    return replace(diagnosis, explanation=f"{diagnosis.explanation} {wording.not_all_searched(missing)}")
