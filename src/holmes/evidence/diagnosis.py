"""How sure is the answer? A diagnosis of queries whose answer nobody knows, from their best candidates.

    scores of the best K ─ opinion on the gallery: probability of each hit, vacuity ─ kind ─ one sentence
                         └ opinions of the branches on the K: beliefs, u, ξ, δ

Everything that was fitted is in a `Calibration`, which belongs to one model.

Q queries, K candidates (best first)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
from torch import Tensor

from holmes.errors import HolmesError
from holmes.evidence.confidence import Background, GalleryOpinion, ScoreEvidence, gallery_opinion
from holmes.evidence.odds import OddsCorrection
from holmes.evidence.parts import best_by_video, count_videos, sum_by_video
from holmes.evidence.quantities import Quantities, candidate_quantities
from holmes.records import QueryType, Scores

EXTRA = "calibration"  # its name among a checkpoint's extras
VERSION = 1
TOPS = (5, 10)  # "the answer is among the top k"
NUMBERS = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten")


@dataclass(frozen=True)
class Calibration:
    """What held-out queries taught about a model's scores."""

    model: str  # digest of the model it belongs to
    candidates: int  # K
    frame_weight: float  # of the score that ranks
    clip_weight: float
    temperature: float  # τ of the branches' opinions
    score_temperature: float  # T and s₀ of the opinion on the gallery
    score_offset: float
    vacuity_ceiling: float  # above it a query is under-determined
    probability_floor: float  # from it on a query is precise
    videos: int  # of the held-out gallery; the thresholds hold in a gallery of this size
    queries: int
    probability_least: float = 0.0  # below it a query is under-determined too
    odds_shift: float = 0.0  # of the correction of the first hit's log-odds
    odds_slope: float = 1.0

    @property
    def evidence(self) -> ScoreEvidence:
        return ScoreEvidence(self.score_temperature, self.score_offset)

    @property
    def correction(self) -> OddsCorrection:
        return OddsCorrection(self.odds_shift, self.odds_slope, self.videos)

    def score(self, scores: Scores) -> Tensor:
        """s = α_f s^f + α_c s^c, as videos are ranked."""
        return self.frame_weight * scores.frame_QV + self.clip_weight * scores.clip_QV

    def to_dict(self) -> dict[str, Any]:
        return {"version": VERSION, **asdict(self)}


def read_calibration(values: Any, model: str) -> Calibration | None:
    """The stored form back; None where there is none. Another model's is refused."""
    if values is None:
        return None
    names = [field.name for field in fields(Calibration)]
    if not isinstance(values, dict) or values.get("version") != VERSION or {*names} - values.keys():
        raise HolmesError("the calibration has a form that this Holmes does not know; train again.")
    if values["model"] != model:
        raise HolmesError(
            f"the calibration belongs to another model ({str(values['model'])[:12]}, not {model[:12]}); "
            "its probabilities would be wrong: train this one again, or restore the weights."
        )
    numbers = {name: values[name] for name in names}
    del numbers["model"]
    if not all(isinstance(n, int | float) and math.isfinite(n) for n in numbers.values()) or not (
        numbers["score_temperature"] > 0
        and numbers["temperature"] > 0
        and numbers["odds_slope"] > 0
        and all(isinstance(numbers[name], int) for name in ("candidates", "videos", "queries"))
        and min(numbers["candidates"], numbers["videos"]) >= 2
    ):
        raise HolmesError("the calibration is damaged: it holds numbers that none can have; train again.")
    return Calibration(model=model, **numbers)


@dataclass(frozen=True)
class Judgement:
    """What is held of many queries at once."""

    quantities: Quantities
    gallery: GalleryOpinion
    score_QK: Tensor
    kinds_Q: Tensor


def judge(
    scores: Scores,
    videos: int,
    calibration: Calibration,
    all_scores: Background | None = None,
    video_QK: Tensor | None = None,
) -> Judgement:
    """Judge queries by the scores of their best candidates, Q × K, best first, in a gallery of `videos`.

    `all_scores` is the mean and deviation of the score over the whole gallery; without it they are guessed
    from the candidates. Where candidates are parts of long videos, `video_QK` says whose: the gallery is one
    of parts, what is held of it is about videos, in the order of their best parts.
    """
    candidates = calibration.candidates
    scores = Scores(scores.frame_QV[:, :candidates], scores.clip_QV[:, :candidates])
    score_QK = calibration.score(scores)
    gallery = gallery_opinion(score_QK, videos, calibration.evidence, all_scores, calibration.correction)
    quantities = candidate_quantities(scores, candidates, calibration.temperature)
    if video_QK is not None:
        video_QK = video_QK[:, :candidates]
        gallery, score_QK = gallery.merged(video_QK), best_by_video(score_QK, video_QK)
    return Judgement(quantities, gallery, score_QK, kinds_of(gallery, calibration))


def kinds_of(gallery: GalleryOpinion, calibration: Calibration) -> Tensor:
    """Under-determined: less is known than of held-out queries that found their video. Precise: clear.

    Compared as if the gallery had the size of the held-out one.
    """
    resized = gallery.resized(calibration.videos)
    probability_Q = resized.probability_QK[:, 0]
    precise_Q = probability_Q >= calibration.probability_floor
    kinds_Q = torch.where(precise_Q, QueryType.PRECISE, QueryType.POLYSEMOUS)
    unknown_Q = resized.vacuity_Q > calibration.vacuity_ceiling
    unclear_Q = probability_Q < calibration.probability_least
    return kinds_Q.masked_fill(unknown_Q | unclear_Q, QueryType.UNDERDETERMINED)


@dataclass(frozen=True)
class Diagnosis:
    """What to tell a person about one query."""

    query_type: QueryType
    explanation: str  # one sentence
    advice: str  # what would help
    probability: float  # that the first hit is right, if the collection holds the right video at all
    probability_top: dict[int, float]  # that it is among the best k
    probabilities: tuple[float, ...]  # of each candidate
    beliefs: tuple[float, ...]
    quantities: dict[str, float]

    @property
    def kind(self) -> str:
        return self.query_type.name.lower()


@dataclass(frozen=True)
class Diagnoser:
    """Diagnoses queries of one model."""

    calibration: Calibration

    @property
    def candidates(self) -> int:
        return self.calibration.candidates

    def __call__(
        self,
        scores: Scores,
        videos: int,
        all_scores: Background | None = None,
        *,
        video_QK: Tensor | None = None,
    ) -> Sequence[Diagnosis]:
        """One diagnosis for each query; see `judge`."""
        judged = judge(scores, videos, self.calibration, all_scores, video_QK)
        gallery, quantities = judged.gallery, judged.quantities
        probability_QK, score_QK = gallery.probability_QK, judged.score_QK
        shown = probability_QK.shape[1]
        belief_QK = sum_by_video(quantities.fused.belief_QV[:, :shown], video_QK)
        shown_Q = [shown] * len(score_QK) if video_QK is None else count_videos(video_QK).tolist()
        columns = {
            "uncertainty": quantities.uncertainty_Q,
            "frame_uncertainty": quantities.frame.uncertainty_Q,
            "clip_uncertainty": quantities.clip.uncertainty_Q,
            "entropy": quantities.entropy_Q,
            "conflict": quantities.conflict_Q,
            "belief_gap": quantities.belief_gap_Q if video_QK is None else belief_QK[:, 0] - belief_QK[:, 1],
            "vacuity": gallery.vacuity_Q,
            "margin": score_QK[:, 0] - score_QK[:, min(1, shown - 1)],
            "fits": gallery.fits_Q,
        }
        unknown_Q = gallery.resized(self.calibration.videos).vacuity_Q > self.calibration.vacuity_ceiling
        columns |= {f"probability_top_{k}": gallery.probability_top(k) for k in TOPS}
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        return [
            describe(QueryType(kind), unknown, dict(zip(columns, row, strict=True)), p[:count], b[:count])
            for kind, unknown, row, p, b, count in zip(
                judged.kinds_Q.tolist(),
                unknown_Q.tolist(),
                rows,
                probability_QK.tolist(),
                belief_QK.tolist(),
                shown_Q,
                strict=True,
            )
        ]


def describe(
    kind: QueryType,
    unknown: bool,
    quantities: dict[str, float],
    probabilities: list[float],
    beliefs: list[float],
) -> Diagnosis:
    explanation, advice = explain(kind, int(quantities["fits"]), unknown)
    return Diagnosis(
        query_type=kind,
        explanation=explanation,
        advice=advice,
        probability=probabilities[0],
        probability_top={k: quantities[f"probability_top_{k}"] for k in TOPS},
        probabilities=tuple(probabilities),
        beliefs=tuple(beliefs),
        quantities=quantities,
    )


def explain(kind: QueryType, fits: int, unknown: bool = False) -> tuple[str, str]:
    """A sentence on the query, and one on what would help; `unknown` if hardly any evidence was found."""
    many = NUMBERS[fits] if fits < len(NUMBERS) else str(fits)
    if kind is QueryType.UNDERDETERMINED:
        named = "almost nothing this collection knows" if unknown else "too little to tell the videos apart"
        return (
            f"The query names {named}.",
            "Name what can be seen: who or what is there, what happens, and where.",
        )
    if kind is QueryType.POLYSEMOUS and fits > 1:
        return f"{many} videos fit about equally well.", "Add a detail that tells them apart."
    if kind is QueryType.POLYSEMOUS:
        return "One video fits best, but others come close.", "Add a detail that tells them apart."
    stands = "One video stands" if fits == 1 else f"{many} videos stand"
    return f"{stands} out from the others.", "Add a detail to be surer still."
