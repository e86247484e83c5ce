"""Store passages in immutable files: words in a full-text index, meaning as int8 vectors.

    passages.sqlite   videos, passages, and an FTS5 index of their words (stems, without accents)
    vectors.i8        the meaning of each passage: a unit vector of MiniLM, in int8
    numbers.f32       the scale of each vector
    owners.i32        the video of each passage, by its position; ascending
    kinds.i8          whether each passage is said (0) or written (1)

A segment of passages belongs to an index beside its segments of pictures, and is kept in the same way: a
manifest names it, nothing changes it, and removed videos are marked until a merge drops them.

N passages, V videos, D width
"""

from __future__ import annotations

import errno
import json
import os
import re
import sqlite3
import unicodedata
import zlib
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holmes.base.files import sha256_file, sync_folder
from holmes.base.manifests import FileEntry
from holmes.base.validation import build
from holmes.errors import HolmesError
from holmes.heard.passages import SOURCES, Heard, Passage, joined
from holmes.index.storage.manifest import (
    KINDS,
    OWNERS,
    PASSAGE_FILES,
    PASSAGE_NUMBERS,
    PASSAGES,
    VECTORS,
    PassageEntry,
    damaged,
)

LARGEST_CODE = 127
LARGEST_TRANSCRIPT = 256 << 20  # bytes
SCHEMA = """
CREATE TABLE videos (id INTEGER PRIMARY KEY, name BLOB NOT NULL, stamp TEXT NOT NULL, heard BLOB NOT NULL);
CREATE TABLE passages (
    id INTEGER PRIMARY KEY, video INTEGER NOT NULL, start REAL NOT NULL, end REAL NOT NULL,
    source INTEGER NOT NULL, text TEXT NOT NULL
);
CREATE VIRTUAL TABLE words USING fts5(text, content='', tokenize='porter unicode61 remove_diacritics 2');
CREATE VIRTUAL TABLE vocabulary USING fts5vocab(words, 'row');
"""
# Scripts that are written without spaces: every character is a word.
UNSPACED = re.compile(r"([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\u0e00-\u0e7f])")


@dataclass(frozen=True)
class StoredWords:
    """What an index keeps of one video's words."""

    name: str
    heard: Heard  # all passages as they were heard; the transcript
    passages: tuple[Passage, ...]  # as they are searched
    codes_ND: NDArray[np.int8]
    scale_N: NDArray[np.float32]


def pack_words(name: str, heard: Heard, vectors_ND: NDArray[Any] | None = None) -> StoredWords:
    """Passages in the layout of a segment. `vectors_ND` are the unit vectors of `searched(heard)`."""
    passages = searched(heard)
    if vectors_ND is None or not len(passages):
        return StoredWords(
            name, heard, passages, np.zeros((len(passages), 0), np.int8), np.zeros(0, np.float32)
        )
    vectors_ND = np.asarray(vectors_ND, np.float32)
    scale_N = np.maximum(np.abs(vectors_ND).max(axis=1), 1e-9).astype(np.float32) / np.float32(LARGEST_CODE)
    codes_ND = np.rint(vectors_ND / scale_N[:, None]).astype(np.int8)
    return StoredWords(name, heard, passages, codes_ND, scale_N)


def searched(heard: Heard) -> tuple[Passage, ...]:
    """The passages of a video as they are searched."""
    return tuple(joined(heard.passages))


def spaced(text: str) -> str:
    """Text with spaces between the characters of scripts that have none."""
    return UNSPACED.sub(r" \1 ", unicodedata.normalize("NFKC", text))


def write_passages(folder: Path, videos: Sequence[StoredWords], encoder: str) -> PassageEntry:
    """Write the videos' passages into `folder`, which is there and empty."""
    widths = {video.codes_ND.shape[1] for video in videos if len(video.passages)} or {0}
    if len(widths) > 1:
        raise HolmesError("the vectors of these passages do not have the same width.")
    database = sqlite3.connect(folder / PASSAGES)
    try:
        database.executescript(
            "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA page_size=4096;" + SCHEMA
        )
        database.executemany(
            "INSERT INTO videos VALUES (?, ?, ?, ?)",
            (
                (at, os.fsencode(video.name), video.heard.stamp, _packed(video.heard))
                for at, video in enumerate(videos)
            ),
        )
        rows = [(at, passage) for at, video in enumerate(videos) for passage in video.passages]
        database.executemany(
            "INSERT INTO passages VALUES (?, ?, ?, ?, ?, ?)",
            (
                (number, at, p.start, p.end, SOURCES.index(p.source), p.text)
                for number, (at, p) in enumerate(rows)
            ),
        )
        database.executemany(
            "INSERT INTO words (rowid, text) VALUES (?, ?)",
            ((number, spaced(p.text)) for number, (_, p) in enumerate(rows)),
        )
        database.execute("INSERT INTO words (words) VALUES ('optimize')")
        database.commit()
    finally:
        database.close()
    _write(folder / VECTORS, [video.codes_ND for video in videos], np.int8)
    _write(folder / PASSAGE_NUMBERS, [video.scale_N for video in videos], np.float32)
    _write(folder / OWNERS, [np.array([at for at, _ in rows])], np.int32)
    _write(folder / KINDS, [np.array([p.source.is_written for _, p in rows])], np.int8)
    files = {}
    for name in PASSAGE_FILES:
        with open(folder / name, "rb+") as file:
            os.fsync(file.fileno())
        files[name] = FileEntry((folder / name).stat().st_size, sha256_file(folder / name))
    sync_folder(folder)
    sync_folder(folder.parent)
    return PassageEntry(folder.name, len(videos), files, len(rows), widths.pop(), encoder)


def _write(path: Path, arrays: Iterable[NDArray[Any]], kind: Any) -> None:
    with open(path, "wb") as file:
        for array in arrays:
            file.write(np.ascontiguousarray(array, kind).tobytes())


def _packed(heard: Heard) -> bytes:
    """A transcript as compressed JSON."""
    plain = {
        "passages": [[p.start, p.end, SOURCES.index(p.source), p.text] for p in heard.passages],
        "sources": heard.sources,
        "notes": list(heard.notes),
        "stamp": heard.stamp,
    }
    return zlib.compress(json.dumps(plain).encode())


class PassageSegment:
    """An open segment of passages. Texts and vectors stay on disk until they are used."""

    def __init__(self, folder: Path, entry: PassageEntry) -> None:
        self.folder, self.entry = folder, entry
        for name, expected in entry.files.items():
            size = os.stat(folder / name).st_size
            if size != expected.bytes:
                raise self._damaged(f"{folder / name} has {size:,} bytes, not {expected.bytes:,}")
        n, width = entry.passages, entry.width
        sizes = {VECTORS: n * width, PASSAGE_NUMBERS: 4 * n if width else 0, OWNERS: 4 * n, KINDS: n}
        for name, size in sizes.items():
            if entry.files[name].bytes != size:
                raise self._damaged(f"{folder / name} does not describe {n:,} passages")
        self._connection, self._lock = self._connect(), RLock()
        self.codes_ND = _mapped(folder / VECTORS, np.int8).reshape(n, width)
        self.scale_N = _mapped(folder / PASSAGE_NUMBERS, np.float32)
        self.owner_N = _mapped(folder / OWNERS, np.int32)
        self.kind_N = _mapped(folder / KINDS, np.int8)
        ascending = n == 0 or (bool((np.diff(self.owner_N) >= 0).all()) and self.owner_N[0] >= 0)
        if not ascending or (n and self.owner_N[-1] >= entry.videos):
            raise self._damaged(f"{folder / OWNERS} names videos that are not there")
        if not np.isin(self.kind_N, (0, 1)).all() or not np.isfinite(self.scale_N).all():
            raise self._damaged(f"{folder / KINDS} or {PASSAGE_NUMBERS} has impossible numbers")

    def with_entry(self, entry: PassageEntry) -> PassageSegment:
        """The same files, of which other videos are removed."""
        other = object.__new__(PassageSegment)
        other.__dict__ = {**self.__dict__, "entry": entry}
        other.__dict__.pop("positions", None)
        return other

    def _connect(self) -> sqlite3.Connection:
        """A connection that stays: a writer may delete the file while this segment is searched."""
        path = (self.folder / PASSAGES).absolute()
        try:
            connection = sqlite3.connect(
                f"file:{_quoted(path)}?mode=ro&immutable=1", uri=True, check_same_thread=False
            )
        except sqlite3.Error as error:
            if not path.exists():
                raise FileNotFoundError(errno.ENOENT, "deleted", str(path)) from None
            raise self._damaged(f"{path} cannot be read ({error})") from None
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST_TRANSCRIPT)
        return connection

    @cached_property
    def database(self) -> sqlite3.Connection:
        """The connection, when its tables were found to be ours.

        In the place of a table, a hostile file could have a view that never ends.
        """
        try:
            self._connection.executescript(
                "PRAGMA trusted_schema=OFF; PRAGMA cell_size_check=ON; PRAGMA mmap_size=1073741824;"
            )
            if _tables(self._connection) != _own_tables():
                raise sqlite3.DatabaseError("its tables are not those of passages")
        except sqlite3.Error as error:
            raise self._damaged(f"{self.folder / PASSAGES} cannot be read ({error})") from None
        return self._connection

    @cached_property
    def names(self) -> list[str]:
        """The videos' names, by position."""
        rows = self.rows("SELECT id, name FROM videos ORDER BY id")
        is_text = all(isinstance(name, bytes) for _, name in rows)
        if [at for at, _ in rows] != list(range(self.entry.videos)) or not is_text:
            raise self._damaged(f"{self.folder / PASSAGES} does not describe {self.entry.videos} videos")
        return [os.fsdecode(name) for _, name in rows]

    @cached_property
    def positions(self) -> dict[str, int]:
        """The videos that are not removed, by name."""
        removed = set(self.entry.removed)
        return {name: at for at, name in enumerate(self.names) if at not in removed}

    @cached_property
    def stamps(self) -> dict[str, str]:
        """What each video's words were made from, by its name; removed ones are there too."""
        rows = self.rows("SELECT stamp FROM videos ORDER BY id")
        return {name: str(stamp) for name, (stamp,) in zip(self.names, rows, strict=True)}

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        """All rows of a query; damage becomes one line."""
        with self._lock:  # of the threads of a server
            try:
                return self.database.execute(query, values).fetchall()
            except sqlite3.Error as error:
                raise self._damaged(f"{self.folder / PASSAGES} cannot be read ({error})") from None

    def heard(self, position: int) -> Heard:
        """The transcript of one video."""
        ((text,),) = self.rows("SELECT heard FROM videos WHERE id = ?", (position,))
        try:
            unpack = zlib.decompressobj()
            value = json.loads(unpack.decompress(text, LARGEST_TRANSCRIPT))
            passages = tuple(_passage(s, e, k, t) for s, e, k, t in value["passages"])
            sources: dict[str, str] = build(dict[str, str], value["sources"])
            notes: tuple[str, ...] = build(tuple[str, ...], value["notes"])
            stamp: str = build(str, value["stamp"])
        except (ValueError, KeyError, TypeError, IndexError, RecursionError, zlib.error, HolmesError):
            raise self._damaged(f"the transcript of {self.names[position]} is damaged") from None
        return Heard(passages, sources, notes, stamp)

    def live(self, entry: PassageEntry) -> list[StoredWords]:
        """The videos that `entry` does not list as removed, to be written again."""
        removed = set(entry.removed)
        ends_V = np.searchsorted(self.owner_N, np.arange(entry.videos + 1))
        videos = []
        for at, name in enumerate(self.names):
            if at not in removed:
                own = slice(int(ends_V[at]), int(ends_V[at + 1]))
                heard, passages = self.heard(at), self._passages(own)
                scale_N = np.array(self.scale_N[own]) if entry.width else np.zeros(0, np.float32)
                videos.append(StoredWords(name, heard, passages, np.array(self.codes_ND[own]), scale_N))
        return videos

    def passage(self, number: int) -> Passage:
        """One passage, as it is searched."""
        return self._passages(slice(number, number + 1))[0]

    def _passages(self, numbers: slice) -> tuple[Passage, ...]:
        found = self.rows(
            "SELECT start, end, source, text FROM passages WHERE id >= ? AND id < ? ORDER BY id",
            (numbers.start, numbers.stop),
        )
        try:
            if len(found) != numbers.stop - numbers.start:
                raise ValueError
            return tuple(_passage(*row) for row in found)
        except (ValueError, TypeError, IndexError, HolmesError):
            raise self._damaged(f"{self.folder / PASSAGES} lacks passages, or has damaged ones") from None

    def faults(self) -> list[str]:
        return self.entry.faults(self.folder)

    def _damaged(self, fault: str) -> HolmesError:
        return damaged(self.folder.parent.parent, fault)


def _tables(connection: sqlite3.Connection) -> list[tuple[str, ...]]:
    """Every table of a database and how it was made; no more than a few, however many there are."""
    rows = connection.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY name LIMIT 100").fetchall()
    return [tuple(" ".join(str(part).split()) for part in row) for row in rows]


@cache
def _own_tables() -> list[tuple[str, ...]]:
    """The tables that `write_passages` makes, with those of the full-text index."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(SCHEMA)
        return _tables(database)


def _passage(start: float, end: float, source: int, text: str) -> Passage:
    passage: Passage = build(
        Passage, {"start": start, "end": end, "text": text, "source": SOURCES[source].value}
    )
    return passage


def _mapped(path: Path, kind: Any) -> NDArray[Any]:
    # Mapped copy-on-write, because torch warns of arrays that cannot be written; nothing is.
    return np.memmap(path, kind, "c") if path.stat().st_size else np.zeros(0, kind)


def _quoted(path: Path) -> str:
    from urllib.parse import quote

    return quote(os.fsencode(path))
