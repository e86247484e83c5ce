"""Build an index from videos: identify, extract, embed, add. Continues after an interruption."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np

from holmes.base.progress import progress_bar
from holmes.errors import HolmesError
from holmes.heard.folder import HeardFolder
from holmes.heard.hearing import Hearing
from holmes.heard.passages import HEARD
from holmes.index.embedders.loading import (
    Model,
    check_same_encoder,
    check_same_model,
    extraction_record,
    recorded_embedder,
)
from holmes.index.embedders.protocol import Embedder
from holmes.index.embedders.trained import TrainedHolmes
from holmes.index.ingest.file_identity import (
    Duplicate,
    FeatureCatalogue,
    Moved,
    Recognised,
    in_order,
    old_name,
    recognise,
)
from holmes.index.ingest.hearing import HearSummary, hear_files
from holmes.index.ingest.parts import embed_videos
from holmes.index.ingest.skipped import record_skipped
from holmes.index.storage.maintenance import sweep_parts
from holmes.index.storage.manifest import FILE_NAME, Manifest
from holmes.index.storage.segments import StoredVideo
from holmes.index.storage.store import FEATURES
from holmes.index.storage.writer import IndexWriter, create_index
from holmes.media.backbones import check_named, identify
from holmes.media.extraction import Executor, Failure, extract
from holmes.media.feature_folder import MANIFEST as FEATURE_MANIFEST
from holmes.media.feature_folder import FeatureFolder, VideoFeatures, video_id
from holmes.media.find import find_videos, refuse_missing
from holmes.records import CLIPS
from holmes.results import Json, plainly

MOST_BYTES = 2**27  # bytes of features held at once: a two-hour film of the widest encoder has half of that
MOST_VIDEOS = 1024  # held at once
MOST_SECONDS = 20.0  # seconds that a finished video waits at most before it is committed


class PendingVideos:
    """Features that wait to be embedded and added, in batches; the lists say what became of them."""

    def __init__(self, writer: IndexWriter, embedder: Embedder) -> None:
        self._writer, self._embedder = writer, embedder
        self._waiting: list[VideoFeatures] = []
        self._bytes, self._since = 0, time.monotonic()
        self._seen: set[Path] = set()
        self.added, self.unchanged = 0, 0
        self.instead_of: dict[str, str] = {}  # new names of moved videos → old ones, which leave
        self.failures: list[Failure] = []
        self.partial: list[Failure] = []  # added, though some of the file could not be read

    def offer(self, id: str, folder: FeatureFolder) -> None:
        """Add a video's features, once for each source; damaged ones are skipped and listed."""
        try:
            video = folder[id]
            _check_rows(video, folder.backbone.width)
        except HolmesError as error:
            file = folder.file(id)
            self.failures.append(Failure(file, str(error).replace(str(file), "it", 1)))
            return
        if video.source in self._seen:
            return
        self._seen.add(video.source)
        if _is_in(self._writer, video):
            self.unchanged += 1
            return
        if not self._waiting:
            self._since = time.monotonic()
        self._waiting.append(video)
        self._bytes += video.rows.nbytes + video.times.nbytes
        late = time.monotonic() - self._since >= MOST_SECONDS
        if late or self._bytes >= MOST_BYTES or len(self._waiting) >= MOST_VIDEOS:
            self.commit()

    def has_seen(self, source: Path) -> bool:
        return source in self._seen

    def commit(self) -> None:
        """Embed what is pending and add it; when this returns it is on the disk."""
        videos, self._waiting, self._bytes = self._waiting, [], 0
        if not videos:
            return
        stored = self._embedded(videos)
        if stored:
            self._writer.add(stored, self.instead_of)
        self.added += len(stored)
        names = {video.name for video in stored}
        self.partial += [Failure(v.source, v.note) for v in videos if v.note and str(v.source) in names]

    def _embedded(self, videos: Sequence[VideoFeatures]) -> list[StoredVideo]:
        """Embed all at once; where one of them cannot be embedded, one by one, and that one is named."""
        try:
            return embed_videos(videos, {video.id: _stamp(video) for video in videos}, self._embedder)
        except (HolmesError, ValueError, ArithmeticError) as error:
            if len(videos) == 1:
                self.failures.append(Failure(videos[0].source, " ".join(str(error).split())))
                return []
            return [stored for video in videos for stored in self._embedded([video])]


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


def _is_in(writer: IndexWriter, video: VideoFeatures) -> bool:
    known = writer.store.stamp(str(video.source))
    return known is not None and known == _stamp(video)


@dataclass(frozen=True)
class BuildSummary:
    """What became of every video that was named or found."""

    added: int
    unchanged: int  # already in the index, from the same features
    failures: tuple[Failure, ...]
    partial: tuple[Failure, ...] = ()  # added, though some of the file could not be read
    moved: tuple[Moved, ...] = ()  # recognised at a new path, and not extracted again
    duplicates: tuple[Duplicate, ...] = ()  # the same content as another video: skipped
    words: HearSummary | None = None  # what was heard; None where nothing was to be

    def to_dict(self) -> Json:
        plain: Json = plainly(asdict(self))
        return plain


class IngestOptions(TypedDict, total=False):
    """How videos are read into an index."""

    fast: bool  # decode only key frames where they are dense enough
    workers: int | None  # processes; by default one per core
    progress: bool  # draw progress bars
    executor: Executor | None  # extracts in place of processes of this machine
    hearing: Hearing | None  # what to listen for; by default nothing is heard


def build_index(
    path: Path | str,
    videos: Iterable[Path | str],
    embedder: Embedder,
    *,
    rate: float | None = None,
    **how: Unpack[IngestOptions],
) -> BuildSummary:
    """Make an index of `videos` (files, folders, or feature folders), or continue an unfinished one."""
    path, videos = Path(path), list(videos)
    if not (path / FILE_NAME).exists():
        create_index(path, first_manifest(videos, embedder, rate))
    return add_videos(path, videos, embedder, rate=rate, **how)


def first_manifest(videos: list[Path | str], embedder: Embedder, rate: float | None) -> Manifest:
    """Create an empty index, unless a mistake in the names or features of `videos` would keep it empty."""
    folders, files = _split_sources(videos)
    if rate is None:
        rate = folders[0].rate if folders else embedder.rate
    elif isinstance(embedder, TrainedHolmes) and not folders:
        embedder.refuse_other_rate(rate)
    manifest = Manifest(embedder.record, extraction_record(embedder, rate), embedder.width, CLIPS)
    for features in folders:
        _check_features(features, manifest)
    named = find_videos(files) if files or not folders else []
    if not folders:
        refuse_missing(named)
    if named:
        check_named(embedder.visual, isinstance(embedder.extractor, str))
    return manifest


def add_videos(
    path: Path | str,
    videos: Iterable[Path | str],
    embedder: Embedder | None = None,
    *,
    model: Model | None = None,
    rate: float | None = None,
    writer: Callable[[Path], Any] = IndexWriter,
    **how: Unpack[IngestOptions],
) -> BuildSummary:
    """Extract what is new or changed, embed it and add it, as the videos finish; then hear them.

    Without an embedder it is the index's own; `model` is where that one is now. `writer` opens the index, or
    something like one, for writing.
    """
    folders, files = _split_sources(videos)
    if (hearing := how.get("hearing")) is not None:
        hearing.check()
    with open_session(path, embedder, model=model, rate=rate, writer=writer, **how) as session:
        for features in folders:
            _check_features(features, session.writer.store.manifest)
        for features in folders:
            session.add_features(features)
        return session.add_files(find_videos(files) if files or not folders else [])


@dataclass
class Session:
    """An index that this process, the only one that may, is adding to."""

    path: Path
    writer: IndexWriter
    embedder: Embedder
    pending: PendingVideos
    fast: bool = False
    workers: int | None = None
    progress: bool = False
    executor: Executor | None = None
    hearing: Hearing | None = None

    def add_features(self, features: FeatureFolder) -> None:
        """All videos of a feature folder."""
        ids = features.ids()
        with progress_bar("embedding videos", len(ids), progress=self.progress) as advance:
            for id in ids:
                self.pending.offer(id, features)
                advance(1)

    def add_files(self, files: list[Path], catalogue: FeatureCatalogue | None = None) -> BuildSummary:
        """Video files: those known by their content are moved, others extracted; each is added when ready."""
        found, moved, failures = Recognised(), list[Moved](), tuple[Failure, ...]()
        if files:
            check_same_encoder(self.writer.store.manifest.extraction["backbone"], self.embedder)
            sweep_parts(self.path / FEATURES)
            features = feature_folder(self)
            catalogue = catalogue or FeatureCatalogue(features)
            known = {file for file in files if catalogue.is_current(file)}
            found = recognise([file for file in files if file not in known], catalogue, self.writer.store)
            moved, swapped = in_order(found.moved)
            self._move(moved, features)
            before = {str(file): old_name(file, catalogue, self.writer.store) for file in known}
            self.pending.instead_of = {now: old for now, old in before.items() if old is not None}
            wanted = known.union(found.new, swapped)
            failures = self._extract([file for file in files if file in wanted], features)
        pending = self.pending
        pending.commit()
        failures = (*failures, *pending.failures)
        held = self.writer.store.positions
        record_skipped(self.path, failures, pending.partial, held, found.duplicates)
        words = None
        if files and self.hearing is not None and self.hearing.any:
            here = [file for file in files if str(file) in self.writer.store]
            words = hear_files(self.writer, self.path, here, self.hearing, self.workers, self.progress)
        renewed = sum(1 for move in moved if move.before == move.now)
        return BuildSummary(
            added=pending.added - len(moved) + renewed,
            unchanged=pending.unchanged,
            failures=failures,
            partial=tuple(pending.partial),
            moved=tuple(move for move in moved if move.before != move.now),
            duplicates=tuple(found.duplicates),
            words=words,
        )

    def _move(self, moved: list[Moved], features: FeatureFolder) -> None:
        """Take the features of moved files along; each commit replaces old names by new ones."""
        left = [move for move in moved if not os.path.exists(move.before)]
        self.pending.instead_of = {str(move.now): str(move.before) for move in left}
        for move in moved:
            self.pending.offer(features.move(move.id, move.now), features)
        self.pending.commit()
        self.pending.instead_of = {}
        heard = HeardFolder(self.path / HEARD)
        for move in moved:
            heard.move(Path(move.before), Path(move.now))
        for move in left:
            features.file(move.id).unlink(missing_ok=True)
            heard.file(Path(move.before)).unlink(missing_ok=True)

    def _extract(self, files: list[Path], features: FeatureFolder) -> tuple[Failure, ...]:
        if not files:
            return ()
        summary = extract(
            files,
            features.path,
            self.embedder.extractor,
            rate=features.rate,
            fast=self.fast,
            workers=self.workers,
            device=self.embedder.device,
            progress=self.progress,
            finished=lambda source: self.pending.offer(video_id(source), features),
            **({} if self.executor is None else {"executor": self.executor}),
        )
        for source in (*summary.reused, *summary.extracted):
            if not self.pending.has_seen(source):
                self.pending.offer(video_id(source), features)
        return summary.failures


@contextmanager
def open_session(
    path: Path | str,
    embedder: Embedder | None = None,
    *,
    model: Model | None = None,
    rate: float | None = None,
    writer: Callable[[Path], Any] = IndexWriter,
    **how: Unpack[IngestOptions],
) -> Iterator[Session]:
    """An index to add to, with the model it was made with; `model` is that model, or where it is now."""
    path = Path(path)
    with writer(path) as opened:
        manifest = opened.store.manifest
        _check_extraction(path, manifest, rate)
        embedder = embedder or recorded_embedder(manifest.model, model)
        check_same_model(manifest.model, embedder)
        yield Session(path, opened, embedder, PendingVideos(opened, embedder), **how)


def feature_folder(session: Session) -> FeatureFolder:
    """The folder of an index's features, created if there is none."""
    rate = float(session.writer.store.manifest.extraction["rate"])
    return FeatureFolder.create(session.path / FEATURES, identify(session.embedder.visual), rate)


def _split_sources(videos: Iterable[Path | str]) -> tuple[list[FeatureFolder], list[Path | str]]:
    """Folders of features, and the other files and folders, which are videos."""
    paths = list(videos)
    with_features = [path for path in paths if os.path.exists(Path(path) / FEATURE_MANIFEST)]
    folders = [FeatureFolder.open(path) for path in with_features]
    return folders, [path for path in paths if path not in with_features]


def _check_extraction(path: Path, manifest: Manifest, rate: float | None) -> None:
    if not manifest.extraction:
        raise HolmesError(f"{path} contains embeddings made elsewhere; videos cannot be added to it.")
    recorded = manifest.extraction["rate"]
    if rate is not None and rate != recorded:
        raise HolmesError(
            f"{path} was sampled {recorded:g} times per second, not {rate:g}; "
            "leave out --rate, or build another index."
        )


def _check_features(features: FeatureFolder, manifest: Manifest) -> None:
    backbone, rate = manifest.extraction["backbone"], manifest.extraction["rate"]
    if features.backbone.digest != backbone["digest"] or features.rate != rate:
        raise HolmesError(
            f"{features.path} contains features of '{features.backbone.name}' at "
            f"{features.rate:g} samples per second; the index needs those of '{backbone['name']}' "
            f"({backbone['digest'][:12]}) at {rate:g}: "
            f"extract with --backbone {backbone['name']} --rate {rate:g}."
        )
    if not features.ids():
        raise HolmesError(f"{features.path} contains no videos' features yet; 'holmes extract' adds some.")
