"""How sure: what a search needs of a diagnosis, and the plain one of a model that was never calibrated.

Q queries, K candidates
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from holmes.evidence.confidence import Background
from holmes.evidence.film_parts import sum_by_video
from holmes.evidence.quantities import candidate_quantities
from holmes.records import Scores


class Diagnosis(Protocol):
    """What the scores of the best candidates say about one query."""

    @property
    def kind(self) -> str: ...  # precise, several_fit, too_little, not_here; or unknown

    @property
    def words(self) -> str: ...  # the kind as people say it

    @property
    def group(self) -> int: ...  # how many of the first hits the kind is about

    @property
    def apart(self) -> Sequence[str | None]: ...  # a word for each of these hits that is true of it alone

    @property
    def here(self) -> float | None: ...  # the share of answerable queries that had no more evidence

    @property
    def rough(self) -> bool: ...  # the probabilities are a guess that no right answer has confirmed

    @property
    def explanation(self) -> str: ...  # one sentence for the person who asked

    @property
    def advice(self) -> str: ...  # what would help

    @property
    def probability(self) -> float | None: ...  # that the first hit is right; None if never calibrated

    @property
    def probabilities(self) -> Sequence[float]: ...  # of each candidate to be the right one, best first

    @property
    def beliefs(self) -> Sequence[float]: ...  # in each candidate, best first

    @property
    def quantities(self) -> Mapping[str, float]: ...  # the numbers behind it


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
    ) -> Sequence[Diagnosis]:
        """One diagnosis for each query. `scores` is Q × K, best first, of `videos` that were compared.

        In an index with long videos these are parts of videos, and `video_QK`, given only then, says whose,
        `video_parts_QK` how many parts that video has among those that were compared. A diagnosis'
        probabilities and beliefs are always of videos, in the order of their best parts. `copies_Q`, given
        only where there are any, is how many of the first show the very same moment. A query is said not to
        be here if a smaller share of the answerable queries than `here_floor` had as little evidence; the
        floor is given only if asked for.
        """
        ...


@dataclass(frozen=True)
class PlainDiagnosis:
    """Plain values: those of a server's answer, or by default the beliefs of a model never calibrated."""

    beliefs: tuple[float, ...]
    quantities: dict[str, float]
    kind: str = "unknown"
    explanation: str = "There is nothing to compare it with."
    advice: str = "Name what can be seen: who or what is there, what happens, and where."
    probability: float | None = None
    probabilities: tuple[float, ...] = ()
    words: str = "not judged"
    group: int = 0
    here: float | None = None
    rough: bool = True
    apart: tuple[str | None, ...] = ()


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
    ) -> list[PlainDiagnosis]:
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
            PlainDiagnosis(tuple(beliefs), {name: column[q] for name, column in columns.items()})
            for q, beliefs in enumerate(beliefs_QK)
        ]
