"""Calibrate an index on sentences whose videos are known.

Q queries, V videos
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from holmes.base.files import read_rows
from holmes.errors import HolmesError
from holmes.evidence.calibration import Calibration
from holmes.evidence.fitting import FEWEST_QUERIES, fit_calibration, judge_all
from holmes.index.embedders.protocol import Embedder
from holmes.records import Scores
from holmes.results import Json


@dataclass(frozen=True)
class CalibrationSummary:
    """What an index was calibrated on, and how it answers these sentences."""

    sentences: int
    videos: int  # different ones among them
    found_first: float  # share of sentences whose video comes first
    mean_probability: float  # of the first hit

    def to_dict(self) -> Json:
        return asdict(self)


def learn(
    captions: Sequence[tuple[str, str]],
    videos: Sequence[str],
    embedder: Embedder,
    score: Callable[[Sequence[str]], Scores],
) -> tuple[Calibration, CalibrationSummary]:
    """The calibration that sentences and the videos they describe suggest.

    `score` gives both branches' similarity of sentences to all `videos`, in this order. It is sorted by their
    names, so that the order in which a collection happens to lie makes no difference to the last bit.
    """
    by_name_V = sorted(range(len(videos)), key=videos.__getitem__)
    places: dict[str, int] = {}
    for place, name in enumerate(videos[at] for at in by_name_V):
        for known_as in (name, Path(name).name, Path(name).stem):
            places.setdefault(known_as, place)
    unknown = [video for _, video in captions if video not in places]
    if unknown:
        raise HolmesError(
            f"the index has no video '{unknown[0]}' ({len(unknown)} of {len(captions)} videos are unknown)."
        )
    if len(captions) < FEWEST_QUERIES:
        raise HolmesError(f"{len(captions)} sentences are too few; give at least {FEWEST_QUERIES}.")
    found = score([sentence for sentence, _ in captions])
    scores = Scores(found.frame_QV[:, by_name_V], found.clip_QV[:, by_name_V])
    owner_Q = torch.tensor([places[video] for _, video in captions])
    weights = embedder.frame_weight, embedder.clip_weight
    fitted = fit_calibration(scores, owner_Q, *weights, embedder.record["digest"])
    if fitted is None:
        raise HolmesError(
            "none of the sentences finds its video among the first five; check that each stands beside its "
            "own video."
        )
    said_Q = judge_all(scores, fitted).gallery.probability_QK[:, 0]
    first_Q = fitted.score(scores).argmax(1) == owner_Q
    known = len(set(owner_Q.tolist()))
    first, said = first_Q.double().mean().item(), said_Q.mean().item()
    return fitted, CalibrationSummary(len(captions), known, first, said)


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
                "both, "
                'a JSONL file lines such as {"sentence": "a dog runs", "video": "beach.mp4"}.'
            )
        captions.append((str(row["sentence"]), str(row["video"])))
    return captions
