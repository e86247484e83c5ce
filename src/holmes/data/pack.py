"""Pack a feature folder of the field into a store: scan, pool row by row, publish.

Nothing is held in memory but ids and one video at a time. A pack that was stopped goes on where it was.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holmes import __version__
from holmes.base.feature_origin import read_origin
from holmes.base.progress import progress_bar
from holmes.data.annotations import read_also_fits, read_annotations, read_kinds, refuse_unrelated_annotations
from holmes.data.captions import Captions, read_captions
from holmes.data.feature_files import Features, open_features
from holmes.data.field_folders import SourceFiles, find_source_files
from holmes.data.pooling import query_tokens, video_clips, video_frames
from holmes.data.store import Store
from holmes.data.writer import Catalogue, StoreWriter
from holmes.errors import HolmesError
from holmes.records import CLIPS, FRAMES, TOKENS

COMMIT_VIDEOS = 256
COMMIT_QUERIES = 8192
LARGEST_FEATURE = 1e15  # the sum of the squares of larger ones overflows float32, and they would become zeros


@dataclass(frozen=True)
class Source:
    """What to pack and which of the folder's feature sets."""

    folder: Path
    collection: str | None = None
    visual: str | None = None
    text: str | None = None
    annotations: Sequence[Path] = ()
    rows_per_second: float | None = None  # gives durations where no annotation does
    frames: int = FRAMES  # longer videos are pooled to this
    clips: int = CLIPS  # every video is pooled to this
    tokens: int = TOKENS  # longer queries are cut to this


def pack(source: Source, target: Path, overwrite: bool = False, progress: bool = False) -> Store:
    """Write the store; `progress` draws progress bars."""
    found = find_source_files(source.folder, source.collection, source.visual, source.text)
    with StoreWriter(target, fingerprint(found, source), overwrite) as writer:
        captions = read_captions(found.captions)
        with open_features(found.visual) as visual, open_features(found.text) as text:
            counts_V, video_width = scan(visual, captions.video_ids, "video", "frames", progress)
            counts_Q, text_width = scan(text, captions.query_ids, "caption", "tokens", progress)
            writer.start(describe(source, found, captions, counts_V, counts_Q), video_width, text_width)
            pack_videos(visual, captions.video_ids, source, writer, progress)
            pack_queries(text, captions.query_ids, source, writer, progress)
        writer.finish(provenance(source, found))
    return Store.open(target)


def scan(
    features: Features, names: Sequence[str], what: str, unit: str, progress: bool
) -> tuple[NDArray[np.int64], int]:
    """How many rows each id has, and their width: faults are found before anything is written."""
    counts, width = np.empty(len(names), np.int64), 0
    with progress_bar(f"checking {unit}", len(names), progress=progress) as advance:
        for index, name in enumerate(names):
            where, shape = f"{features.path}: {what} '{name}'", features.shape(name)
            if shape is None or 0 in shape:
                state = "is missing" if shape is None else f"has zero {unit}"
                raise HolmesError(f"{where} {state}; extract its {unit} or remove its captions.")
            counts[index], width = shape[0], width or shape[1]
            if shape[1] != width:
                raise HolmesError(f"{where} is {shape[1]} wide, '{names[0]}' {width}; extract it again.")
            advance(1)
    return counts, width


def pack_videos(
    visual: Features, names: Sequence[str], source: Source, writer: StoreWriter, progress: bool
) -> None:
    with progress_bar("packing videos", len(names), writer.videos_done, progress) as advance:
        for index in range(writer.videos_done, len(names)):
            rows = finite_rows(visual, names[index], "video")
            writer.add_videos(video_frames(rows, source.frames), video_clips(rows, source.clips)[None])
            if (index + 1) % COMMIT_VIDEOS == 0:
                writer.commit()
            advance(1)
    writer.commit()


def pack_queries(
    text: Features, names: Sequence[str], source: Source, writer: StoreWriter, progress: bool
) -> None:
    with progress_bar("packing queries", len(names), writer.queries_done, progress) as advance:
        for index in range(writer.queries_done, len(names)):
            rows = finite_rows(text, names[index], "caption")
            writer.add_queries(query_tokens(rows, source.tokens), 1)
            if (index + 1) % COMMIT_QUERIES == 0:
                writer.commit()
            advance(1)


def finite_rows(features: Features, name: str, what: str) -> NDArray[Any]:
    rows = features.rows(name)
    sound = np.abs(rows) <= min(LARGEST_FEATURE, float(np.finfo(rows.dtype).max))  # false for NaN too
    if not sound.all():
        bad, column = (int(at[0]) for at in np.nonzero(~sound))
        value = rows[bad, column]
        found = f"{value:g}, too large a number" if np.isfinite(value) else "NaN or Inf"
        raise HolmesError(f"{features.path}: {what} '{name}', row {bad}, holds {found}; extract it again.")
    return rows


def describe(
    source: Source,
    found: SourceFiles,
    captions: Captions,
    counts_V: NDArray[np.int64],
    counts_Q: NDArray[np.int64],
) -> Catalogue:
    """The catalogue, with what the folder and the annotations know about moments, kinds and fits."""
    beside = source.folder / "moments.json"
    files = [*([beside] if beside.is_file() else []), *source.annotations]
    for path in files:
        refuse_unrelated_annotations(path, captions)
    annotations = read_annotations(files)
    durations_V = np.array(
        [annotations.durations.get(name, np.nan) for name in captions.video_ids], np.float32
    )
    if source.rows_per_second:
        durations_V = np.where(np.isnan(durations_V), counts_V / source.rows_per_second, durations_V)
        annotations.durations |= dict(zip(captions.video_ids, durations_V.tolist(), strict=True))
    return Catalogue(
        collection=found.collection,
        visual=found.visual_name,
        text=found.text.stem,
        video_ids=captions.video_ids,
        query_ids=captions.query_ids,
        captions=captions.texts,
        owner_Q=captions.owner_Q,
        frame_lengths_V=np.minimum(counts_V, source.frames),
        token_lengths_Q=np.minimum(counts_Q, source.tokens),
        splits=captions.splits,
        moments_Q2=annotations.moments(captions),
        durations_V=durations_V,
        kinds_Q=read_kinds(source.folder / "kinds.json", captions),
        also_fits=read_also_fits(source.folder / "also_fits.json", captions),
        frames=source.frames,
        clips=source.clips,
        tokens=source.tokens,
        encoders=read_origin(source.folder, found.visual_name, found.text.stem),
    )


def fingerprint(found: SourceFiles, source: Source) -> dict[str, Any]:
    """A digest that tells whether a stopped pack was of the same files."""
    stats = {str(path.resolve()): path.stat() for path in found.files()}
    return {
        "pack": __version__,
        "lengths": [source.frames, source.clips, source.tokens],
        "files": {name: [stat.st_size, stat.st_mtime_ns] for name, stat in stats.items()},
    }


def provenance(source: Source, found: SourceFiles) -> dict[str, Any]:
    files = [*found.files(), *source.annotations]
    return {
        "holmes": __version__,
        "packed": str(source.folder.resolve()),
        "files": {os.path.relpath(path, source.folder): path.stat().st_size for path in files},
    }
