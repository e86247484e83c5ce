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
from holmes.evidence.judging import CalibratedJudge, Candidates, Diagnosis, Judge, UncalibratedJudge
from holmes.evidence.kinds import AnswerKind
from holmes.index.answer.answers import Answer, Hit
from holmes.index.answer.duplicates import DuplicateFinder, FramesOfHits
from holmes.index.answer.languages import with_language
from holmes.index.answer.request import SearchRequest
from holmes.index.engine.nearest import Nearest
from holmes.moments import Moment
from holmes.records import Scores

FEWEST_WORDS = 3  # of a sentence whose evidence is like that of the captions a model was calibrated with
Found = tuple[str, tuple[Moment, ...]]  # a video's name and its moments


@torch.inference_mode()  # which every operation begins sooner in
@one_thread_per_operation()  # on so little, threads do nothing but wait for each other
def judge_answers(
    request: SearchRequest, nearest: Nearest, judge: Judge, in_parts: bool, copies_Q: Tensor | None = None
) -> Sequence[Diagnosis]:
    """One diagnosis for each sentence; `copies_Q` says how many first hits are copies, where any are."""
    compared, count = nearest.all_scores, judge.candidates
    terse_Q = torch.tensor([len(sentence.split()) < FEWEST_WORDS for sentence in request.sentences])
    floor = request.not_here_below
    queries = Candidates(
        Scores(nearest.frame_QK[:, :count], nearest.clip_QK[:, :count]),
        compared.count,
        compared.background,
        video_QK=nearest.video_QK[:, :count] if in_parts else None,
        video_parts_QK=nearest.video_parts_QK[:, :count] if in_parts else None,
        copies_Q=copies_Q,
        terse_Q=terse_Q if floor is None and terse_Q.any() else None,
        here_floor=floor,
    )
    alone = nearest.hit_score_QH.shape[1] < 2  # of a single video nothing can be said but that it is one
    plain = (alone and isinstance(judge, CalibratedJudge)) or not compared.count
    if plain:
        return [Diagnosis(said.beliefs, said.quantities) for said in UncalibratedJudge()(queries)]
    return judge(queries)


@torch.inference_mode()
@one_thread_per_operation()
def compose_answers(
    request: SearchRequest,
    nearest: Nearest,
    judge: Judge,
    model: dict[str, Any],
    found: Callable[[int, int], Found],
    *,
    in_parts: bool,
    duplicates: DuplicateFinder,
    frames_of_hits: FramesOfHits,
    judged: Sequence[Diagnosis] | None = None,
    missing: Sequence[str] = (),
) -> list[Answer]:
    """One answer for each sentence.

    `found` gives the video of a query's hit, both by number, and `frames_of_hits` the frames of such videos.
    `judged` are the diagnoses if they are known already, from before it was known whether hits are copies.
    """
    copies_Q = duplicates.copies(nearest.hit_score_QH, frames_of_hits)
    if bool((copies_Q > 1).any()):
        diagnoses = judge_answers(request, nearest, judge, in_parts, copies_Q)
    else:
        diagnoses = judge_answers(request, nearest, judge, in_parts) if judged is None else judged
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
    beliefs = diagnosis.beliefs if diagnosis else ()
    probabilities = diagnosis.probabilities if diagnosis else ()
    hits = []
    for rank, score in enumerate(nearest.hit_score_QH[q, :top].tolist()):
        name, moments = found(q, rank)
        belief = beliefs[rank] if rank < len(beliefs) else 0.0
        probability = probabilities[rank] if rank < len(probabilities) else None
        hits.append(Hit(name, score, belief, probability, moments))
    return tuple(hits)


def with_names(diagnosis: Diagnosis, hits: Sequence[Hit]) -> Diagnosis:
    """A diagnosis that names the videos that fit."""
    members = [printable(Path(hit.video).name) for hit in hits[: diagnosis.group]]
    if diagnosis.kind != AnswerKind.SEVERAL_FIT.name.lower() or len(members) < 2:
        return diagnosis
    asked = wording.which_of(members, diagnosis.group - len(members))
    return replace(diagnosis, advice=f"{asked} {diagnosis.advice}")


def with_missing(diagnosis: Diagnosis, missing: Sequence[str]) -> Diagnosis:
    """A diagnosis that says so if not all videos were searched."""
    if not missing:
        return diagnosis
    return replace(diagnosis, explanation=f"{diagnosis.explanation} {wording.not_all_searched(missing)}")
