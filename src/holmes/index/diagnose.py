"""How sure: what a search asks of a diagnosis, and the plain one that needs no calibration.

Q queries, K candidates
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from holmes.evidence.dirichlet import opinion, sharp_evidence
from holmes.evidence.fusion import fuse_evidence
from holmes.records import Scores


class Diagnosis(Protocol):
    """What the scores of the best candidates say about one query."""

    @property
    def kind(self) -> str: ...  # precise, polysemous, underdetermined; or unknown

    @property
    def explanation(self) -> str: ...  # one sentence for the person who asked

    @property
    def probability(self) -> float | None: ...  # that the first hit is right; None if never calibrated

    @property
    def beliefs(self) -> Sequence[float]: ...  # in each candidate, best first

    @property
    def quantities(self) -> Mapping[str, float]: ...  # the numbers behind it


class Diagnose(Protocol):
    """Judges queries by the scores of their best candidates, without labels."""

    @property
    def candidates(self) -> int: ...  # how many it wants to see

    def __call__(self, scores: Scores, videos: int) -> Sequence[Diagnosis]:
        """One diagnosis for each query. `scores` is Q × K, best first, of a gallery of `videos`."""
        ...


@dataclass(frozen=True)
class PlainDiagnosis:
    """Beliefs and nothing more: for a model whose confidence was never calibrated."""

    beliefs: tuple[float, ...]
    quantities: dict[str, float]
    kind: str = "unknown"
    explanation: str = "This model's confidence has not been calibrated; compare the scores of the hits."
    probability: float | None = None


@dataclass(frozen=True)
class PlainDiagnose:
    """The fused opinion of both branches over the candidates."""

    candidates: int = 128
    temperature: float = 0.05

    def __call__(self, scores: Scores, videos: int) -> list[PlainDiagnosis]:
        frame_QK = sharp_evidence(scores.frame_QV, self.temperature)
        clip_QK = sharp_evidence(scores.clip_QV, self.temperature)
        fused = opinion(fuse_evidence(frame_QK, clip_QK))
        judged = zip(fused.belief_QV.tolist(), fused.uncertainty_Q.tolist(), strict=True)
        return [PlainDiagnosis(tuple(beliefs), {"uncertainty": unsure}) for beliefs, unsure in judged]
