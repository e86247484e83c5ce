"""How sure is the answer? A diagnosis of queries whose answer nobody knows, from their best candidates.

    scores of the best K ┬ opinion on the gallery: probability of each hit, vacuity ─ kind ─ one sentence
                         └ opinions of the branches on the K: beliefs, u, ξ, δ

Everything that was fitted is in a `Calibration`, which belongs to one model.

Q queries, K candidates (best first)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from typing import Annotated, Any, get_type_hints

import torch
from torch import Tensor

from holmes.errors import HolmesError
from holmes.evidence.answer_kinds import AnswerKind, KindRules, explain, kinds_of
from holmes.evidence.confidence import Background, GalleryOpinion, ScoreEvidence, gallery_opinion
from holmes.evidence.film_parts import best_by_video, count_videos, sum_by_video
from holmes.evidence.odds import OddsCorrection
from holmes.evidence.quantities import Quantities, candidate_quantities
from holmes.records import Scores
from holmes.typed import Within, build

EXTRA = "calibration"  # its name among a checkpoint's extras
VERSION = 2
READABLE = (1, 2)  # version 1 has the vacuity that one found query in twenty exceeded, and no floors
ONE_IN_TWENTY = 1.645  # deviations above the mean
SMALLEST_VACUITY = 1e-30
TOPS = (5, 10)  # "the answer is among the top k"


@dataclass(frozen=True)
class Calibration:
    """What held-out queries taught about a model's scores."""

    model: str  # digest of the model it belongs to
    candidates: int  # K
    frame_weight: float  # weights of the score that ranks
    clip_weight: float
    temperature: float  # τ of the branches' opinions
    score_temperature: float  # T and s₀ of the opinion on the gallery
    score_offset: float
    videos: int  # of the held-out gallery
    queries: int
    odds_shift: float = 0.0  # the correction of the first hit's log-odds
    odds_slope: float = 1.0
    vacuity_middle: float = 0.0  # mean and deviation of the log of the vacuity of held-out queries that
    vacuity_spread: float = 1.0  # found their video, in a gallery of `videos`
    precise_floor: float = KindRules.precise
    group_floor: float = KindRules.group
    here_floor: float = KindRules.here
    rough: bool = False  # guessed from the collection itself, without a single right answer

    @property
    def evidence(self) -> ScoreEvidence:
        return ScoreEvidence(self.score_temperature, self.score_offset)

    @property
    def correction(self) -> OddsCorrection:
        return OddsCorrection(self.odds_shift, self.odds_slope, self.videos)

    def rules(self, videos: int) -> KindRules:
        """The floors in a gallery of this many videos.

        A half is a half everywhere. A lower floor says how far a weak model gets in a gallery of the held-out
        size; in another one its odds are shared with more videos, or fewer.
        """
        share = (self.videos - 1) / max(videos - 1, 1)

        def here(floor: float) -> float:
            odds = share * floor / (1 - floor) if floor < KindRules.precise else math.inf
            return floor if odds == math.inf else min(KindRules.precise, odds / (1 + odds))

        return KindRules(here(self.precise_floor), here(self.group_floor), self.here_floor)

    def score(self, scores: Scores) -> Tensor:
        """The score that ranks videos."""
        return scores.combined(self.frame_weight, self.clip_weight)

    def to_dict(self) -> dict[str, Any]:
        return {"version": VERSION, **asdict(self)}


ANY_NUMBER = Annotated[float, Within(-1e9, 1e9)]
POSITIVE = Annotated[float, Within(1e-9, 1e9)]
BOUNDS: dict[str, Any] = {
    **dict.fromkeys(("score_temperature", "temperature", "odds_slope", "vacuity_spread"), POSITIVE),
    "candidates": Annotated[int, Within(2, 1 << 20)],
    "videos": Annotated[int, Within(2, 1 << 40)],
    "queries": Annotated[int, Within(0, 1 << 40)],
}


def read_calibration(values: Any, model: str) -> Calibration | None:
    """The stored form read back; None if there is none. Another model's is refused."""
    if values is None:
        return None
    needed = {field.name for field in fields(Calibration) if field.default is MISSING}
    if not isinstance(values, dict) or values.get("version") not in READABLE or needed - values.keys():
        raise HolmesError(
            "the calibration has a format that this version of Holmes does not know; train again."
        )
    if values["model"] != model:
        raise HolmesError(
            f"the calibration belongs to another model ({str(values['model'])[:12]}, not {model[:12]}); "
            "its probabilities would be wrong: train this one again, or restore the weights."
        )
    known = {field.name for field in fields(Calibration)} - {"model"}
    numbers = {name: value for name, value in values.items() if name in known}
    ceiling = values.get("vacuity_ceiling")
    if values["version"] == 1 and isinstance(ceiling, int | float) and ceiling > 0:
        numbers["vacuity_middle"] = math.log(ceiling) - ONE_IN_TWENTY
    for name, value in numbers.items():
        try:
            hint = get_type_hints(Calibration)[name]
            build(BOUNDS.get(name, ANY_NUMBER if hint is float else hint), value, f"calibration.{name}")
        except HolmesError as error:
            raise HolmesError(f"the calibration is damaged: {str(error)[:-1]}; train again.") from None
    return Calibration(model=model, **numbers)


@dataclass(frozen=True)
class Judgement:
    """The judgement on many queries at once."""

    quantities: Quantities
    gallery: GalleryOpinion
    here_Q: Tensor  # the share of answerable queries that had no more evidence than this one
    score_QK: Tensor
    kinds_Q: Tensor  # AnswerKind
    group_Q: Tensor  # how many of the best candidates a sentence on the kind is about


def judge(
    scores: Scores,
    videos: int,
    calibration: Calibration,
    all_scores: Background | None = None,
    *,
    video_QK: Tensor | None = None,
    video_parts_QK: Tensor | None = None,
    copies_Q: Tensor | None = None,
    here_floor: float | None = None,
) -> Judgement:
    """Judge queries by the scores of their best candidates, Q × K, best first, in a gallery of `videos`.

    `all_scores` is the mean and deviation of the score over the whole gallery; without it they are guessed
    from the candidates. Where candidates are parts of long videos, `video_QK` says whose, and
    `video_parts_QK` how many parts that video has: the gallery is one of parts, but the judgement is about
    videos, in the order of their best parts. `copies_Q` is how many of the first videos show the very same
    moment, and `here_floor` replaces the calibration's.
    """
    candidates = calibration.candidates
    scores = Scores(scores.frame_QV[:, :candidates], scores.clip_QV[:, :candidates])
    score_QK = calibration.score(scores)
    gallery = gallery_opinion(score_QK, videos, calibration.evidence, all_scores, calibration.correction)
    quantities = candidate_quantities(scores, candidates, calibration.temperature)
    here_Q = answered_with_less(gallery, calibration)
    if video_QK is not None:
        video_QK = video_QK[:, :candidates]
        parts_QK = None if video_parts_QK is None else video_parts_QK[:, :candidates]
        gallery, score_QK = gallery.merged(video_QK, parts_QK), best_by_video(score_QK, video_QK)
    rules = calibration.rules(videos)
    if here_floor is not None:
        rules = replace(rules, here=here_floor)
    copies_Q = torch.ones_like(here_Q, dtype=torch.long) if copies_Q is None else copies_Q
    kinds_Q, group_Q = kinds_of(gallery.probability_QK, here_Q, copies_Q, rules)
    return Judgement(quantities, gallery, here_Q, score_QK, kinds_Q, group_Q)


def answered_with_less(gallery: GalleryOpinion, calibration: Calibration) -> Tensor:
    """The share of held-out queries that found their video on no more evidence: small where it is not there.

    Evidence is compared as if the gallery had the size of the held-out one.
    """
    log_vacuity_Q = gallery.resized(calibration.videos).vacuity_Q.clamp(min=SMALLEST_VACUITY).log()
    return 1 - torch.special.ndtr((log_vacuity_Q - calibration.vacuity_middle) / calibration.vacuity_spread)


@dataclass(frozen=True)
class Diagnosis:
    """What to tell a person about one query."""

    answer_kind: AnswerKind
    explanation: str  # one sentence
    advice: str  # what would help
    group: int  # how many of the first hits the kind is about: the one, its copies, or those that fit
    here: float  # the share of answerable queries that had no more evidence
    probability: float  # that the first hit is right, if the collection contains the right video
    probability_top: dict[int, float]  # that the right video is among the best k
    probabilities: tuple[float, ...] = field(repr=False)  # the probability of each candidate
    beliefs: tuple[float, ...] = field(repr=False)
    quantities: dict[str, float]
    rough: bool = False  # the probabilities are a guess that no right answer has confirmed
    apart: tuple[str | None, ...] = ()  # a word for each of the group that is true of it alone, if any is

    @property
    def kind(self) -> str:
        return self.answer_kind.name.lower()

    @property
    def words(self) -> str:
        return self.answer_kind.words


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
        video_parts_QK: Tensor | None = None,
        copies_Q: Tensor | None = None,
        here_floor: float | None = None,
    ) -> Sequence[Diagnosis]:
        """One diagnosis for each query; see `judge`."""
        judged = judge(
            scores,
            videos,
            self.calibration,
            all_scores,
            video_QK=video_QK,
            video_parts_QK=video_parts_QK,
            copies_Q=copies_Q,
            here_floor=here_floor,
        )
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
                AnswerKind(kind), group, here, dict(zip(columns, row, strict=True)), shares[:n], beliefs[:n]
            )
            for kind, group, here, row, shares, beliefs, n in zip(
                judged.kinds_Q.tolist(),
                judged.group_Q.tolist(),
                judged.here_Q.tolist(),
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
        quantities: dict[str, float],
        probabilities: list[float],
        beliefs: list[float],
    ) -> Diagnosis:
        held = sum(probabilities[:group])
        explanation, advice = explain(kind, group, probabilities[0], held)
        return Diagnosis(
            answer_kind=kind,
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
