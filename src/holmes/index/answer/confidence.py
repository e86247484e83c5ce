"""How sure an index is of its answers: by its model, by the captions of its owner, or by a guess.

Q queries, V videos
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from holmes.base.files import read_json, write_json
from holmes.base.manifests import checksum
from holmes.errors import HolmesError
from holmes.evidence.calibration_record import Calibration, read_calibration
from holmes.evidence.case import Case
from holmes.evidence.diagnosis import Diagnoser, Diagnosis
from holmes.evidence.film_parts import sum_by_video
from holmes.evidence.quantities import candidate_quantities
from holmes.evidence.rough import rough_calibration
from holmes.index.answer.common_sentences import SENTENCES
from holmes.index.embedders.protocol import Embedder
from holmes.index.engine.exact_sums import ScoreSums
from holmes.index.engine.gallery import Gallery
from holmes.index.engine.nearest import nearest_videos
from holmes.index.engine.scan import Probes, make_probes


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


FILE = "calibration.json"
FEWEST_VIDEOS = 2
GROWN = 0.1  # how far a collection may grow or shrink before a guess is made again


def judge_of(folder: Path, embedder: Embedder, gallery: Gallery, videos: int) -> Diagnose:
    """The judge of an index's answers."""
    own = read_own(folder, embedder)
    if own is not None and own.rough and not is_fresh(own, gallery):
        own = None
    return choose_judge(embedder, own, videos, lambda: guess(embedder, gallery))


def choose_judge(
    embedder: Embedder, own: Calibration | None, videos: int, guessed: Callable[[], Calibration]
) -> Diagnose:
    """A judge by what the collection was taught (`own`), else by the model's calibration, else by a guess."""
    if own is not None and not own.rough:
        return Diagnoser(own)
    known = read_calibration(embedder.calibration, embedder.record["digest"]) or own
    if known is None and videos >= FEWEST_VIDEOS:
        known = guessed()
    return PlainDiagnose() if known is None else Diagnoser(known)


def read_own(folder: Path, embedder: Embedder) -> Calibration | None:
    """What the index's folder says; None where it says nothing, or is about the model it had before."""
    values = read_values(folder / FILE)
    return None if values is None else own_calibration(values, embedder.record["digest"], folder / FILE)


def read_values(path: Path) -> Any:
    """What the file says, if there is one; an earlier version wrote no checksum."""
    if not path.exists():
        return None
    try:
        values = read_json(path)
    except (OSError, HolmesError):
        raise _damaged(path) from None
    if isinstance(values, dict) and "checksum" in values and values.pop("checksum") != checksum(values):
        raise _damaged(path)
    return values


def write_values(path: Path, values: dict[str, Any]) -> None:
    write_json(path, {**values, "checksum": checksum(values)})


def own_calibration(values: Any, digest: str, path: Path | str) -> Calibration | None:
    """The calibration that `path` holds for the model with this digest; None where it is another's."""
    if isinstance(values, dict) and values.get("model") != digest:
        return None
    try:
        return read_calibration(values, digest)
    except HolmesError:
        raise _damaged(path) from None


def _damaged(path: Path | str) -> HolmesError:
    return HolmesError(f"{path} is damaged; remove it, or run 'holmes index calibrate' again.")


def guess(embedder: Embedder, gallery: Gallery) -> Calibration:
    """A rough calibration from how far the scores of everyday sentences spread over the collection."""
    probes = as_probes(embedder, SENTENCES, gallery.device)
    return guess_from(nearest_videos(gallery, probes, 1).to("cpu").all_scores, embedder)


def guess_from(compared: ScoreSums, embedder: Embedder) -> Calibration:
    return rough_calibration(
        compared.background,
        compared.count,
        embedder.frame_weight,
        embedder.clip_weight,
        embedder.record["digest"],
    )


def is_fresh(guessed: Calibration, gallery: Gallery) -> bool:
    """Whether the collection has about the size it had when the guess was made."""
    return abs(guessed.videos - gallery.live) <= GROWN * guessed.videos


def as_probes(embedder: Embedder, sentences: Sequence[str], device: torch.device) -> Probes:
    probes = make_probes(embedder.queries(sentences), embedder.frame_weight, embedder.clip_weight)
    return probes.to(device)
