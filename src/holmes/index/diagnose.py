"""How sure: what a search asks to judge its answers, and the plain judge of a model never calibrated.

Q queries, K candidates
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from holmes.evidence.confidence import Background
from holmes.evidence.diagnosis import Diagnosis
from holmes.evidence.film_parts import sum_by_video
from holmes.evidence.quantities import candidate_quantities
from holmes.records import Scores


class Diagnose(Protocol):
    """Judges queries by the scores of their best candidates, without labels."""

    @property
    def candidates(self) -> int: ...  # how many it wants to see

    def __call__(
        self,
        scores: Scores,
        videos: int,
        all_scores: Background | None = None,
        *,
        video_QK: Tensor | None = None,
        video_parts_QK: Tensor | None = None,
        copies_Q: Tensor | None = None,
        here_floor: float | None = None,
        terse_Q: Tensor | None = None,
    ) -> Sequence[Diagnosis]:
        """One diagnosis for each query. `scores` is Q × K, best first, of `videos` that were compared.

        In an index with long videos these are parts of videos, and `video_QK`, given only then, says whose,
        `video_parts_QK` how many parts that video has among those that were compared. A diagnosis'
        probabilities and beliefs are always of videos, in the order of their best parts. `copies_Q`, given
        only where there are any, is how many of the first show the very same moment. A query is said not to
        be here if a smaller share of the answerable queries than `here_floor` had as little evidence; the
        floor is given only if asked for. `terse_Q`, given only where there are any, says which queries are a
        mere word or two: those have little evidence wherever it is, so none is said not to be here.
        """
        ...


@dataclass(frozen=True)
class PlainDiagnose:
    """The fused opinion of both branches over the candidates."""

    candidates: int = 128
    temperature: float = 0.05

    def __call__(
        self,
        scores: Scores,
        videos: int,
        all_scores: Background | None = None,
        *,
        video_QK: Tensor | None = None,
        video_parts_QK: Tensor | None = None,
        copies_Q: Tensor | None = None,
        here_floor: float | None = None,
        terse_Q: Tensor | None = None,
    ) -> list[Diagnosis]:
        quantities = candidate_quantities(scores, self.candidates, self.temperature)
        belief_QK = quantities.fused.belief_QV[:, : scores.clip_QV.shape[1]]
        beliefs_QK = sum_by_video(belief_QK, video_QK).tolist()
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
