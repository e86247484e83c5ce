"""Write captioned videos as a collection in the MS-SL layout (see `data/field_folders.py`)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from holmes.base.feature_origin import CollectionOrigin, EncoderRecord, FeatureOrigin, write_origin
from holmes.data.field_folders import (
    FEATURES,
    SPLITS,
    TEXT,
    new_folder,
    write_captions,
    write_known,
    write_rows,
)
from holmes.errors import HolmesError, unknown
from holmes.media.backbones.base import Matrix, TextBackbone
from holmes.media.feature_folder import FeatureFolder
from holmes.records import QueryKind

SENTENCES_AT_ONCE = 256
KINDS = tuple(kind.name.lower() for kind in QueryKind)


@dataclass(frozen=True)
class VideoCaption:
    """A caption of one moment of a video that has been extracted."""

    video: str  # its id in the feature folder
    text: str
    split: str  # train, val or test
    moment: tuple[float, float] | None = None  # seconds
    kind: str | None = None  # precise, polysemous or underdetermined, where that is known
    also_fits: tuple[str, ...] = ()  # other videos it is true of


def write_collection(
    folder: Path | str,
    name: str,
    features: FeatureFolder,
    sentences: Sequence[VideoCaption],
    text: TextBackbone,
    progress: bool = False,
) -> Path:
    """Write what `holmes data pack FOLDER` reads; the folder appears when all of it is there."""
    folder = Path(folder)
    if not sentences:
        raise HolmesError("no sentences: a collection needs captions to train on.")
    for sentence in sentences:
        _check(sentence)
    missing = sorted({s.video for s in sentences} - set(features.ids()))
    if missing:
        raise HolmesError(f"{features.path} lacks {len(missing)} captioned videos, such as '{missing[0]}'.")
    ids = _sentence_ids(sentences)
    visual_set, text_set = _plain(features.backbone.name), f"{_plain(text.name)}_{name}_query_feat"
    with new_folder(folder) as growing:
        rows = _write_videos(growing / FEATURES / visual_set, features, sentences)
        _write_captions(growing, name, ids, sentences)
        states = _token_states(ids, sentences, text)
        write_rows(growing / TEXT / f"{text_set}.hdf5", states, len(ids), "encoding sentences", progress)
        write_known(growing, *_known(ids, sentences, rows))
        write_origin(growing, CollectionOrigin(visual_set, text_set, _origin(features, text)))
    return folder


def _check(sentence: VideoCaption) -> None:
    words = " ".join(sentence.text.split())[:60]
    if not words:
        raise HolmesError(f"a sentence of '{sentence.video}' is blank; give it words or leave it out.")
    if sentence.split not in SPLITS:
        raise unknown(f"split of '{words}':", sentence.split, SPLITS)
    if sentence.kind is not None and sentence.kind not in KINDS:
        raise unknown(f"kind of '{words}':", sentence.kind, KINDS)
    if sentence.moment is not None and not 0 <= sentence.moment[0] < sentence.moment[1] < math.inf:
        raise HolmesError(f"moment {sentence.moment} of '{words}' is not a start and a later end in seconds.")


def _sentence_ids(sentences: Sequence[VideoCaption]) -> list[str]:
    """<video>#enc#<number>, numbered within each video."""
    numbers: dict[str, int] = {}
    ids = []
    for sentence in sentences:
        numbers[sentence.video] = numbers.get(sentence.video, -1) + 1
        ids.append(f"{sentence.video}#enc#{numbers[sentence.video]}")
    return ids


def _write_videos(
    folder: Path, features: FeatureFolder, sentences: Sequence[VideoCaption]
) -> dict[str, tuple[int, float]]:
    """Returns rows and duration of each video."""
    ids = sorted({sentence.video for sentence in sentences})
    known = {}

    def rows() -> Iterator[tuple[str, Matrix]]:
        for id in ids:
            video = features[id]
            known[id] = (len(video.rows), video.duration)
            yield id, video.rows

    write_rows(folder / "feature.hdf5", rows(), len(ids), "writing videos", progress=False)
    return known


def _write_captions(folder: Path, name: str, ids: Sequence[str], sentences: Sequence[VideoCaption]) -> None:
    """Where no sentence is for validation, the test split serves: the custom of the field."""
    splits = {sentence.split for sentence in sentences}
    for split in SPLITS:
        source = "test" if split == "val" and "val" not in splits else split
        captions = [
            (id, " ".join(sentence.text.split()))
            for id, sentence in zip(ids, sentences, strict=True)
            if sentence.split == source
        ]
        if captions:
            write_captions(folder, name, split, captions)


def _token_states(
    ids: Sequence[str], sentences: Sequence[VideoCaption], text: TextBackbone
) -> Iterator[tuple[str, NDArray[np.float16]]]:
    for start in range(0, len(ids), SENTENCES_AT_ONCE):
        some = slice(start, start + SENTENCES_AT_ONCE)
        states: list[Matrix] = text.tokens([sentence.text for sentence in sentences[some]])
        for id, rows in zip(ids[some], states, strict=True):
            yield id, rows.astype(np.float16)


def _known(
    ids: Sequence[str], sentences: Sequence[VideoCaption], rows: dict[str, tuple[int, float]]
) -> tuple[dict[str, list[float]], dict[str, str], dict[str, list[str]]]:
    """Moments, kinds and fits by sentence.

    Videos without a sentence are not part of the collection, so none fits them.
    """
    moments: dict[str, list[float]] = {}
    kinds: dict[str, str] = {}
    fits: dict[str, list[str]] = {}
    for id, sentence in zip(ids, sentences, strict=True):
        count, duration = rows[sentence.video]
        if sentence.moment is not None:
            if sentence.moment[0] >= duration:
                raise HolmesError(
                    f"the moment of '{sentence.text[:60]}' begins at {sentence.moment[0]:g} s, but its video "
                    f"lasts {duration:.1f} s."
                )
            moments[id] = [*(round(min(edge / duration, 1.0) * count, 4) for edge in sentence.moment), count]
        if sentence.kind is not None:
            kinds[id] = sentence.kind
        if others := [video for video in sentence.also_fits if video in rows]:
            fits[id] = others
    return moments, kinds, fits


def _origin(features: FeatureFolder, text: TextBackbone) -> FeatureOrigin:
    seen = features.backbone
    return FeatureOrigin(
        visual=EncoderRecord(seen.name, seen.digest, seen.width),
        text=EncoderRecord(text.name, text.digest, text.width),
        rate=features.rate,
    )


def _plain(name: str) -> str:
    """A name for a folder or file: 'owner/model' has a slash."""
    return re.sub(r"[^A-Za-z0-9.-]+", "_", Path(name).name) or "encoder"
