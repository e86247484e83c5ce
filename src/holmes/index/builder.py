"""From videos to an index: extract, embed, add. Run it again and it does what is left."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from holmes.errors import HolmesError
from holmes.index.embedders import (
    Embedder,
    check_same_encoder,
    check_same_model,
    extraction_record,
    recorded_embedder,
)
from holmes.index.left_out import note_left_out
from holmes.index.manifest import FILE_NAME, Manifest
from holmes.index.parts import embed_videos
from holmes.index.store import FEATURES, IndexWriter, create_index
from holmes.media.extract import Failure, extract
from holmes.media.features import MANIFEST as FEATURE_MANIFEST
from holmes.media.features import FeatureFolder, VideoFeatures, video_id
from holmes.media.find import find_videos
from holmes.progress import progress_bar
from holmes.records import CLIPS

VIDEOS_AT_ONCE = 256  # embedded and committed together


@dataclass(frozen=True)
class BuildSummary:
    """What became of every video that was named or found."""

    added: int
    unchanged: int  # already in the index, from the same features
    failures: tuple[Failure, ...]
    partial: tuple[Failure, ...] = ()  # added, though some of the file could not be read


def build_index(
    path: Path | str,
    videos: Iterable[Path | str],
    embedder: Embedder,
    *,
    rate: float | None = None,
    workers: int | None = None,
    progress: bool = False,
) -> BuildSummary:
    """Make an index of `videos` (files, folders, or feature folders), or go on with an unfinished one."""
    path, videos = Path(path), list(videos)
    if not (path / FILE_NAME).exists():
        _create(path, videos, embedder, rate)
    return add_videos(path, videos, embedder, rate=rate, workers=workers, progress=progress)


def _create(path: Path, videos: list[Path | str], embedder: Embedder, rate: float | None) -> None:
    """An empty index, made only if no mistake in the names or features of `videos` stops it from filling."""
    folders, files = _sort_out(videos)
    if rate is None:
        rate = folders[0].rate if folders else embedder.visual.rate
    manifest = Manifest(embedder.record, extraction_record(embedder, rate), embedder.width, CLIPS)
    for features in folders:
        _check_features(features, manifest)
    named = find_videos(files) if files or not folders else []
    if not folders and not any(os.path.exists(file) for file in named):
        raise HolmesError(f"{named[0]} does not exist; name video files, or folders with some.")
    create_index(path, manifest)


def add_videos(
    path: Path | str,
    videos: Iterable[Path | str],
    embedder: Embedder | None = None,
    *,
    rate: float | None = None,
    workers: int | None = None,
    progress: bool = False,
) -> BuildSummary:
    """Extract what is new or changed, embed it and add it, a few videos at a time."""
    path = Path(path)
    with IndexWriter(path) as writer:
        manifest = writer.store.manifest
        _check_extraction(path, manifest, rate)
        embedder = embedder or recorded_embedder(manifest.model)
        check_same_model(manifest.model, embedder)
        sources, failures = _extract(path, videos, manifest, embedder, workers, progress)
        waiting, partial, added, unchanged = iter(sources.items()), list[Failure](), 0, 0
        with progress_bar("embedding videos", len(sources), shown=progress) as advance:
            while some := list(islice(waiting, VIDEOS_AT_ONCE)):
                read, unread = _read(some)
                stamps = {video.id: _stamp(video) for video in read}
                new = [video for video in read if not _is_in(writer, video, stamps[video.id])]
                if new:
                    writer.add(embed_videos(new, stamps, embedder))
                added, unchanged = added + len(new), unchanged + len(read) - len(new)
                failures += unread
                partial += [Failure(video.source, video.note) for video in new if video.note]
                advance(len(some))
        note_left_out(path, failures, partial, writer.store.places)
    return BuildSummary(added, unchanged, tuple(failures), tuple(partial))


def feature_faults(path: Path | str) -> list[str]:
    """What is wrong with the features that an index keeps; reads all of them."""
    folders, _ = _sort_out([Path(path) / FEATURES])
    faults = []
    for features in folders:
        for id in features.ids():
            try:
                features[id]
            except HolmesError as error:
                if id in features:  # a compaction may delete it meanwhile
                    faults.append(str(error))
    return faults


def compact_index(path: Path | str) -> int:
    """Free the space of removed videos, embeddings and extracted features; says how many bytes."""
    path = Path(path)
    before = _size(path)
    with IndexWriter(path) as writer:
        folders, _ = _sort_out([path / FEATURES])
        writer.compact()
        _sweep(path / FEATURES)
        kept = {video_id(Path(name)) for name in writer.store.places}
        for features in folders:
            for id in set(features.ids()) - kept:
                features.file(id).unlink(missing_ok=True)
    return max(0, before - _size(path))


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def _sweep(features: Path) -> None:
    """Delete what a killed extraction left. Only for the holder of the index's lock: no other is at work."""
    for part in features.rglob(".*.part"):
        part.unlink(missing_ok=True)


def _sort_out(videos: Iterable[Path | str]) -> tuple[list[FeatureFolder], list[Path | str]]:
    """Folders of features, and the other files and folders, which are videos."""
    paths = list(videos)
    with_features = [path for path in paths if os.path.exists(Path(path) / FEATURE_MANIFEST)]
    folders = [FeatureFolder.open(path) for path in with_features]
    return folders, [path for path in paths if path not in with_features]


def _check_extraction(path: Path, manifest: Manifest, rate: float | None) -> None:
    if not manifest.extraction:
        raise HolmesError(f"{path} holds embeddings made elsewhere; videos cannot be added to it.")
    recorded = manifest.extraction["rate"]
    if rate is not None and rate != recorded:
        raise HolmesError(
            f"{path} was sampled {recorded:g} times a second, not {rate:g}; "
            "leave --rate away, or build another index."
        )


def _extract(
    path: Path,
    videos: Iterable[Path | str],
    manifest: Manifest,
    embedder: Embedder,
    workers: int | None,
    progress: bool,
) -> tuple[dict[str, FeatureFolder], list[Failure]]:
    """Where the features of every video are, by its id, extracting those that were not."""
    folders, files = _sort_out(videos)
    for features in folders:
        _check_features(features, manifest)
    found = {id: features for features in folders for id in features.ids()}
    if not files:
        return found, []
    check_same_encoder(manifest.extraction["backbone"], embedder)
    _sweep(path / FEATURES)
    rate = float(manifest.extraction["rate"])
    name = embedder.visual.name
    summary = extract(files, path / FEATURES, name, rate=rate, workers=workers, progress=progress)
    done = {video_id(source): summary.folder for source in (*summary.extracted, *summary.reused)}
    return found | done, list(summary.failures)


def _check_features(features: FeatureFolder, manifest: Manifest) -> None:
    backbone, rate = manifest.extraction["backbone"], manifest.extraction["rate"]
    if features.backbone.digest != backbone["digest"] or features.rate != rate:
        raise HolmesError(
            f"{features.path} holds features of '{features.backbone.name}' at {features.rate:g} a second; "
            f"the index needs those of '{backbone['name']}' ({backbone['digest'][:12]}) at {rate:g}: "
            f"extract with --backbone {backbone['name']} --rate {rate:g}."
        )
    if not features.ids():
        raise HolmesError(f"{features.path} holds features of no video: 'holmes extract' adds some.")


def _read(sources: Sequence[tuple[str, FeatureFolder]]) -> tuple[list[VideoFeatures], list[Failure]]:
    """Videos' features, each video once, and the files that cannot be used."""
    videos: dict[Path, VideoFeatures] = {}
    failures = []
    for id, folder in sources:
        try:
            video = folder[id]
            _check_rows(video, folder.backbone.width)
            videos[video.source] = video
        except HolmesError as error:
            file = folder.file(id)
            failures.append(Failure(file, str(error).replace(str(file), "it", 1)))
    return list(videos.values()), failures


def _check_rows(video: VideoFeatures, width: int) -> None:
    count = len(video.times)
    if video.rows.ndim == 2 and video.rows.shape[1] != width:
        raise HolmesError(
            f"its rows have width {video.rows.shape[1]}, those of its encoder {width}; "
            f"extract {video.source} again."
        )
    if not count or video.rows.shape != (count, width) or video.times.shape != (count,):
        raise HolmesError(f"its rows and times do not belong together; extract {video.source} again.")
    if not all(
        np.isfinite(numbers).all() for numbers in (video.rows, video.times, video.start, video.duration)
    ):
        raise HolmesError(f"it holds numbers that are not finite; extract {video.source} again.")


def _stamp(video: VideoFeatures) -> int:
    """A number that changes when the features do."""
    digest = hashlib.sha256(np.ascontiguousarray(video.rows).data)
    digest.update(np.ascontiguousarray(video.times).data)
    return int.from_bytes(digest.digest()[:8], "little")


def _is_in(writer: IndexWriter, video: VideoFeatures, stamp: int) -> bool:
    name = str(video.source)
    return name in writer.store and writer.store[name].stamp == stamp
