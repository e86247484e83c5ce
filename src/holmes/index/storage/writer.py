"""Change an index: each change replaces the manifest. One process writes at a time."""

from __future__ import annotations

import fnmatch
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from holmes.base.files import inside
from holmes.errors import HolmesError
from holmes.heard.passages import HEARD
from holmes.index.storage.lock import LOCK, lock_folder, lock_index
from holmes.index.storage.manifest import (
    FILE_NAME,
    Manifest,
    PassageEntry,
    SegmentEntry,
    damaged,
    read_manifest,
    write_manifest,
)
from holmes.index.storage.passages import PassageSegment, StoredWords, write_passages
from holmes.index.storage.segments import TILE, Segment, StoredVideo, write_segment
from holmes.index.storage.snapshots import snapshot_segments
from holmes.index.storage.store import FEATURES, SEARCHES, SEGMENTS, SKIPPED, IndexStore

UNFINISHED = f".{FILE_NAME}.*.part"  # a manifest that a killed process was writing
SEGMENT_PASSAGES = 2**20  # in a full segment of passages: half a GB
SEGMENT_PARTS = 4096  # of videos, in a full segment: half a GB at 160 rows of 384


def create_index(path: Path | str, manifest: Manifest) -> None:
    """Create an empty index in a new or empty folder, or finish one whose creation was cut short."""
    path = Path(path)
    _refuse_filled(path)
    (path / SEGMENTS).mkdir(parents=True, exist_ok=True)
    with lock_index(path):
        _refuse_filled(path)  # another process may have made an index here since
        write_manifest(path, manifest)


def _refuse_filled(path: Path) -> None:
    if (path / FILE_NAME).exists():
        raise HolmesError(f"{path} is already an index; 'holmes index add' adds to it.")
    if path.exists() and not (path.is_dir() and all(_is_leftover(entry) for entry in path.iterdir())):
        raise HolmesError(f"{path} exists and is not empty; choose another folder for the index.")


def _is_leftover(entry: Path) -> bool:
    """What there may be before there is a manifest."""
    if entry.name == SEGMENTS:
        return entry.is_dir() and not any(entry.iterdir())
    known = (LOCK, FEATURES, HEARD, SKIPPED, SEARCHES, f"{SEARCHES}.lock")
    return entry.name in known or fnmatch.fnmatch(entry.name, UNFINISHED)


class IndexWriter:
    """The one process that may change an index; a context manager that holds its lock.

    When a method returns, its change is on the disk and survives any crash.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.store: IndexStore
        self._lock: IO[str]
        self._folder: int  # of the index and of its segments: the same folders even if their paths change
        self._segments: int

    def __enter__(self) -> IndexWriter:
        read_manifest(self.path)  # an error where there is no index, before a lock file is left there
        with ExitStack() as held:
            self._lock = held.enter_context(lock_index(self.path))
            self._folder = os.open(self.path, os.O_DIRECTORY)
            held.callback(os.close, self._folder)
            lock_folder(self._folder, self.path)
            inside(self.path, SEGMENTS)  # it is swept below
            self._segments = os.open(SEGMENTS, os.O_DIRECTORY, dir_fd=self._folder)
            held.callback(os.close, self._segments)
            self._reopen()
            self._sweep()
            self._held = held.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: TracebackType | None) -> None:
        self._held.close()  # also releases the lock

    def add(self, videos: Sequence[StoredVideo], instead_of: Mapping[str, str] | None = None) -> None:
        """Add videos; one whose name the index already has replaces the old one.

        `instead_of` maps a new name to the old one that leaves the index with the same commit.
        """
        twice = [name for name, times in Counter(video.name for video in videos).items() if times > 1]
        if twice:
            raise HolmesError(f"{twice[0]} was given twice.")
        for group in _full_segments(videos):
            with self._change():
                self._add_segment(group, instead_of or {})

    def hear(self, videos: Sequence[StoredWords], encoder: str) -> None:
        """Set what videos of this index say and show; `encoder` is the digest of what made the vectors."""
        names = {video.name for video in videos}
        absent = sorted(names - self.store.find_all(names).keys())
        if absent:
            raise HolmesError(f"{self.path} contains no video named '{absent[0]}'.")
        if len(names) < len(videos):
            raise HolmesError("a video was given twice.")
        with self._change():
            kept, count = self._without_words(names), sum(len(video.passages) for video in videos)
            segments = {segment.entry.name: segment for segment in self.store.passages}
            group = list(videos)
            while kept:
                entry = kept[-1]
                fits = entry.passages <= count and entry.passages + count <= SEGMENT_PASSAGES
                if entry.encoder != encoder or not (fits or not entry.live):
                    break
                self._refuse_damage([segments[entry.name]])
                group = [*segments[entry.name].live(kept.pop()), *group]
                count += entry.passages
            entries = [*kept, self._write_words(group, encoder)]
            self._commit(self.store.manifest.segments, entries)

    def take_words(self, source: IndexStore) -> None:
        """Set what videos of this index say and show in another one."""
        for segment in source.passages:
            words = [video for video in segment.live(segment.entry) if video.name in self.store]
            if words:
                self.hear(words, segment.entry.encoder)

    def remove(self, names: Iterable[str]) -> None:
        """Mark videos as removed; `compact` frees their space."""
        names = set(names)
        absent = sorted(names - self.store.find_all(names).keys())
        if absent:
            raise HolmesError(
                f"{self.path} contains no video named '{absent[0]}'; 'holmes index info --json' lists them."
            )
        with self._change():
            self._commit(self._without(names), self._without_words(names))

    def compact(self) -> None:
        """Rewrite into few full segments without the removed videos, and free their space."""
        with self._change():
            self._compact()

    def _compact(self) -> None:
        self._refuse_damage(self.store.segments)
        videos = (video for segment in self.store.segments for video in segment.live(segment.entry))
        entries = []
        for number, group in enumerate(_full_segments(videos)):
            entries.append(self._write(group, number))
            for segment in self.store.segments:
                segment.release_pages()
        self._commit(entries, self._compacted_words(len(entries)))

    def _compacted_words(self, number: int) -> list[PassageEntry]:
        """The segments of passages without removed videos; those that have none are kept."""
        entries = []
        for segment in self.store.passages:
            if not segment.entry.removed:
                entries.append(segment.entry)
            elif segment.entry.live:
                self._refuse_damage([segment])
                number += 1
                entries.append(self._write_words(segment.live(segment.entry), segment.entry.encoder, number))
        return entries

    def _add_segment(self, videos: list[StoredVideo], instead_of: Mapping[str, str]) -> None:
        """Merge neighbours that are not larger than the new segment into it, so that there are never many."""
        names = {video.name for video in videos}
        names |= {instead_of[name] for name in names & instead_of.keys()}
        kept, parts = self._without(names), _count_parts(videos)
        segments = dict(zip([entry.name for entry in kept], self.store.segments, strict=True))
        while kept:
            segment, entry = segments[kept[-1].name], kept[-1]
            if (old := segment.live_parts(entry)) > min(parts, SEGMENT_PARTS - parts):
                break
            self._refuse_damage([segment])
            videos, parts = [*segment.live(kept.pop()), *videos], parts + old
        renamed = {old: new for new, old in instead_of.items() if new in {video.name for video in videos}}
        entries = [*kept, self._write(videos)]
        self._commit(entries, self._moved_words(names, renamed))

    def _moved_words(self, names: set[str], renamed: Mapping[str, str]) -> list[PassageEntry]:
        """The passages' entries when these videos were replaced: a moved video takes its words along."""
        moved: list[StoredWords] = []
        encoder = ""
        for segment in self.store.passages:
            wanted = renamed.keys() & segment.positions.keys()
            if wanted:
                encoder = segment.entry.encoder
                live = {video.name: video for video in segment.live(segment.entry)}
                moved += [replace(live[old], name=renamed[old]) for old in sorted(wanted)]
        entries = self._without_words({*names, *renamed})
        return [*entries, self._write_words(moved, encoder, 1)] if moved else entries

    def _without_words(self, names: set[str]) -> list[PassageEntry]:
        """The entries of passages with these videos marked as removed."""
        entries = []
        for segment in self.store.passages:
            gone = [segment.positions[name] for name in names & segment.positions.keys()]
            removed = tuple(sorted([*segment.entry.removed, *gone]))
            entries.append(replace(segment.entry, removed=removed))
        return entries

    def _write_words(self, videos: Sequence[StoredWords], encoder: str, number: int = 0) -> PassageEntry:
        return write_passages(self._new_folder(number), videos, encoder)

    def _refuse_damage(self, segments: Sequence[Segment | PassageSegment]) -> None:
        """Verify segments before they are copied: damaged rows would get a checksum that calls them sound."""
        faults = [fault for segment in segments for fault in segment.faults()]
        if faults:
            raise damaged(self.path, "; ".join(faults))

    def _without(self, names: set[str]) -> list[SegmentEntry]:
        """The segments' entries with these videos marked as removed."""
        gone: dict[int, list[int]] = {}
        for number, position in self.store.find_all(names).values():
            gone.setdefault(number, []).append(position)
        return [
            replace(entry, removed=tuple(sorted([*entry.removed, *gone.get(number, [])])))
            for number, entry in enumerate(self.store.manifest.segments)
        ]

    def _write(self, videos: Sequence[StoredVideo], number: int = 0) -> SegmentEntry:
        manifest = self.store.manifest
        for video in videos:
            _, rows, width = video.rows_SPD.shape
            if width != manifest.width or not 0 <= rows - manifest.clips - video.frames < TILE:
                raise HolmesError(f"the embeddings of {video.name} do not have the index's width and clips.")
        folder = self._new_folder(number)
        try:
            return write_segment(folder, videos)
        except OSError as error:
            if error.filename is None:
                error.filename = str(folder)  # a full disk does not say where
            raise

    def _new_folder(self, number: int) -> Path:
        """A folder for a segment. Its name holds the generation that first has it, so none is used twice."""
        folder = self.path / SEGMENTS / f"{self.store.manifest.generation + 1:08d}{number:04d}"
        try:
            folder.mkdir()
        except FileExistsError:
            raise self._replaced() from None
        self._made[folder.name] = os.open(folder, os.O_DIRECTORY)
        return folder

    @contextmanager
    def _change(self) -> Iterator[None]:
        """One change: if it fails, the segments that were made for it are removed, and nothing else."""
        self._refuse_replaced()
        self._made: dict[str, int] = {}
        try:
            yield
        except BaseException:
            for name, made in self._made.items():
                with suppress(OSError):
                    if os.path.samestat(os.fstat(made), os.stat(name, dir_fd=self._segments)):
                        shutil.rmtree(name, ignore_errors=True, dir_fd=self._segments)
            raise
        finally:
            self._close_made()

    def _commit(self, entries: Sequence[SegmentEntry], passages: Sequence[PassageEntry]) -> None:
        live = tuple(entry for entry in entries if entry.live)
        heard = tuple(entry for entry in passages if entry.live)
        manifest = self.store.manifest
        changed = replace(manifest, segments=live, passages=heard, generation=manifest.generation + 1)
        try:
            write_manifest(self.path, changed, self._refuse_replaced)
        except FileNotFoundError:  # the folder was replaced after the last check: the new one lacks our file
            raise self._replaced() from None
        self._close_made()  # a manifest names them now: they are not to be removed if anything fails
        self._reopen()
        if self.store.manifest != changed:  # another index has this path now, and its own segments
            raise self._replaced()
        self._sweep()

    def _close_made(self) -> None:
        while self._made:
            os.close(self._made.popitem()[1])

    def _reopen(self) -> None:
        before = self.store if hasattr(self, "store") else None
        self.store = IndexStore.open(
            self.path, before.segments if before else (), before.passages if before else ()
        )

    def _sweep(self) -> None:
        """Delete what no manifest names: replaced segments, and what a killed writer left."""
        named = self.store.manifest.folders.keys() | snapshot_segments(self.path)
        for name in set(os.listdir(self._segments)) - named:
            shutil.rmtree(name, ignore_errors=True, dir_fd=self._segments)
        for name in fnmatch.filter(os.listdir(self._folder), UNFINISHED):
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._folder)

    def _refuse_replaced(self) -> None:
        """Whether the index under this path, and its lock, are still those that this writer holds."""
        try:
            held = os.path.samestat(os.fstat(self._lock.fileno()), os.stat(self.path / LOCK))
            same = held and read_manifest(self.path) == self.store.manifest
        except (OSError, HolmesError):
            same = False
        if not same:
            raise self._replaced()

    def _replaced(self) -> HolmesError:
        return HolmesError(
            f"{self.path} was replaced by another process while this one was changing it; none of this "
            "change was kept: run the same command again."
        )


def _full_segments(videos: Iterable[StoredVideo]) -> Iterator[list[StoredVideo]]:
    """The videos, in groups that each fill a segment; the last may not."""
    group, parts = list[StoredVideo](), 0
    for video in videos:
        if group and parts + len(video.rows_SPD) > SEGMENT_PARTS:
            yield group
            group, parts = [], 0
        group.append(video)
        parts += len(video.rows_SPD)
    if group:
        yield group


def _count_parts(videos: Iterable[StoredVideo]) -> int:
    return sum(len(video.rows_SPD) for video in videos)
