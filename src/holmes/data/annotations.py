"""Annotations beyond captions: moments, kinds, and other videos that fit a query.

Formats, recognised by their content:
    moments.json     caption id → [first frame, end frame, frames]
    ActivityNet      JSON: video → {"duration", "timestamps", "sentences"}
    Charades-STA     text: `video start end##sentence`, in seconds; durations come from Charades_v1_*.csv
    TVR              JSON lines: {"vid_name", "duration", "ts", "desc"}
"""

from __future__ import annotations

import csv
import json
import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holmes.base.files import read_file, read_json
from holmes.base.printing import shown
from holmes.base.validation import build
from holmes.data.captions import Captions
from holmes.errors import HolmesError
from holmes.records import QueryKind

# What the readers below raise for files that are something else.
WRONG = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, csv.Error)
SHORTEST, LARGEST = 1e-3, 1e8  # the shortest duration and the largest time, in seconds or frames


@dataclass
class Annotations:
    """Collected from any number of files: moments by caption id or by their sentences, durations by video."""

    fractions: dict[str, tuple[float, float]] = field(default_factory=dict)  # by caption id
    seconds: dict[tuple[str, str], list[tuple[float, float]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    durations: dict[str, float] = field(default_factory=dict)

    def add(self, video: str, sentence: str, start: float | str, end: float | str) -> None:
        self.seconds[video, letters_and_digits(sentence)].append((number(start), number(end)))

    def set_duration(self, video: str, seconds: float | str) -> None:
        self.durations[video] = number(seconds)
        if not self.durations[video] >= SHORTEST:
            raise ValueError(f"the duration of {shown(video)} is {shown(seconds)}")

    def moments(self, captions: Captions) -> NDArray[np.float32]:
        """Q × 2; where a video has the same sentence twice, the moments are taken in order."""
        moments_Q2 = np.full((len(captions.query_ids), 2), np.nan, np.float32)
        taken: dict[tuple[str, str], int] = defaultdict(int)
        for query, (query_id, text) in enumerate(zip(captions.query_ids, captions.texts, strict=True)):
            video = captions.video_ids[captions.owner_Q[query]]
            said = (video, letters_and_digits(text))
            if query_id in self.fractions:
                moments_Q2[query] = self.fractions[query_id]
            elif said in self.seconds and video in self.durations:
                choices = self.seconds[said]
                moments_Q2[query] = (
                    np.array(choices[min(taken[said], len(choices) - 1)]) / self.durations[video]
                )
                taken[said] += 1
        return np.sort(moments_Q2.clip(0, 1), axis=1)  # a few published moments end before they start


def number(value: float | str) -> float:
    """Seconds or frames."""
    if isinstance(value, bool) or not math.isfinite(float(value)) or abs(float(value)) > LARGEST:
        raise ValueError(f"{shown(value)} is not a time")
    return float(value)


def letters_and_digits(sentence: str) -> str:
    """Letters and digits only: caption files and annotations differ in spaces, case and full stops."""
    return "".join(character for character in sentence.lower() if character.isalnum())


def read_annotations(paths: Iterable[Path]) -> Annotations:
    found = Annotations()
    for path in paths:
        try:
            read_one(path, found)
        except WRONG as error:
            raise HolmesError(
                f"{path} is not an annotation file we know ({type(error).__name__}: {str(error)[:120]}); "
                "known: moments.json, ActivityNet JSON, Charades-STA text, Charades CSV, TVR JSON lines."
            ) from None
    return found


def read_one(path: Path, found: Annotations) -> None:
    if path.suffix == ".json":
        read_json_annotations(read_json(path), found)
        return
    lines = read_file(path).decode().splitlines()
    if path.suffix == ".csv":
        for row in csv.DictReader(lines):
            found.set_duration(row["id"], row["length"])
    elif path.suffix == ".jsonl":
        for item in map(json.loads, filter(None, lines)):
            found.set_duration(item["vid_name"], item["duration"])
            found.add(item["vid_name"], item["desc"], *item["ts"])
    else:
        for line in filter(None, lines):
            span, mark, sentence = line.partition("##")
            if not mark:
                raise ValueError(f"no '##' in '{line[:60]}'")
            video, start, end = span.split()
            found.add(video, sentence, start, end)


def read_json_annotations(value: Any, found: Annotations) -> None:
    for name, item in value.items():
        if isinstance(item, dict):
            found.set_duration(name, item["duration"])
            for (start, end), sentence in zip(item["timestamps"], item["sentences"], strict=True):
                found.add(name, sentence, start, end)
        else:
            first, end, frames = map(number, item)
            found.fractions[name] = (first / frames, end / frames)


def checked(path: Path, kind: Any) -> Any:
    """A JSON object by caption ids; an empty one where there is no file."""
    try:
        return build(kind, read_json(path)) if path.is_file() else {}
    except HolmesError as error:
        raise HolmesError(f"{path}: {str(error)[:-1]}; correct or remove it.") from None


def refuse_unrelated_annotations(path: Path, captions: Captions) -> None:
    """Refuse a file of annotations that names nothing of the collection: it is the wrong file."""
    found = read_annotations([path])
    said = {
        (captions.video_ids[owner], letters_and_digits(text))
        for owner, text in zip(captions.owner_Q, captions.texts, strict=True)
    }
    if (
        found.fractions.keys().isdisjoint(captions.query_ids)
        and found.seconds.keys().isdisjoint(said)
        and found.durations.keys().isdisjoint(captions.video_ids)
    ):
        raise HolmesError(
            f"{path} matches none of the {len(captions.query_ids):,} captions, such as "
            f"'{captions.query_ids[0]}'; does it belong to another collection? Leave it out, or give the "
            "right one."
        )


def refuse_other_ids(path: Path, given: dict[str, Any], captions: Captions) -> None:
    if given and given.keys().isdisjoint(captions.query_ids):
        raise HolmesError(
            f"{path} names none of the captions: it has {shown(next(iter(given)))}, the collection "
            f"'{captions.query_ids[0]}'; correct or remove it."
        )


def read_also_fits(path: Path, captions: Captions) -> dict[int, list[int]]:
    """Caption id → other videos that fit it. Captions that are not in the store are passed over, and so is
    a caption's own video, which the labels of others may list too."""
    videos = {name: index for index, name in enumerate(captions.video_ids)}
    given: dict[str, list[str]] = checked(path, dict[str, list[str]])
    refuse_other_ids(path, given, captions)
    fits = {}
    for query, query_id in enumerate(captions.query_ids):
        others = given.get(query_id)
        if others:
            missing = [video for video in others if video not in videos]
            if missing:
                raise HolmesError(
                    f"{path}: '{query_id}' names video '{missing[0]}', which no caption file has; correct it."
                )
            further = {videos[video] for video in others} - {int(captions.owner_Q[query])}
            if further:
                fits[query] = sorted(further)
    return fits


def read_kinds(path: Path, captions: Captions) -> NDArray[np.int8]:
    """Caption id → precise, polysemous or underdetermined; -1 where unknown."""
    given: dict[str, str] = checked(path, dict[str, str])
    refuse_other_ids(path, given, captions)
    kinds = {kind.name.lower(): int(kind) for kind in QueryKind}
    for name, kind in given.items():
        if kind not in kinds:
            raise HolmesError(f"{path}: {name[:60]} has the kind {shown(kind)}; known: {', '.join(kinds)}.")
    return np.array([kinds[given[name]] if name in given else -1 for name in captions.query_ids], np.int8)
