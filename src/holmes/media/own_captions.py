"""Make a store for training from a table of your own captions.

A CSV with a header, or JSON lines: `video` and `sentence`, and where they are known `split` (train, val or
test), and `start` and `end` of the moment in seconds. A video is named by its path, its file name or its id.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from holmes.base.files import read_rows
from holmes.data.field_folders import SPLITS
from holmes.data.pack import Source, pack
from holmes.data.store import Store
from holmes.errors import HolmesError, unknown
from holmes.media.backbones.base import TextBackbone
from holmes.media.collection import VideoCaption, write_collection
from holmes.media.feature_folder import FeatureFolder

FORMAT = (
    "a CSV needs a header with video and sentence, "
    'a JSONL file lines such as {"video": "beach.mp4", "sentence": "a dog"}'
)
NO_SPLIT = ""


@dataclass(frozen=True)
class Captioned:
    """A store of captioned videos, and how many of them were kept for testing because no split was given."""

    store: Store
    drawn_for_test: int | None


def caption_videos(
    captions: Path,
    features: FeatureFolder,
    store: Path,
    text: TextBackbone,
    *,
    folder: Path | None = None,
    test_share: float = 0.2,
    overwrite: bool = False,
    progress: bool = False,
) -> Captioned:
    """Pack extracted videos with the sentences about them; `folder` keeps the feature folder in between."""
    if store.exists() and not overwrite:
        raise HolmesError(f"{store} already exists; choose another name or add --overwrite.")
    sentences = list(read_sentences(captions, features))
    if not sentences:
        raise HolmesError(f"{captions} has no sentences; {FORMAT}.")
    drawn = None
    if all(sentence.split == NO_SPLIT for sentence in sentences):
        sentences, drawn = draw_splits(sentences, test_share)
    for number, sentence in enumerate(sentences, 1):
        if sentence.split == NO_SPLIT:
            raise HolmesError(
                f"row {number} of {captions} has no split, others have; give all rows one or none."
            )
    between = folder or store.with_name(f".{store.name}.captioned")
    if folder is None:
        shutil.rmtree(between, ignore_errors=True)
    try:
        write_collection(between, store.name, features, sentences, text, progress)
        rows_per_second = sampled(features, sentences)
        packed = pack(Source(between, rows_per_second=rows_per_second), store, overwrite, progress)
    finally:
        if folder is None:
            shutil.rmtree(between, ignore_errors=True)
    return Captioned(packed, drawn)


def read_sentences(path: Path, features: FeatureFolder) -> Iterator[VideoCaption]:
    """The sentences of a table, about videos that have been extracted."""
    names = VideoNames(features, path.parent)
    for number, row in enumerate(read_rows(path), 1):
        where = f"row {number} of {path}"
        video, words = (text_of(row, name) for name in ("video", "sentence"))
        if not video or not words:
            raise HolmesError(f"{where} has no 'video' or no 'sentence'; {FORMAT}.")
        split = text_of(row, "split")
        if split and split not in SPLITS:
            raise unknown(f"split in {where}:", split, SPLITS)
        yield VideoCaption(names.find(video, where), words, split or NO_SPLIT, moment_of(row, where))


def draw_splits(sentences: Sequence[VideoCaption], test_share: float) -> tuple[list[VideoCaption], int]:
    """Choose some videos for testing, the rest to train on: always the same choice for the same videos."""
    videos = sorted({sentence.video for sentence in sentences})
    count = max(1, round(test_share * len(videos)))
    if count >= len(videos):
        raise HolmesError(
            f"{len(videos)} captioned videos cannot be divided into {count} to test and some to train on; "
            "caption more videos, or give the rows a split."
        )
    test = set(np.random.default_rng(0).permutation(videos)[:count].tolist())
    split = {video: "test" if video in test else "train" for video in videos}
    return [replace(sentence, split=split[sentence.video]) for sentence in sentences], count


class VideoNames:
    """Extracted videos by every name that a table may use."""

    def __init__(self, features: FeatureFolder, beside: Path) -> None:
        self.features, self.beside = features, beside
        self.known: dict[str, set[str]] = {}
        for id in features.ids():
            origin = features.origin(id)
            names = (
                [id] if origin is None else [id, str(origin.source), origin.source.name, origin.source.stem]
            )
            for name in names:
                self.known.setdefault(name, set()).add(id)

    def find(self, name: str, where: str) -> str:
        for called in (name, os.path.abspath(self.beside / name), os.path.abspath(name)):
            found = self.known.get(called)
            if found and len(found) > 1:
                raise HolmesError(
                    f"{where} names '{name}', which {len(found)} videos are called; give its path."
                )
            if found:
                return next(iter(found))
        raise HolmesError(
            f"{where} names '{name}', which is not in {self.features.path} ({len(self.features)} videos); "
            f"extract it first: holmes extract {name} --out {self.features.path}"
        )


def text_of(row: dict[str, Any], name: str) -> str:
    value = row.get(name)
    return "" if value is None else str(value).strip()


def moment_of(row: dict[str, Any], where: str) -> tuple[float, float] | None:
    told = [text_of(row, name) for name in ("start", "end")]
    if not any(told):
        return None
    try:
        start, end = map(float, told)
    except ValueError:
        raise HolmesError(
            f"{where} has a moment from '{told[0]}' to '{told[1]}'; give both in seconds, or neither."
        ) from None
    return start, end


def sampled(features: FeatureFolder, sentences: Sequence[VideoCaption]) -> float:
    """Rows per second, which is the sampling rate unless several frames make a row."""
    video = features[sentences[0].video]
    return len(video.rows) / max(video.duration, 1e-3)
