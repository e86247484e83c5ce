"""A packed store: one folder with everything training and evaluation read, memory-mapped.

    store.json            format, version, sizes, provenance, size and sha256 of every other file
    videos.json           video ids
    queries.json          caption ids and captions
    frames.npy            float16 rows × Dv, unit length, at most 128 a video
    clips.npy             float16 V × 32 × Dv, unit length
    tokens.npy            float16 rows × Dt, unit length, at most 30 a query
    frame_offsets.npy     V + 1: video v owns frames[frame_offsets[v] : frame_offsets[v + 1]]
    token_offsets.npy     Q + 1: the same for a query's tokens
    query_offsets.npy     V + 1: a video's queries are neighbours
    moments.npy           Q × 2: start and end as fractions of the video, NaN where unknown
    durations.npy         V: seconds, NaN where unknown
    kinds.npy             Q: QueryType, -1 where unknown
    also_fits.json        query → other videos that fit it
    split.<name>.videos.npy, split.<name>.queries.npy

V videos, Q queries, D width
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holmes.errors import HolmesError, unknown
from holmes.files import read_json

FORMAT = "holmes-store"
VERSION = 1
MANIFEST = "store.json"


@dataclass(frozen=True)
class StoreInfo:
    """What a store says about itself without being read."""

    collection: str
    visual: str  # the name of the visual feature set
    text: str  # the name of the text feature set
    video_width: int
    text_width: int
    videos: int
    queries: int
    frame_rows: int
    token_rows: int
    splits: dict[str, dict[str, int]]  # name → {"videos": …, "queries": …}
    provenance: dict[str, Any]
    files: dict[str, dict[str, Any]]  # name → {"bytes": …, "sha256": …}

    @property
    def digest(self) -> str:
        """One name for the whole content: stores with equal digests hold equal data."""
        hashes = json.dumps({name: file["sha256"] for name, file in sorted(self.files.items())})
        return hashlib.sha256(hashes.encode()).hexdigest()

    @property
    def bytes(self) -> int:
        return sum(file["bytes"] for file in self.files.values())


def write_manifest(info: StoreInfo) -> dict[str, Any]:
    return {"format": FORMAT, "version": VERSION, **asdict(info)}


def read_manifest(folder: Path) -> StoreInfo:
    if not folder.is_dir():
        raise HolmesError(f"{folder} is not a store: no such folder; make one with 'holmes data pack'.")
    if not (folder / MANIFEST).is_file():
        raise HolmesError(f"{folder} is not a store: it has no {MANIFEST}; make one with 'holmes data pack'.")
    value = read_json(folder / MANIFEST)
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise HolmesError(f"{folder / MANIFEST} does not describe a store (its format is not '{FORMAT}').")
    if value.get("version") != VERSION:
        raise HolmesError(
            f"{folder} is a store of version {value.get('version')}, not {VERSION}; pack it again."
        )
    try:
        return StoreInfo(**{k: v for k, v in value.items() if k not in ("format", "version")})
    except TypeError as error:
        raise HolmesError(f"{folder / MANIFEST} is damaged ({error}); pack the store again.") from None


@dataclass(frozen=True)
class Split:
    """Videos, the queries asked of them, and whose each query is. Queries are grouped by video."""

    name: str
    videos: NDArray[np.int64]  # store indices, ascending
    queries: NDArray[np.int64]  # store indices, ascending
    owner: NDArray[np.int64]  # position in `videos` of each query's video

    @cached_property
    def query_offsets(self) -> NDArray[np.int64]:
        """The i-th video's queries are queries[query_offsets[i] : query_offsets[i + 1]]."""
        return np.searchsorted(self.owner, np.arange(len(self.videos) + 1))

    @cached_property
    def queries_of_video(self) -> NDArray[np.int64]:
        return np.diff(self.query_offsets)

    def take(self, positions: NDArray[np.int64], name: str) -> Split:
        """The videos at these positions, with all their queries of this split."""
        kept_V = np.zeros(len(self.videos), bool)
        kept_V[positions] = True
        kept_Q = kept_V[self.owner]
        new_position_V = np.cumsum(kept_V) - 1
        return Split(name, self.videos[kept_V], self.queries[kept_Q], new_position_V[self.owner[kept_Q]])

    def hold_out(self, fraction: float, seed: int = 0) -> tuple[Split, Split]:
        """Divide by videos into (the rest, the held-out part): select on the second, report test once."""
        count = round(fraction * len(self.videos))
        if not 0 < count < len(self.videos):
            raise HolmesError(
                f"holding out {fraction:g} of the {len(self.videos)} videos of '{self.name}' leaves one side "
                "empty; choose a fraction between 0 and 1 that keeps at least one video on each side."
            )
        order = np.random.default_rng([seed, len(self.videos)]).permutation(len(self.videos))
        return self.take(order[count:], f"{self.name}-fit"), self.take(order[:count], f"{self.name}-held")


class Store:
    """An opened store. Feature arrays are maps of the files: rows are read when they are touched."""

    def __init__(self, path: Path, info: StoreInfo) -> None:
        self.path = path
        self.info = info

    @classmethod
    def open(cls, path: str | Path) -> Store:
        path = Path(path)
        store = cls(path, read_manifest(path))
        for name, file in store.info.files.items():
            size = (path / name).stat().st_size if (path / name).is_file() else None
            if size != file["bytes"]:
                found = "is missing" if size is None else f"has {size} bytes instead of {file['bytes']}"
                raise HolmesError(f"{path / name} {found}; the store is damaged: pack it again.")
        return store

    def _array(self, name: str) -> NDArray[Any]:
        try:
            array: NDArray[Any] = np.load(self.path / f"{name}.npy", mmap_mode="r", allow_pickle=False)
            return array
        except (ValueError, OSError) as error:
            raise HolmesError(f"{self.path / name}.npy is damaged ({error}); pack the store again.") from None

    @cached_property
    def frames(self) -> NDArray[np.float16]:
        return self._array("frames")

    @cached_property
    def clips(self) -> NDArray[np.float16]:
        return self._array("clips")

    @cached_property
    def tokens(self) -> NDArray[np.float16]:
        return self._array("tokens")

    @cached_property
    def frame_offsets(self) -> NDArray[np.int64]:
        return np.array(self._array("frame_offsets"))

    @cached_property
    def token_offsets(self) -> NDArray[np.int64]:
        return np.array(self._array("token_offsets"))

    @cached_property
    def query_offsets(self) -> NDArray[np.int64]:
        return np.array(self._array("query_offsets"))

    @cached_property
    def owner_Q(self) -> NDArray[np.int32]:
        videos = np.arange(len(self.query_offsets) - 1, dtype=np.int32)
        return np.repeat(videos, np.diff(self.query_offsets))

    @cached_property
    def moments_Q2(self) -> NDArray[np.float32]:
        return np.array(self._array("moments"))

    @cached_property
    def durations_V(self) -> NDArray[np.float32]:
        return np.array(self._array("durations"))

    def usual_seconds(self, split: Split) -> float | None:
        """What nine in ten videos of a split are not longer than; None where their lengths are unknown."""
        known = self.durations_V[split.videos]
        known = known[np.isfinite(known)]
        return float(np.quantile(known, 0.9)) if len(known) else None

    @cached_property
    def kinds_Q(self) -> NDArray[np.int8]:
        return np.array(self._array("kinds"))

    @cached_property
    def video_ids(self) -> list[str]:
        return list(read_json(self.path / "videos.json"))

    @cached_property
    def _queries(self) -> dict[str, list[str]]:
        return dict(read_json(self.path / "queries.json"))

    @property
    def query_ids(self) -> list[str]:
        return self._queries["ids"]

    @property
    def captions(self) -> list[str]:
        return self._queries["captions"]

    @cached_property
    def also_fits(self) -> dict[int, list[int]]:
        return {int(query): videos for query, videos in read_json(self.path / "also_fits.json").items()}

    @property
    def splits(self) -> list[str]:
        return list(self.info.splits)

    def split(self, name: str) -> Split:
        if name not in self.info.splits:
            raise unknown(f"split of {self.path}", name, self.splits)
        videos, queries = self._array(f"split.{name}.videos"), self._array(f"split.{name}.queries")
        return self.make_split(name, videos, queries)

    def make_split(self, name: str, videos: ArrayLike, queries: ArrayLike) -> Split:
        """A split of your own choice of videos and of queries about them (store indices)."""
        videos_V = np.unique(np.asarray(videos, np.int64))
        queries_Q = np.unique(np.asarray(queries, np.int64))
        owner_Q = np.searchsorted(videos_V, self.owner_Q[queries_Q])
        if len(videos_V) == 0 or not np.isin(self.owner_Q[queries_Q], videos_V).all():
            raise HolmesError(
                f"{self.path}: split '{name}' asks about videos that it does not hold; "
                "run 'holmes data check'."
            )
        return Split(name, videos_V, queries_Q, owner_Q)
