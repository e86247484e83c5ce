"""From the nearest videos to answers with probabilities and moments, for one index or many shards.

Q queries, K candidates
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from holmes.base.parallel import one_thread_per_operation
from holmes.base.printing import printable
from holmes.errors import HolmesError
from holmes.evidence import wording
from holmes.evidence.film_parts import first_of_each
from holmes.evidence.judging import CalibratedJudge, Candidates, Diagnosis, Judge, UncalibratedJudge
from holmes.evidence.kinds import AnswerKind
from holmes.index.answer.answers import Answer, Hit
from holmes.index.answer.duplicates import DuplicateFinder, FramesOfHits
from holmes.index.answer.languages import with_language
from holmes.index.answer.request import SearchRequest
from holmes.index.answer.words import Words, with_quotes
from holmes.index.engine.nearest import Nearest
from holmes.moments import Moment
from holmes.records import Scores

Found = tuple[str, tuple[Moment, ...]]  # a video's name and its moments


@torch.inference_mode()  # which every operation begins sooner in
@one_thread_per_operation()  # on so little, threads do nothing but wait for each other
def judge_answers(
    request: SearchRequest,
    nearest: Nearest,
    judge: Judge,
    in_parts: bool,
    copies_Q: Tensor | None = None,
    words: Words | None = None,
) -> Sequence[Diagnosis]:
    """One diagnosis for each sentence; `copies_Q` says how many first hits are copies, where any are.

    `words` is the spoken and written words of videos, where an index knows that.
    """
    compared, count = nearest.all_scores, judge.candidates
    queries = Candidates(
        Scores(nearest.frame_QK[:, :count].double(), nearest.clip_QK[:, :count].double()),
        compared.count,
        compared.background,
        video_QK=nearest.video_QK[:, :count] if in_parts else None,
        video_parts_QK=nearest.video_parts_QK[:, :count] if in_parts else None,
        copies_Q=copies_Q,
        told=None if words is None else words.told(nearest),
        not_here_below=request.not_here_below,
        expect_missing=request.missing_share,
    )
    alone = nearest.hit_score_QH.shape[1] < 2  # of a single video nothing can be said but that it is one
    plain = (alone and isinstance(judge, CalibratedJudge)) or not compared.count
    if plain:
        return [
            Diagnosis(said.beliefs, said.quantities, sources=said.sources)
            for said in UncalibratedJudge()(queries)
        ]
    return judge(queries)


def in_order(
    nearest: Nearest,
    diagnoses: Sequence[Diagnosis],
    candidates: int,
    in_parts: bool,
    words: Words | None = None,
) -> Nearest:
    """The same with its hits in the order of their probability.

    Hits are the candidates' videos, most probable first, and behind them those that are no candidates. Videos
    that `words` speak for, and that are no candidates by their pictures, have their numbers behind those.
    """
    ranked = [diagnosis.order for diagnosis in diagnoses]
    hits = nearest.hit_QH.shape[1]
    if not hits or all(order[:hits] == tuple(range(min(hits, len(order)))) for order in ranked):
        return nearest  # as it is unless a long video has more probability than its best part
    video_QK = nearest.video_QK[:, :candidates] if in_parts else None
    hit_QH, score_QH = nearest.hit_QH.clone(), nearest.hit_score_QH.clone()
    for q, order in enumerate(ranked):
        first_K = slice(None) if video_QK is None else first_of_each(video_QK[q : q + 1])[0]
        part_K, score_K = (rows_QK[q, :candidates] for rows_QK in (nearest.parts_QK, nearest.score_QK))
        known, count = (part_K[first_K].tolist(), score_K[first_K].tolist()), len(part_K)
        spoken = () if words is None else words.speaking[q]
        best = [
            (known[0][at], known[1][at])
            if at < count
            else (spoken[at - count].part, spoken[at - count].score)
            for at in order[:hits]
        ]
        if any(at >= count for at in order[:hits]):  # the others follow, each video once
            taken = {int(part) for part, _ in best}
            rest = zip(nearest.hit_QH[q].tolist(), nearest.hit_score_QH[q].tolist(), strict=True)
            best = [*best, *(each for each in rest if each[0] not in taken)][:hits]
        hit_QH[q, : len(best)] = torch.tensor([part for part, _ in best], dtype=hit_QH.dtype)
        score_QH[q, : len(best)] = torch.tensor([score for _, score in best], dtype=score_QH.dtype)
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
    words: Words | None = None,
) -> list[Answer]:
    """One answer for each sentence, from hits in the order of their probability.

    `found` gives the video of a query's hit, both by number, and `frames_of_hits` the frames of such videos.
    """
    copies_Q = duplicates.copies(nearest.hit_score_QH, frames_of_hits)
    for q, diagnosis in enumerate(diagnoses):
        if wording.words_lead(diagnosis.sources):  # films that look alike may say different things
            copies_Q[q] = 1
    if bool((copies_Q > 1).any()):
        diagnoses = judge_answers(request, nearest, judge, in_parts, copies_Q, words)
    answers = []
    for q, judged in enumerate(diagnoses):
        diagnosis = with_language(judged, request.sentences[q], model)
        least = request.abstain_below
        if least is not None and diagnosis.probability is None:
            raise HolmesError(
                "without a probability a search cannot abstain: a single video has nothing to be compared "
                "with, and other models must be calibrated first ('holmes index calibrate')."
            )
        abstained = least is not None and round(diagnosis.probability or 0.0, 2) < least  # as it is shown
        hits = () if abstained else compose_hits(q, diagnosis, nearest, request.top, found)
        if words is not None and diagnosis.sources:
            spoken, query = words.by_name(q), words.queries[q]
            sources = (*diagnosis.sources, *([None] * len(hits)))
            hits = tuple(
                with_quotes(hit, spoken.get(hit.video), sources[rank], query) for rank, hit in enumerate(hits)
            )
        told = with_names(diagnosis, hits) if diagnosis is judged else diagnosis
        if words is not None and (unsaid := words.missed_quotes(q)):
            told = replace(told, explanation=f"{wording.nobody_says(unsaid)} {told.explanation}")
        if abstained and least is not None:
            why = wording.abstained(diagnosis.probability or 0.0, least)
            told = replace(told, words=wording.ABSTAINED, explanation=why)
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
        kind, diagnosis.group, diagnosis.probabilities, 1 - diagnosis.here, names, diagnosis.sources
    )
    return replace(diagnosis, explanation=explanation, advice=advice)


def with_missing(diagnosis: Diagnosis, missing: Sequence[str]) -> Diagnosis:
    """A diagnosis that says so if not all videos were searched."""
    if not missing:
        return diagnosis
    return replace(diagnosis, explanation=f"{diagnosis.explanation} {wording.not_all_searched(missing)}")
