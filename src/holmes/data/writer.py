"""Write a store, with resuming after an interruption. It appears under its name when it is complete.

The store grows in a hidden folder beside its final path. Every commit flushes the arrays and records how far
they are. A later writer with the same fingerprint cuts the arrays back to that record and continues.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from holmes.base.feature_origin import UNKNOWN, FeatureOrigin
from holmes.base.files import atomic_file, exchange, sha256_file, sync_folder, write_json
from holmes.base.locks import hold
from holmes.base.manifests import FileEntry, FileFormat
from holmes.base.validation import Count, PlainName, build
from holmes.data.manifest import FEATURES, MANIFEST, REPLACED, Collection, StoreInfo, write_manifest
from holmes.errors import HolmesError
from holmes.records import CLIPS, FRAMES, TOKENS

Array = NDArray[Any]
JOURNAL = "journal.json"
JOURNAL_FORMAT = FileFormat("holmes-journal", 1, "how far a store has come", "write it from the beginning")
LOCK = "lock"
PIECE = 1 << 15  # numbers


@dataclass(frozen=True)
class Catalogue:
    """All of a store but its feature rows. Queries are sorted by video."""

    collection: str
    visual: str
    text: str
    video_ids: Sequence[str]
    query_ids: Sequence[str]
    captions: Sequence[str]
    owner_Q: NDArray[np.int64]
    frame_lengths_V: NDArray[np.int64]  # rows kept, at most `frames`
    token_lengths_Q: NDArray[np.int64]  # rows kept, at most `tokens`
    splits: dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]]  # name → videos, queries
    moments_Q2: NDArray[np.float32] | None = None
    durations_V: NDArray[np.float32] | None = None
    kinds_Q: NDArray[np.int8] | None = None
    also_fits: dict[int, list[int]] = field(default_factory=dict)
    frames: int = FRAMES
    clips: int = CLIPS
    tokens: int = TOKENS
    encoders: FeatureOrigin = UNKNOWN


@dataclass(frozen=True)
class Journal:
    """How far the arrays of a growing store are, and what it is made from."""

    fingerprint: dict[str, Any]
    videos: Count
    queries: Count


class GrowingArray:
    """A float16 .npy file of known final shape, appended to; `done` first rows are there already."""

    def __init__(self, path: Path, shape: tuple[int, ...], done: int) -> None:
        self.shape, self.done = shape, done
        self.file: IO[bytes] = open(path, "r+b" if done else "w+b")  # noqa: SIM115 (closed by the writer)
        header = {"descr": "<f2", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self.file, header)
        self.row_bytes = 2 * int(np.prod(shape[1:]))
        end = self.file.seek(done * self.row_bytes, os.SEEK_CUR)
        if path.stat().st_size < end:
            raise HolmesError(
                f"{path} is shorter than its journal says; run the command again to start over."
            )
        self.file.truncate()

    @property
    def bytes_left(self) -> int:
        return (self.shape[0] - self.done) * self.row_bytes

    def append(self, rows: Array) -> None:
        assert rows.shape[1:] == self.shape[1:] and self.done + len(rows) <= self.shape[0]
        self.file.write(half_precision(rows).data)
        self.done += len(rows)

    def sync(self) -> None:
        self.file.flush()
        os.fsync(self.file.fileno())


def half_precision(rows: Array) -> Array:
    """float16, rounded as NumPy does: torch converts with vector instructions, ten times as fast.

    In pieces that torch does not share among threads: packings side by side would wait for each other's.
    """
    import torch

    rows = np.ascontiguousarray(rows)
    if rows.dtype == np.float16:
        return rows
    halves = np.empty(rows.shape, np.float16)
    source, target = torch.from_numpy(rows).flatten(), torch.from_numpy(halves).flatten()
    for start in range(0, rows.size, PIECE):
        target[start : start + PIECE] = source[start : start + PIECE]
    return halves


class StoreWriter:
    """`with StoreWriter(…) as writer:` add rows in catalogue order, commit now and then, finish.

    A HolmesError inside the block removes what was written; any other end keeps what was committed for the
    next attempt.
    """

    def __init__(self, target: Path, fingerprint: dict[str, Any], overwrite: bool = False) -> None:
        self.target, self.fingerprint, self.overwrite = target, fingerprint, overwrite
        self.folder = target.parent / f".{target.name}.building"

    def __enter__(self) -> StoreWriter:
        restore_replaced(self.target)
        refuse_target(self.target, self.overwrite)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.lock = hold(
            self.folder / LOCK, f"{self.target} is being written by another process; wait until it is done."
        )
        return self

    def start(
        self, catalogue: Catalogue, video_width: int, text_width: int, from_the_beginning: bool = False
    ) -> None:
        """Open the arrays, at the last commit of an earlier attempt if there was one and it may go on."""
        self.catalogue, self.video_width, self.text_width = catalogue, video_width, text_width
        for what, kind in {"collection": Collection, "visual": PlainName, "text": PlainName}.items():
            build(kind, getattr(catalogue, what), what)  # they will be parts of paths
        self.frame_offsets = offsets(catalogue.frame_lengths_V)
        self.token_offsets = offsets(catalogue.token_lengths_Q)
        self.videos_done, self.queries_done = self._resume(from_the_beginning)
        frame_shape = (int(self.frame_offsets[-1]), video_width)
        clip_shape = (len(catalogue.video_ids), catalogue.clips, video_width)
        token_shape = (int(self.token_offsets[-1]), text_width)
        frames_done, tokens_done = self.frame_offsets[self.videos_done], self.token_offsets[self.queries_done]
        self.frames = GrowingArray(self.folder / "frames.npy", frame_shape, int(frames_done))
        self.clips = GrowingArray(self.folder / "clips.npy", clip_shape, self.videos_done)
        self.tokens = GrowingArray(self.folder / "tokens.npy", token_shape, int(tokens_done))
        self._require_space()

    def _require_space(self) -> None:
        needed = sum(array.bytes_left for array in (self.frames, self.clips, self.tokens))
        free = shutil.disk_usage(self.folder).free
        if needed > free:
            sizes = f"{needed / 1e6:,.1f} MB are still to be written and {free / 1e6:,.1f} MB are free"
            raise OSError(errno.ENOSPC, f"No space left on device ({sizes})", str(self.target.parent))

    def _resume(self, from_the_beginning: bool) -> tuple[int, int]:
        """How far an earlier attempt at the same store came; whatever else lies in the folder is removed."""
        videos = queries = 0
        try:
            journal = JOURNAL_FORMAT.read(self.folder / JOURNAL, Journal)
            if journal.fingerprint == self.fingerprint and not from_the_beginning:
                videos = min(journal.videos, len(self.catalogue.video_ids))
                queries = min(journal.queries, len(self.catalogue.query_ids))
        except HolmesError:  # none yet, or damaged: then there is nothing to continue
            pass
        for path in self.folder.iterdir():
            if path.name != LOCK and not ((videos or queries) and path.name in (JOURNAL, *FEATURES)):
                path.unlink()
        return videos, queries

    def add_videos(self, frames: Array, clips: Array) -> None:
        """The next videos: all their frame rows, and their clips (videos × 32 × D)."""
        self.frames.append(frames)
        self.clips.append(clips)
        self.videos_done += len(clips)

    def add_queries(self, tokens: Array, count: int) -> None:
        """The next `count` queries: all their token rows."""
        self.tokens.append(tokens)
        self.queries_done += count

    def commit(self) -> None:
        assert self.frames.done == self.frame_offsets[self.videos_done]
        assert self.tokens.done == self.token_offsets[self.queries_done]
        for array in (self.frames, self.clips, self.tokens):
            array.sync()
        done = Journal(self.fingerprint, self.videos_done, self.queries_done)
        JOURNAL_FORMAT.write(self.folder / JOURNAL, asdict(done))

    def finish(self, provenance: dict[str, Any]) -> None:
        """Write the catalogue and the checksums, and give the folder its name."""
        catalogue = self.catalogue
        assert self.videos_done == len(catalogue.video_ids) and self.queries_done == len(catalogue.query_ids)
        self.commit()
        self._write_catalogue()
        names = sorted({path.name for path in self.folder.iterdir()} - {JOURNAL, LOCK, MANIFEST})
        files = {
            name: FileEntry((self.folder / name).stat().st_size, sha256_file(self.folder / name))
            for name in names
        }
        info = StoreInfo(
            collection=catalogue.collection, visual=catalogue.visual, text=catalogue.text,
            video_width=self.video_width, text_width=self.text_width,
            videos=len(catalogue.video_ids), queries=len(catalogue.query_ids),
            frame_rows=int(self.frame_offsets[-1]), token_rows=int(self.token_offsets[-1]),
            splits={
                name: {"videos": len(videos), "queries": len(queries)}
                for name, (videos, queries) in catalogue.splits.items()
            },
            provenance=provenance, files=files,
            frames=catalogue.frames, clips=catalogue.clips, tokens=catalogue.tokens,
            encoders=catalogue.encoders,
        )  # fmt: skip
        write_manifest(self.folder, info)
        self._publish()

    def _publish(self) -> None:
        """Give the store its name; at every moment the name has a whole store: the old one, or this one."""
        aside = self.target.parent / f".{self.target.name}.{REPLACED}"
        if self.target.exists() and exchange(self.folder, self.target):  # only with overwrite
            os.replace(self.folder, aside)
        else:
            if self.target.exists():
                os.replace(self.target, aside)  # the next writer puts it back if this one ends here
            os.replace(self.folder, self.target)
        sync_folder(self.target.parent)
        for name in (JOURNAL, LOCK):  # held until now: a later writer must find them locked
            (self.target / name).unlink()
        shutil.rmtree(aside, ignore_errors=True)

    def _write_catalogue(self) -> None:
        catalogue = self.catalogue
        videos, queries = len(catalogue.video_ids), len(catalogue.query_ids)
        arrays: dict[str, Array] = {
            "frame_offsets": self.frame_offsets,
            "token_offsets": self.token_offsets,
            "query_offsets": np.searchsorted(catalogue.owner_Q, np.arange(videos + 1)).astype(np.int64),
            "moments": or_else(catalogue.moments_Q2, (queries, 2), np.nan, np.float32),
            "durations": or_else(catalogue.durations_V, (videos,), np.nan, np.float32),
            "kinds": or_else(catalogue.kinds_Q, (queries,), -1, np.int8),
        }
        for name, (videos_S, queries_S) in catalogue.splits.items():
            arrays |= {f"split.{name}.videos": np.asarray(videos_S, np.int64)}
            arrays |= {f"split.{name}.queries": np.asarray(queries_S, np.int64)}
        for name, array in arrays.items():
            with atomic_file(self.folder / f"{name}.npy") as file:
                np.save(file, np.ascontiguousarray(array), allow_pickle=False)
        write_json(self.folder / "videos.json", list(catalogue.video_ids))
        texts = {"ids": list(catalogue.query_ids), "captions": list(catalogue.captions)}
        write_json(self.folder / "queries.json", texts)
        write_json(self.folder / "also_fits.json", {str(q): list(v) for q, v in catalogue.also_fits.items()})

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in ("frames", "clips", "tokens"):
            if hasattr(self, name):
                with suppress(OSError):  # what matters was synced; on a full disk closing fails again
                    getattr(self, name).file.close()
        if isinstance(error, HolmesError) or not (self.folder / JOURNAL).is_file():
            shutil.rmtree(self.folder, ignore_errors=True)
        self.lock.release()


def restore_replaced(target: Path) -> None:
    """Put back what a killed writer had moved aside if its name is free; remove it otherwise."""
    aside = target.parent / f".{target.name}.{REPLACED}"
    if not aside.exists():
        return
    if target.exists():
        shutil.rmtree(aside)
    else:
        os.replace(aside, target)


def refuse_target(target: Path, overwrite: bool) -> None:
    """Never replace something that was not asked for, nor anything that is not a store."""
    if not target.exists():
        return
    if not overwrite:
        raise HolmesError(f"{target} already exists; choose another name or add --overwrite.")
    if not (target / MANIFEST).is_file():
        raise HolmesError(
            f"{target} exists but is not a store, so it is not overwritten; choose another name."
        )


def offsets(lengths: Array) -> NDArray[np.int64]:
    """0, then the running sum."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def or_else(array: Array | None, shape: tuple[int, ...], fill: float, dtype: type) -> Array:
    return np.full(shape, fill, dtype) if array is None else np.asarray(array, dtype).reshape(shape)
