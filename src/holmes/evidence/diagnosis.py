"""How sure is the answer? What a person is told about one query: a kind, a sentence, and the numbers behind.

Q queries, K candidates (best first)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from holmes.evidence.answer_kinds import AnswerKind, explain
from holmes.evidence.calibration_record import Calibration
from holmes.evidence.case import Case
from holmes.evidence.film_parts import count_videos, sum_by_video
from holmes.evidence.judgement import judge

TOPS = (5, 10)  # "the answer is among the top k"


@dataclass(frozen=True)
class Diagnosis:
    """What the scores of the best candidates say about one query; by default, of a model never calibrated."""

    beliefs: tuple[float, ...] = field(repr=False)  # in each candidate, best first
    quantities: dict[str, float]  # the numbers behind it
    kind: str = "unknown"  # precise, several_fit, too_little, not_here; or unknown
    explanation: str = "There is nothing to compare it with."  # one sentence for the person who asked
    advice: str = "The moment shown is where it fits best."  # what would help
    probability: float | None = None  # that the first hit is right, if the right video is here at all
    probabilities: tuple[float, ...] = field(default=(), repr=False)  # of each candidate to be the right one
    words: str = "not judged"  # the kind as people say it
    probability_top: dict[int, float] = field(default_factory=dict)  # that it is among the best k
    group: int = 0  # how many of the first hits the kind is about: the one, its copies, or those that fit
    here: float | None = None  # the share of answerable queries that had no more evidence
    rough: bool = True  # the probabilities are a guess that no right answer has confirmed
    apart: tuple[str | None, ...] = ()  # a word for each of the group that is true of it alone, if any is


@dataclass(frozen=True)
class Diagnoser:
    """Diagnoses queries of one model."""

    calibration: Calibration

    @property
    def candidates(self) -> int:
        return self.calibration.candidates

    def __call__(self, case: Case) -> Sequence[Diagnosis]:
        """One diagnosis for each query."""
        judged, video_QK = judge(case, self.calibration), case.video_QK
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
                [False] * len(score_QK) if case.terse_Q is None else case.terse_Q.tolist(),
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
        explanation, advice = explain(kind, group, probabilities[0], held, little, terse)
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
