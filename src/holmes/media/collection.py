"""Captioned videos as a collection to train on: the folder layout of the field, for `holmes data pack`.

FOLDER/FeatureData/<encoder>/feature.hdf5                  video → rows
FOLDER/TextData/<encoder>_<name>_query_feat.hdf5           sentence → token states
FOLDER/TextData/<name>{train,val,test}.caption.txt         sentence id and text
FOLDER/moments.json, kinds.json, also_fits.json            what else is known of the sentences
FOLDER/encoders.json                                       which encoders made the features
"""

from __future__ import annotations

import math
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from holmes.errors import HolmesError, unknown
from holmes.feature_origin import CollectionOrigin, EncoderRecord, FeatureOrigin, write_origin
from holmes.files import atomic_file, sync_folder, write_json
from holmes.media.backbones.base import Matrix, TextBackbone
from holmes.media.feature_folder import FeatureFolder
from holmes.progress import progress_bar
from holmes.records import QueryKind

SENTENCES_AT_ONCE = 256
SPLITS = ("train", "val", "test")
KINDS = tuple(kind.name.lower() for kind in QueryKind)


@dataclass(frozen=True)
class Sentence:
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
    sentences: Sequence[Sentence],
    text: TextBackbone,
    progress: bool = False,
) -> Path:
    """Write what `holmes data pack FOLDER` reads; the folder appears when all of it is there."""
    folder = Path(folder)
    if folder.exists():
        raise HolmesError(f"{folder} already exists; choose another name or remove it.")
    if not sentences:
        raise HolmesError("no sentences: a collection needs captions to train on.")
    for sentence in sentences:
        _check(sentence)
    missing = sorted({s.video for s in sentences} - set(features.ids()))
    if missing:
        raise HolmesError(f"{features.path} lacks {len(missing)} captioned videos, such as '{missing[0]}'.")
    ids = _sentence_ids(sentences)
    growing = folder.with_name(f".{folder.name}.growing")
    shutil.rmtree(growing, ignore_errors=True)
    try:
        visual_set, text_set = _plain(features.backbone.name), f"{_plain(text.name)}_{name}_query_feat"
        rows = _write_videos(growing / "FeatureData" / visual_set, features, sentences)
        _write_captions(growing / "TextData", name, ids, sentences)
        _write_tokens(growing / "TextData" / f"{text_set}.hdf5", ids, sentences, text, progress)
        _write_knowledge(growing, ids, sentences, rows)
        write_origin(growing, CollectionOrigin(visual_set, text_set, _origin(features, text)))
        os.replace(growing, folder)
        sync_folder(folder.parent)
    finally:
        shutil.rmtree(growing, ignore_errors=True)
    return folder


def _check(sentence: Sentence) -> None:
    words = " ".join(sentence.text.split())[:60]
    if not words:
        raise HolmesError(f"a sentence of '{sentence.video}' is blank; give it words or leave it out.")
    if sentence.split not in SPLITS:
        raise unknown(f"split of '{words}':", sentence.split, SPLITS)
    if sentence.kind is not None and sentence.kind not in KINDS:
        raise unknown(f"kind of '{words}':", sentence.kind, KINDS)
    if sentence.moment is not None and not 0 <= sentence.moment[0] < sentence.moment[1] < math.inf:
        raise HolmesError(f"moment {sentence.moment} of '{words}' is not a start and a later end in seconds.")


def _sentence_ids(sentences: Sequence[Sentence]) -> list[str]:
    """<video>#enc#<number>, numbered within each video."""
    numbers: dict[str, int] = {}
    ids = []
    for sentence in sentences:
        numbers[sentence.video] = numbers.get(sentence.video, -1) + 1
        ids.append(f"{sentence.video}#enc#{numbers[sentence.video]}")
    return ids


def _write_videos(
    folder: Path, features: FeatureFolder, sentences: Sequence[Sentence]
) -> dict[str, tuple[int, float]]:
    """Returns rows and duration of each video."""
    folder.mkdir(parents=True)
    known = {}
    with h5py.File(folder / "feature.hdf5", "w") as file:
        for id in sorted({sentence.video for sentence in sentences}):
            video = features[id]
            file.create_dataset(id, data=video.rows)
            known[id] = (len(video.rows), video.duration)
    return known


def _write_captions(folder: Path, name: str, ids: Sequence[str], sentences: Sequence[Sentence]) -> None:
    """Where no sentence is for validation, the test split serves: the custom of the field."""
    splits = {sentence.split for sentence in sentences}
    for split in SPLITS:
        source = "test" if split == "val" and "val" not in splits else split
        lines = [
            f"{id} {' '.join(sentence.text.split())}\n"
            for id, sentence in zip(ids, sentences, strict=True)
            if sentence.split == source
        ]
        if lines:
            with atomic_file(folder / f"{name}{split}.caption.txt") as file:
                file.write("".join(lines).encode())


def _write_tokens(
    path: Path, ids: Sequence[str], sentences: Sequence[Sentence], text: TextBackbone, progress: bool
) -> None:
    with (
        h5py.File(path, "w") as file,
        progress_bar("encoding sentences", len(sentences), progress=progress) as advance,
    ):
        for start in range(0, len(ids), SENTENCES_AT_ONCE):
            some = slice(start, start + SENTENCES_AT_ONCE)
            states: list[Matrix] = text.tokens([sentence.text for sentence in sentences[some]])
            for id, rows in zip(ids[some], states, strict=True):
                file.create_dataset(id, data=rows.astype(np.float16))
            advance(len(states))


def _write_knowledge(
    folder: Path, ids: Sequence[str], sentences: Sequence[Sentence], rows: dict[str, tuple[int, float]]
) -> None:
    """Each file only where something is known; moments as [first row, end row, rows of the video].

    Videos without a sentence are no part of the collection, so none fits them.
    """
    moments, kinds, fits = {}, {}, {}
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
    for name, known in (("moments", moments), ("kinds", kinds), ("also_fits", fits)):
        if known:
            write_json(folder / f"{name}.json", known)


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
