"""How sure an index may be: by its model's calibration, by what its owner taught it, or by a rough guess.

    INDEX/calibration.json    taught with `holmes index calibrate`, or guessed when the index was built

What was taught comes first: it is about this very collection. A guess is used where the model has nothing.

Q queries, V videos
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from holmes.errors import HolmesError
from holmes.evidence.calibration_record import Calibration, read_calibration
from holmes.evidence.diagnosis import Diagnoser
from holmes.evidence.fitting import FEWEST_QUERIES, fit_calibration, judge_all
from holmes.evidence.rough import rough_calibration
from holmes.files import read_json, write_json
from holmes.index.diagnose import Diagnose, PlainDiagnose
from holmes.index.embedder_protocol import Embedder
from holmes.index.everyday import SENTENCES
from holmes.index.nearest import nearest_videos
from holmes.index.scan import Probes, make_probes
from holmes.index.score_sums import ScoreSums
from holmes.manifests import checksum
from holmes.records import Scores
from holmes.row_files import read_rows

if TYPE_CHECKING:
    from holmes.index.searcher import Index

FILE = "calibration.json"
FEWEST_VIDEOS = 2
GROWN = 0.1  # how far a collection may grow or shrink before a guess is made again


def judge_of(index: Index) -> Diagnose:
    """The judge of an index's answers."""
    own = read_own(index)
    if own is not None and own.rough and not is_fresh(own, index):
        own = None
    return choose_judge(index.embedder, own, len(index), lambda: guess(index))


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


def read_own(index: Index) -> Calibration | None:
    """What the index's folder says; None where it says nothing, or is about the model it had before."""
    path = index.store.path / FILE
    values = read_values(path)
    return None if values is None else own_calibration(values, index.embedder.record["digest"], path)


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


def guess(index: Index) -> Calibration:
    """A rough calibration from how far the scores of everyday sentences spread over the collection."""
    compared = nearest_videos(index.gallery, as_probes(index, SENTENCES), 1).to("cpu").all_scores
    return guess_from(compared, index.embedder)


def guess_from(compared: ScoreSums, embedder: Embedder) -> Calibration:
    return rough_calibration(
        compared.background,
        compared.count,
        embedder.frame_weight,
        embedder.clip_weight,
        embedder.record["digest"],
    )


def is_fresh(guessed: Calibration, index: Index) -> bool:
    """Whether the collection has about the size it had when the guess was made."""
    return abs(guessed.videos - index.gallery.live) <= GROWN * guessed.videos


def keep_guess(index: Index) -> None:
    """Write the guess down where it will be needed, so that searches need not make it."""
    own = read_own(index)
    if index.embedder.calibration is None and len(index) >= FEWEST_VIDEOS and (own is None or own.rough):
        write_values(index.store.path / FILE, guess(index).to_dict())


@dataclass(frozen=True)
class Taught:
    """What a calibration was made from, and how it does on those very sentences."""

    sentences: int
    videos: int  # different ones among them
    first: float  # the share of sentences whose video comes first
    said: float  # the mean probability of the first hit


def calibrate_index(index: Index, captions: Sequence[tuple[str, str]]) -> Taught:
    """Fit the calibration of an index on sentences and the videos they describe, and keep it."""
    places: dict[str, int] = {}
    for place, name in enumerate(index.videos):
        for known_as in (name, Path(name).name, Path(name).stem):
            places.setdefault(known_as, place)
    unknown = [video for _, video in captions if video not in places]
    if unknown:
        raise HolmesError(
            f"the index has no video '{unknown[0]}' ({len(unknown)} of {len(captions)} videos are unknown)."
        )
    if len(captions) < FEWEST_QUERIES:
        raise HolmesError(f"{len(captions)} sentences are too few; give at least {FEWEST_QUERIES}.")
    scores = every_score(index, [sentence for sentence, _ in captions])
    owner_Q = torch.tensor([places[video] for _, video in captions])
    embedder = index.embedder
    weights = embedder.frame_weight, embedder.clip_weight
    fitted = fit_calibration(scores, owner_Q, *weights, embedder.record["digest"])
    if fitted is None:
        raise HolmesError(
            "none of the sentences finds its video among the first five; check that each stands beside its "
            "own video."
        )
    write_values(index.store.path / FILE, fitted.to_dict())
    said_Q = judge_all(scores, fitted).gallery.probability_QK[:, 0]
    first_Q = fitted.score(scores).argmax(1) == owner_Q
    return Taught(
        len(captions), len(set(owner_Q.tolist())), first_Q.double().mean().item(), said_Q.mean().item()
    )


def every_score(index: Index, sentences: Sequence[str]) -> Scores:
    """Both branches' similarity of every sentence to every video, in the order of `index.videos`."""
    gallery, places = index.gallery, index.store.places
    number = {places[name]: at for at, name in enumerate(index.videos)}
    video_S = torch.tensor([number.get((segment, at), -1) for segment, at in gallery.places_S2.tolist()])
    nearest = nearest_videos(gallery, as_probes(index, sentences), 1, len(gallery)).to("cpu")
    video_QK = video_S[nearest.parts_QK]
    lowest_QV = torch.full((len(sentences), len(index)), -1.0)
    return Scores(
        *(
            lowest_QV.scatter_reduce(1, video_QK, branch_QK.float(), "amax")
            for branch_QK in (nearest.frame_QK, nearest.clip_QK)
        )
    )


def as_probes(index: Index, sentences: Sequence[str]) -> Probes:
    embedder = index.embedder
    probes = make_probes(embedder.queries(sentences), embedder.frame_weight, embedder.clip_weight)
    return probes.to(index.device)


def read_captions(path: Path) -> list[tuple[str, str]]:
    """(sentence, video) from a CSV with a header, or from one JSON object per line."""
    captions = []
    for number, row in enumerate(read_rows(path), 1):
        if not row.get("sentence") or not row.get("video"):
            raise HolmesError(
                f"row {number} of {path} lacks a 'sentence' or a 'video'; a CSV file needs a header with "
                "both, "
                'a JSONL file lines such as {"sentence": "a dog runs", "video": "beach.mp4"}.'
            )
        captions.append((str(row["sentence"]), str(row["video"])))
    return captions
