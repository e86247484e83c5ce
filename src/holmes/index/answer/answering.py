"""From the nearest videos to answers: judged, with moments; the same for one index and for many shards.

Q queries, K candidates
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holmes.base.threads import one_thread_per_operation
from holmes.errors import HolmesError
from holmes.evidence.case import Case
from holmes.evidence.diagnosis import Diagnoser, Diagnosis
from holmes.index.answer.answers import Answer, Hit
from holmes.index.answer.confidence import Diagnose, PlainDiagnose
from holmes.index.answer.duplicates import Groups, Views
from holmes.index.answer.languages import with_language
from holmes.index.engine.nearest import Nearest
from holmes.moments import Moment
from holmes.records import Scores

FEWEST_WORDS = 3  # of a sentence whose evidence is like that of the captions a model was calibrated with
Found = tuple[str, tuple[Moment, ...]]  # a video's name and its moments


@dataclass(frozen=True)
class Question:
    """Sentences that are asked together, how many hits each wants, and when to keep silent."""

    sentences: Sequence[str]
    top: int = 10
    abstain_below: float | None = None
    min_probability: float | None = None

    def check(self) -> None:
        if isinstance(self.sentences, str):
            raise HolmesError("search_many takes a list of sentences; use search for one.")
        for sentence in self.sentences:
            check_sentence(sentence)
        if not isinstance(self.top, int | np.integer) or self.top < 1:
            raise HolmesError(f"top must be a whole number, at least 1, not {self.top!r}.")
        for name in ("abstain_below", "min_probability"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise HolmesError(f"{name} must be a probability, 0 to 1, not {value!r}.")

    def some(self, at: slice) -> Question:
        return replace(self, sentences=self.sentences[at])


@torch.inference_mode()  # which every operation begins sooner in
@one_thread_per_operation()  # on so little, threads do nothing but wait for each other
def judge_answers(
    question: Question, nearest: Nearest, judge: Diagnose, in_parts: bool, copies_Q: Tensor | None = None
) -> Sequence[Diagnosis]:
    """One diagnosis for each sentence; `copies_Q` says how many first hits are copies, where any are."""
    compared, count = nearest.all_scores, judge.candidates
    terse_Q = torch.tensor([len(sentence.split()) < FEWEST_WORDS for sentence in question.sentences])
    floor = question.min_probability
    case = Case(
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
    plain = (alone and isinstance(judge, Diagnoser)) or not compared.count
    return PlainDiagnose()(case) if plain else judge(case)


@torch.inference_mode()
@one_thread_per_operation()
def compose_answers(
    question: Question,
    nearest: Nearest,
    judge: Diagnose,
    model: dict[str, Any],
    found: Callable[[int, int], Found],
    *,
    in_parts: bool,
    groups: Groups,
    views: Views,
    judged: Sequence[Diagnosis] | None = None,
    missing: Sequence[str] = (),
) -> list[Answer]:
    """One answer for each sentence.

    `found` gives the video of a query's hit, both by number, and `views` what such videos look like. `judged`
    are the diagnoses if they are known already, from before it was known whether hits are copies.
    """
    copies_Q = groups.copies(nearest.hit_score_QH, views)
    if bool((copies_Q > 1).any()):
        diagnoses = judge_answers(question, nearest, judge, in_parts, copies_Q)
    else:
        diagnoses = judge_answers(question, nearest, judge, in_parts) if judged is None else judged
    answers = []
    for q, diagnosis in enumerate(diagnoses):
        least = question.abstain_below
        if least is not None and diagnosis.probability is None:
            raise HolmesError(
                "a search of a single video has nothing to compare it with, so it cannot abstain; "
                "ask without --abstain-below."
            )
        abstained = least is not None and (diagnosis.probability or 0.0) < least
        hits = () if abstained else compose_hits(q, diagnosis, nearest, question.top, found)
        told = groups.tell_apart(q, diagnosis, hits, views)
        told = with_language(told, question.sentences[q], model)
        told = _counting_only_what_was_searched(told, missing)
        answers.append(Answer(question.sentences[q], told, hits, abstained, tuple(missing)))
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


def _counting_only_what_was_searched(diagnosis: Diagnosis, missing: Sequence[str]) -> Diagnosis:
    """A diagnosis that says so if not all videos were searched."""
    if not missing:
        return diagnosis
    named = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if missing[3:] else "")
    said = f"{diagnosis.explanation} This counts only what was searched: {named} did not answer."
    return replace(diagnosis, explanation=said)


def check_sentence(sentence: object) -> None:
    if not isinstance(sentence, str):
        raise HolmesError(f"a sentence must be text, not {str(sentence)[:40]!r}.")
    if not sentence.strip():
        raise HolmesError("the sentence is empty; describe a moment in a few words.")
    try:
        sentence.encode()
    except UnicodeEncodeError:
        raise HolmesError(f"the sentence {ascii(sentence)[:80]} is not valid UTF-8; type it again.") from None
