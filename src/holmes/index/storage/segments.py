"""Segments: immutable files with the embeddings of some videos.

    rows.f16     embeddings, one row per position: a part's frames, then its clips
    codes.i8     the same in int8, to be scanned
    parts.f32    the scale of each part's codes, and how far they are off
    spans.f32    the seconds, from and to, that each row stands for
    videos.bin   one record per video
    names.bin    the videos' names, a zero byte after each
    sums.i64     a checksum of each row, then one of each part's spans; earlier versions wrote none

A short video is one part, a long one several that overlap, all with equally many rows. A part's frames fill
whole tiles of 16 rows: its last frame is repeated, which changes no maximum. Videos are sorted by the number
of rows of their parts, so a segment is a few slabs, each a dense array parts × rows × width. A scan is then
one matrix product per block and one maximum, without a mask.

V videos, S parts of a video or of several, P rows of one part, F frames, C clips, D width
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from holmes.base.files import sync_folder
from holmes.base.manifests import FileEntry
from holmes.errors import HolmesError
from holmes.index.storage.checksums import checksums
from holmes.index.storage.codes import encode_parts
from holmes.index.storage.manifest import (
    CODES,
    NAMES,
    PARTS,
    ROWS,
    SPANS,
    SUMS,
    VIDEOS,
    SegmentEntry,
    damaged,
)

TILE = 16  # rows; frames are padded to a multiple of it


@dataclass(frozen=True)
class StoredVideo:
    """One video as an index keeps it."""

    name: str  # the path of its file, or any other unique name
    duration: float  # seconds
    frames: int  # how many of a part's rows are frames, before padding
    rows_SPD: NDArray[np.float16]  # unit length: frames, repeats of the last one, clips
    codes_SPD: NDArray[np.int8]
    numbers_S3: NDArray[np.float32]  # of each part's codes
    spans_SP2: NDArray[np.float32]
    stamp: int = 0


def pack_parts(
    name: str,
    duration: float,
    frames_SFD: NDArray[Any],
    clips_SCD: NDArray[Any],
    frame_spans_SF2: NDArray[Any],
    clip_spans_SC2: NDArray[Any],
    stamp: int = 0,
) -> StoredVideo:
    """Embeddings in the layout of a segment: unit length, float16, frames padded to whole tiles."""
    if not name or "\0" in name:
        raise HolmesError(f"{name!r} cannot name a video.")
    frames = np.shape(frames_SFD)[1]
    if not len(frames_SFD) or not frames:
        raise HolmesError(f"{name} has no frames.")
    padded = np.minimum(np.arange(-frames // TILE * -TILE), frames - 1)
    rows_SPD = np.concatenate([frames_SFD[:, padded], clips_SCD], axis=1, dtype=np.float32)
    norms_SP1 = np.linalg.norm(rows_SPD, axis=2, keepdims=True)
    if not np.isfinite(norms_SP1).all():
        raise HolmesError(f"{name} has an embedding that is not finite.")
    spans_SP2 = np.concatenate([frame_spans_SF2[:, padded], clip_spans_SC2], axis=1).astype(np.float32)
    unit_SPD = (rows_SPD / np.maximum(norms_SP1, 1e-12)).astype(np.float16)
    codes_SPD, numbers_S3 = encode_parts(unit_SPD, clips_SCD.shape[1])
    return StoredVideo(name, duration, frames, unit_SPD, codes_SPD, numbers_S3, spans_SP2, stamp)


def video_key(name: str) -> int:
    """A number that no two names share and that depends on the name alone."""
    return int.from_bytes(hashlib.sha256(os.fsencode(name)).digest()[:8], "little", signed=True)


RECORD = np.dtype(
    [
        ("parts", "<i4"),
        ("frames", "<i4"),  # of each part, before padding
        ("rows", "<i4"),  # of each part, with padding and clips
        ("duration", "<f8"),  # seconds
        ("stamp", "<u8"),  # what the embedding was made from
        ("key", "<i8"),  # orders videos of equal score, in every index alike
    ]
)


@dataclass(frozen=True)
class Slab:
    """The parts of a segment's videos from position `first` up to `end`, all with equally many rows."""

    first: int
    end: int
    rows_SPD: NDArray[np.float16]
    codes_SPD: NDArray[np.int8]
    numbers_S3: NDArray[np.float32]
    sums_SP: NDArray[np.int64] | None  # of the rows


class Segment:
    """An open segment. Rows and spans stay on disk until they are used."""

    def __init__(self, folder: Path, entry: SegmentEntry, width: int, clips: int) -> None:
        self.folder, self.entry = folder, entry
        for file in entry.files:
            _check_size(folder / file, entry)
        records = _verified(folder / VIDEOS, entry)
        if len(records) != entry.videos * RECORD.itemsize:
            raise _damaged(folder / VIDEOS, f"it does not describe {entry.videos} videos")
        records_V = np.frombuffer(records, RECORD)
        self.parts_V = records_V["parts"].astype(np.int64)
        self.frames_V = records_V["frames"].astype(np.int64)
        self.rows_V = records_V["rows"].astype(np.int64)
        self.duration_V, self.stamp_V, self.key_V = (records_V[of] for of in ("duration", "stamp", "key"))
        padding_V = self.rows_V - clips - self.frames_V
        sound_V = (self.parts_V > 0) & (self.frames_V > 0) & (padding_V >= 0)
        if not (sound_V & (np.diff(self.rows_V, prepend=0) >= 0)).all():
            raise _damaged(folder / VIDEOS, "its records contradict each other")
        size_V = self.parts_V * self.rows_V
        self.start_V = np.cumsum(size_V) - size_V
        self.rows_ND = self._positions(ROWS, "<f2", width)
        self.codes_ND = self._positions(CODES, "<i1", width)
        self.first_part_V = np.cumsum(self.parts_V) - self.parts_V
        self.numbers_S3 = np.frombuffer(_verified(folder / PARTS, entry), "<f4").reshape(-1, 3).copy()
        if len(self.numbers_S3) != self.parts_V.sum():
            raise _damaged(folder / PARTS, f"it does not describe {self.parts_V.sum()} parts")
        self.spans_N2 = self._positions(SPANS, "<f4", 2)
        self.sums_N: NDArray[np.int64] | None = None  # of the rows
        self.span_sums_S: NDArray[np.int64] | None = None  # of the parts' spans
        if SUMS in entry.files:
            self.sums_N, self.span_sums_S = self._sums()
        self._intact: set[int] = set()  # positions of videos whose rows and spans were verified
        self.names = os.fsdecode(_verified(folder / NAMES, entry)).split("\0")[:-1]
        if len(self.names) != entry.videos:
            raise _damaged(folder / NAMES, f"it does not name {entry.videos} videos")

    def _positions(self, file: str, dtype: str, width: int) -> NDArray[Any]:
        numbers = _map(self.folder / file, dtype, self.entry)
        rows = int((self.parts_V * self.rows_V).sum())
        if len(numbers) != rows * width:
            raise _damaged(self.folder / file, f"it does not hold {rows} rows of {width}")
        return numbers.reshape(-1, width)

    def _sums(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        sums, rows, parts = _map(self.folder / SUMS, "<i8", self.entry), len(self.rows_ND), self.parts_V.sum()
        if len(sums) != rows + parts:
            raise _damaged(self.folder / SUMS, f"it does not hold {rows + parts} checksums")
        return sums[:rows], sums[rows:]

    @cached_property
    def slabs(self) -> list[Slab]:
        bounds = [*np.flatnonzero(np.diff(self.rows_V, prepend=-1)).tolist(), len(self.rows_V)]
        return [self._slab(first, end) for first, end in pairwise(bounds)]

    def _slab(self, first: int, end: int) -> Slab:
        start, part = self.start_V[first], self.first_part_V[first]
        parts, rows = self.parts_V[first:end].sum(), self.rows_V[first]
        rows_SPD, codes_SPD = (
            array_ND[start : start + parts * rows].reshape(parts, rows, -1)
            for array_ND in (self.rows_ND, self.codes_ND)
        )
        sums_N = self.sums_N
        sums_SP = None if sums_N is None else sums_N[start : start + parts * rows].reshape(parts, rows)
        return Slab(first, end, rows_SPD, codes_SPD, self.numbers_S3[part : part + parts], sums_SP)

    def video(self, position: int) -> StoredVideo:
        """One of its videos; its rows and spans are verified when they are first read."""
        if position not in self._intact:
            self._verify(position)
            self._intact.add(position)
        return self._stored(position)

    def _verify(self, position: int) -> None:
        if self.sums_N is None or self.span_sums_S is None:
            return
        rows, parts, (count, _) = self._place(position)
        for file, found, sums in (
            (ROWS, self.rows_ND[rows], self.sums_N[rows]),
            (SPANS, self.spans_N2[rows].reshape(count, -1), self.span_sums_S[parts]),
        ):
            if not np.array_equal(checksums(torch.from_numpy(found)).numpy(), sums):
                raise HolmesError(rows_do_not_match(self.folder / file))

    def _stored(self, position: int) -> StoredVideo:
        rows, parts, shape = self._place(position)
        return StoredVideo(
            self.names[position],
            float(self.duration_V[position]),
            int(self.frames_V[position]),
            self.rows_ND[rows].reshape(*shape, -1),
            self.codes_ND[rows].reshape(*shape, -1),
            self.numbers_S3[parts],
            self.spans_N2[rows].reshape(*shape, 2),
            int(self.stamp_V[position]),
        )

    def _place(self, position: int) -> tuple[slice, slice, tuple[int, int]]:
        """A video's rows and parts in the arrays, and how many parts it has, each of how many rows."""
        start, first = self.start_V[position], self.first_part_V[position]
        parts, rows = self.parts_V[position], self.rows_V[position]
        return slice(start, start + parts * rows), slice(first, first + parts), (parts, rows)

    @cached_property
    def positions(self) -> dict[str, int]:
        """Where each name is, of removed videos too."""
        return {name: position for position, name in enumerate(self.names)}

    def find(self, name: str) -> int | None:
        """The position of a video, unless it has been removed."""
        position = self.positions.get(name)
        return None if position in self.removed else position

    @cached_property
    def removed(self) -> frozenset[int]:
        return frozenset(self.entry.removed)

    def with_entry(self, entry: SegmentEntry) -> Segment:
        """The same files, which never change, with what has been removed since."""
        later = copy(self)
        later.entry = entry
        later.__dict__.pop("removed", None)
        return later

    def release_pages(self) -> None:
        """Take the mapped files out of this process' memory; what is used again is mapped again."""
        for mapped in (self.rows_ND, self.codes_ND, self.spans_N2):
            mapping_of(mapped).madvise(mmap.MADV_DONTNEED)

    def live(self, entry: SegmentEntry) -> Iterator[StoredVideo]:
        """The videos that `entry`, this segment's now or soon, does not mark as removed."""
        removed = set(entry.removed)
        return (self._stored(position) for position in range(entry.videos) if position not in removed)

    def live_parts(self, entry: SegmentEntry) -> int:
        return int(self.parts_V.sum() - self.parts_V[list(entry.removed)].sum())

    def faults(self) -> list[str]:
        return self.entry.faults(self.folder)


def write_segment(folder: Path, videos: Sequence[StoredVideo]) -> SegmentEntry:
    """Write a new segment to the disk, synced; nothing refers to it yet."""
    videos = sorted(videos, key=lambda video: video.rows_SPD.shape[1])
    records_V = np.array([_record(video) for video in videos], RECORD)
    folder.mkdir(parents=True, exist_ok=True)  # a file that is there already is not written over
    files = {
        ROWS: _write(folder / ROWS, (np.ascontiguousarray(video.rows_SPD, "<f2") for video in videos)),
        CODES: _write(folder / CODES, (np.ascontiguousarray(video.codes_SPD, "<i1") for video in videos)),
        PARTS: _write(folder / PARTS, (np.ascontiguousarray(video.numbers_S3, "<f4") for video in videos)),
        SPANS: _write(folder / SPANS, (np.ascontiguousarray(video.spans_SP2, "<f4") for video in videos)),
        VIDEOS: _write(folder / VIDEOS, [records_V.tobytes()]),
        NAMES: _write(folder / NAMES, (os.fsencode(video.name) + b"\0" for video in videos)),
        SUMS: _write(folder / SUMS, _sums_of(videos)),
    }
    sync_folder(folder)
    sync_folder(folder.parent)
    return SegmentEntry(folder.name, len(videos), files)


def _sums_of(videos: Sequence[StoredVideo]) -> Iterator[NDArray[np.int64]]:
    """The checksums of all rows, then those of all parts' spans."""
    for video in videos:
        rows_SPD = np.ascontiguousarray(video.rows_SPD, "<f2")
        yield checksums(torch.from_numpy(rows_SPD).flatten(0, 1)).numpy()
    for video in videos:
        spans_SP2 = np.ascontiguousarray(video.spans_SP2, "<f4")
        yield checksums(torch.from_numpy(spans_SP2).flatten(1)).numpy()


def rows_do_not_match(where: Path | str) -> str:
    return f"{where} is damaged (what was read does not match its checksum); run 'holmes index check'."


def _record(video: StoredVideo) -> tuple[int | float, ...]:
    parts, rows, _ = video.rows_SPD.shape
    return parts, video.frames, rows, video.duration, video.stamp, video_key(video.name)


def _damaged(path: Path, why: str) -> HolmesError:
    return damaged(path.parents[2], f"{path} is damaged ({why})")  # INDEX/segments/NUMBER/FILE


def _write(path: Path, arrays: Iterable[Any]) -> FileEntry:
    """Bytes or arrays one after the other, on the disk when this returns."""
    digest, size = hashlib.sha256(), 0
    with open(path, "xb") as file:
        for array in arrays:
            piece: memoryview = memoryview(array)
            file.write(piece)
            digest.update(piece)
            size += piece.nbytes
        file.flush()
        os.fsync(file.fileno())
    return FileEntry(size, digest.hexdigest())


def _map(path: Path, dtype: str, entry: SegmentEntry) -> NDArray[Any]:
    """A file's numbers, left on disk. Copy-on-write, so that torch may take it; nobody writes to it."""
    numbers = entry.files[path.name].bytes // np.dtype(dtype).itemsize
    return np.asarray(np.memmap(path, dtype, "c", shape=numbers))  # a plain array is sliced in half the time


def mapping_of(mapped: NDArray[Any]) -> mmap.mmap:
    """The mapped file behind an array."""
    array: Any = mapped
    while not isinstance(array.base, mmap.mmap):
        array = array.base
    return array.base


def _check_size(path: Path, entry: SegmentEntry) -> None:
    size = path.stat().st_size  # a missing file is left to the caller: it may have been compacted away
    if size != entry.files[path.name].bytes or size == 0:
        raise _damaged(path, f"{size} bytes long, not {entry.files[path.name].bytes}")


def _verified(path: Path, entry: SegmentEntry) -> bytes:
    """A small file's bytes, as they were written."""
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != entry.files[path.name].sha256:
        raise _damaged(path, "its checksum does not match")
    return content
