"""How sure: what a search asks to judge its answers, and the plain judge of a model never calibrated.

Q queries, K candidates
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from holmes.evidence.case import Case
from holmes.evidence.diagnosis import Diagnosis
from holmes.evidence.film_parts import sum_by_video
from holmes.evidence.quantities import candidate_quantities


class Diagnose(Protocol):
    """Judges queries by the scores of their best candidates, without labels."""

    @property
    def candidates(self) -> int: ...  # how many it wants to see

    def __call__(self, case: Case) -> Sequence[Diagnosis]:
        """One diagnosis for each query; its probabilities and beliefs are of videos, never of their parts."""
        ...


@dataclass(frozen=True)
class PlainDiagnose:
    """The fused opinion of both branches over the candidates."""

    candidates: int = 128
    temperature: float = 0.05

    def __call__(self, case: Case) -> list[Diagnosis]:
        quantities = candidate_quantities(case.scores, self.candidates, self.temperature)
        belief_QK = quantities.fused.belief_QV[:, : case.scores.clip_QV.shape[1]]
        beliefs_QK = sum_by_video(belief_QK, case.video_QK).tolist()
        columns = {
            "uncertainty": quantities.uncertainty_Q.tolist(),
            "entropy": quantities.entropy_Q.tolist(),
            "conflict": quantities.conflict_Q.tolist(),
            "agreement": quantities.agreement_Q.tolist(),
        }
        return [
            Diagnosis(tuple(beliefs), {name: column[q] for name, column in columns.items()})
            for q, beliefs in enumerate(beliefs_QK)
        ]
