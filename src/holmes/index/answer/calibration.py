"""Calibrate an index with sentences whose videos are known, and load its calibration.

Q queries, V videos
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from holmes.base.files import read_json, read_rows, write_json
from holmes.base.manifests import checksum
from holmes.errors import HolmesError
from holmes.evidence.calibration import Calibration, read_calibration
from holmes.evidence.fitting import FEWEST_QUERIES, fit_calibration, judge_all, without
from holmes.evidence.judging import CalibratedJudge, Judge, Judgement, UncalibratedJudge
from holmes.evidence.kinds import AnswerKind
from holmes.evidence.sources import TextEvidence, read_text_evidence
from holmes.index.embedders.protocol import Embedder
from holmes.records import Scores
from holmes.results import Json

FILE = "calibration.json"
FOLDS = 5  # of the cross-validation that says what a calibration is worth
SAME_MEANING = 0.9  # the cosine from which on two sentences say nearly the same


@dataclass(frozen=True)
class Measured:
    """The probabilities of sentences that were not used for the fit."""

    said: float  # the mean probability of the first hit
    noticed: float  # the share of sentences called "not here" after their video was removed
    mistaken: float  # the same share with their video in the index


@dataclass(frozen=True)
class CalibrationSummary:
    """What an index was calibrated on, and how it answers such sentences before and after."""

    sentences: int
    videos: int  # different ones among them
    found_first: float  # share of sentences whose video comes first
    mean_probability: float  # of the first hit, if every sentence has its video
    before: Measured | None = None  # None where nothing was known before
    after: Measured | None = None  # None where too few sentences are left to learn from

    def to_dict(self) -> Json:
        return asdict(self)


def learn(
    captions: Sequence[tuple[str, str]],
    videos: Sequence[str],
    embedder: Embedder,
    score: Callable[[Sequence[str]], Scores],
    before: Calibration | None = None,
) -> tuple[Calibration, CalibrationSummary]:
    """The calibration that sentences and the videos they describe suggest; `before` is the present one.

    `score` gives both branches' similarity of sentences to all `videos`, in this order. It is sorted by their
    names, so that the order in which a collection happens to lie makes no difference to the last bit.
    """
    by_name_V = sorted(range(len(videos)), key=videos.__getitem__)
    owner_Q = videos_of(captions, [videos[at] for at in by_name_V], "the index")
    if len(captions) < FEWEST_QUERIES:
        raise HolmesError(f"{len(captions)} sentences are too few; give at least {FEWEST_QUERIES}.")
    sentences = [sentence for sentence, _ in captions]
    found = score(sentences)
    scores = Scores(found.frame_QV[:, by_name_V], found.clip_QV[:, by_name_V])
    also_fits_QV = same_meaning(embedder.queries(sentences).query_QD, owner_Q, len(videos))

    # The model's own calibration, not that of this index: calibrating twice would count the rows twice.
    own = read_calibration(embedder.calibration, embedder.record["digest"])

    def fit(some_Q: Tensor) -> Calibration | None:
        return fit_calibration(
            rows_of(scores, some_Q),
            owner_Q[some_Q],
            embedder.frame_weight,
            embedder.clip_weight,
            embedder.record["digest"],
            also_fits_QV[some_Q],
            own,
        )

    fitted = fit(torch.arange(len(owner_Q)))
    if fitted is None:
        raise HolmesError(
            "none of the sentences finds its video among the first five; check that each stands beside its "
            "own video."
        )
    first_Q = fitted.score(scores).argmax(1) == owner_Q
    return fitted, CalibrationSummary(
        sentences=len(captions),
        videos=len(set(owner_Q.tolist())),
        found_first=first_Q.double().mean().item(),
        mean_probability=judge_all(scores, fitted, 0).gallery.probability_QK[:, 0].mean().item(),
        before=None if before is None else measure([(before, scores, owner_Q)]),
        after=cross_validated(fit, scores, owner_Q),
    )


def same_meaning(query_QD: Tensor, owner_Q: Tensor, videos: int) -> Tensor:
    """Q × V: which videos have another sentence that says nearly the same."""
    rows_QD = normalize(query_QD.float().cpu(), dim=-1)
    same_QQ = rows_QD @ rows_QD.T >= SAME_MEANING
    fits_QV = torch.zeros(len(rows_QD), videos).index_add(1, owner_Q, same_QQ.float()) > 0
    return fits_QV.scatter(1, owner_Q.unsqueeze(1), False)


def cross_validated(
    fit: Callable[[Tensor], Calibration | None], scores: Scores, owner_Q: Tensor
) -> Measured | None:
    """What calibrations say of sentences about videos that they were not fitted on."""
    videos_U, of_video_Q = torch.unique(owner_Q, return_inverse=True)
    parts = []
    for fold in range(min(FOLDS, len(videos_U))):
        asked_Q = of_video_Q % FOLDS == fold
        some = fit((~asked_Q).nonzero()[:, 0])
        if some is None:
            return None
        parts.append((some, rows_of(scores, asked_Q), owner_Q[asked_Q]))
    return measure(parts)


def measure(parts: Sequence[tuple[Calibration, Scores, Tensor]]) -> Measured:
    """What calibrations say of sentences with their video, and of the same ones without it."""
    there = [judge_all(scores, calibration) for calibration, scores, _ in parts]
    gone = [judge_all(without(scores, owner_Q), calibration) for calibration, scores, owner_Q in parts]
    said = [judge_all(scores, calibration, 0) for calibration, scores, _ in parts]

    def not_here(judged: Sequence[Judgement]) -> float:
        kinds_Q = torch.cat([each.kinds_Q for each in judged])
        return (kinds_Q == AnswerKind.NOT_HERE).double().mean().item()

    first_Q = torch.cat([each.gallery.probability_QK[:, 0] for each in said])
    return Measured(first_Q.double().mean().item(), not_here(gone), not_here(there))


def videos_of(captions: Sequence[tuple[str, str]], videos: Sequence[str], index: object) -> Tensor:
    """The position of each caption's video among `videos`; a video goes by its path, file name or stem."""
    positions: dict[str, int] = {}
    for position, name in enumerate(videos):
        for known_as in (name, Path(name).name, Path(name).stem):
            positions.setdefault(known_as, position)
    unknown = [video for _, video in captions if video not in positions]
    if unknown:
        raise HolmesError(
            f"{index} has no video '{unknown[0]}' ({len(unknown)} of {len(captions)} videos are unknown)."
        )
    return torch.tensor([positions[video] for _, video in captions])


def rows_of(scores: Scores, some_Q: Tensor) -> Scores:
    return Scores(scores.frame_QV[some_Q], scores.clip_QV[some_Q])


def captions_of(rows: Path | str | Iterable[tuple[str, str] | Mapping[str, object]]) -> list[tuple[str, str]]:
    """(sentence, video) from pairs, from mappings with these keys, or from a CSV or JSONL file."""
    if isinstance(rows, str | Path):
        return read_captions(Path(rows))
    return [_pair(number, row) for number, row in enumerate(rows, 1)]


def _pair(number: int, row: tuple[str, str] | Mapping[str, object]) -> tuple[str, str]:
    pair = (row.get("sentence"), row.get("video")) if isinstance(row, Mapping) else tuple(row)
    if len(pair) != 2 or not all(isinstance(value, str) and value for value in pair):
        raise HolmesError(f"row {number} is {str(row)[:60]!r}; each row must be a sentence and its video.")
    return str(pair[0]), str(pair[1])


def read_captions(path: Path) -> list[tuple[str, str]]:
    """(sentence, video) from a CSV with a header, or from one JSON object per line."""
    captions = []
    for number, row in enumerate(read_rows(path), 1):
        if not row.get("sentence") or not row.get("video"):
            raise HolmesError(
                f"row {number} of {path} lacks a 'sentence' or a 'video'; a CSV file needs a header with "
                'both, a JSONL file lines such as {"sentence": "a dog runs", "video": "beach.mp4"}.'
            )
        captions.append((str(row["sentence"]), str(row["video"])))
    return captions


def choose_judge(embedder: Embedder, own: Calibration | None) -> Judge:
    """A judge by what the collection was taught (`own`), else by the model's calibration, else by neither."""
    known = own or read_calibration(embedder.calibration, embedder.record["digest"])
    return UncalibratedJudge() if known is None else CalibratedJudge(known)


def calibration_of(judge: Judge) -> Calibration | None:
    """What a judge judges by; None where it has no calibration."""
    return judge.calibration if isinstance(judge, CalibratedJudge) else None


def read_own(folder: Path, embedder: Embedder) -> Calibration | None:
    """The calibration in the index's folder; None if there is none, or if it belongs to an earlier model."""
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
    if isinstance(values, dict) and (values.get("model") != digest or values.get("rough")):
        return None  # earlier versions kept a guess here, marked as rough
    try:
        return read_calibration(values, digest)
    except HolmesError:
        raise _damaged(path) from None


def text_evidence_of(values: Any, path: Path | str) -> TextEvidence:
    """How strongly words count: as the file says, or else as it is shipped."""
    try:
        return read_text_evidence(values.get("text") if isinstance(values, dict) else None)
    except HolmesError:
        raise _damaged(path) from None


def _damaged(path: Path | str) -> HolmesError:
    return HolmesError(f"{path} is damaged; remove it, or run 'holmes index calibrate' again.")
