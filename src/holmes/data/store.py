"""A packed store: one folder with everything training and evaluation read, memory-mapped.

    store.json            format, version, sizes, provenance, size and sha256 of all other files, checksum
    videos.json           video ids
    queries.json          caption ids and captions
    frames.npy            float16 rows × Dv, unit length, at most 128 per video
    clips.npy             float16 V × 32 × Dv, unit length
    tokens.npy            float16 rows × Dt, unit length, at most 30 per query
    frame_offsets.npy     V + 1: video v owns frames[frame_offsets[v] : frame_offsets[v + 1]]
    token_offsets.npy     Q + 1: the same for a query's tokens
    query_offsets.npy     V + 1: a video's queries are neighbours
    moments.npy           Q × 2: start and end as fractions of the video, NaN where unknown
    durations.npy         V: seconds, NaN where unknown
    kinds.npy             Q: QueryKind, -1 where unknown
    also_fits.json        query → other videos that fit it
    split.<name>.videos.npy, split.<name>.queries.npy

V videos, Q queries, D width
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from holmes.base.files import read_json, sha256_file
from holmes.base.validation import Count, build
from holmes.data.manifest import FEATURES, StoreInfo, read_manifest
from holmes.errors import HolmesError, unknown


@dataclass(frozen=True)
class Split:
    """Videos, the queries asked of them, and the video of each query. Queries are grouped by video."""

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


DAMAGED = "was changed or damaged (wrong checksum)"


class Store:
    """An opened store. Feature arrays are maps of the files: rows are read when they are touched."""

    def __init__(self, path: Path, info: StoreInfo) -> None:
        self.path = path
        self.info = info

    @classmethod
    def open(cls, path: str | Path) -> Store:
        """The store, its catalogue verified; `holmes.data.check` verifies the features too."""
        path = Path(path)
        store = cls(path, read_manifest(path))
        for name, entry in store.info.files.items():
            size = (path / name).stat().st_size if (path / name).is_file() else None
            if size != entry.bytes:
                found = "is missing" if size is None else f"has {size} bytes instead of {entry.bytes}"
                raise HolmesError(f"{path / name} {found}; the store is damaged: pack it again.")
            if name not in FEATURES and sha256_file(path / name) != entry.sha256:
                raise HolmesError(f"{path / name} {DAMAGED}; pack the store again.")
        return store

    def _damaged(self, name: str, why: str) -> HolmesError:
        return HolmesError(f"{self.path / name} is damaged ({why}); pack the store again.")

    def _array(self, name: str, dtype: DTypeLike, *shape: int) -> NDArray[Any]:
        """A file's numbers, left on the disk until they are touched."""
        try:
            array: NDArray[Any] = np.load(self.path / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        except Exception as error:  # whatever goes wrong while reading its header is the file's fault
            raise self._damaged(f"{name}.npy", f"{type(error).__name__}: {str(error)[:80]}") from None
        if array.dtype != dtype or array.shape != shape or not array.flags.c_contiguous:
            raise self._damaged(
                f"{name}.npy", f"it is {array.shape} of {array.dtype}, not {shape} of {np.dtype(dtype)}"
            )
        return array

    def _offsets(self, name: str, items: int, rows: int, most: int) -> NDArray[np.int64]:
        offsets = np.array(self._array(name, np.int64, items + 1))
        lengths = np.diff(offsets)
        if offsets[0] != 0 or offsets[-1] != rows:
            raise self._damaged(f"{name}.npy", f"it does not run from 0 to {rows} in {items} steps")
        if lengths.min() < 1 or lengths.max() > most:
            found = f"{lengths.min()} to {lengths.max()} rows; 1 to {most} are allowed"
            raise self._damaged(f"{name}.npy", f"it has an item of {found}")
        return offsets

    @cached_property
    def frames(self) -> NDArray[np.float16]:
        return self._array("frames", np.float16, self.info.frame_rows, self.info.video_width)

    @cached_property
    def clips(self) -> NDArray[np.float16]:
        return self._array("clips", np.float16, self.info.videos, self.info.clips, self.info.video_width)

    @cached_property
    def tokens(self) -> NDArray[np.float16]:
        return self._array("tokens", np.float16, self.info.token_rows, self.info.text_width)

    @cached_property
    def frame_offsets(self) -> NDArray[np.int64]:
        return self._offsets("frame_offsets", self.info.videos, self.info.frame_rows, self.info.frames)

    @cached_property
    def token_offsets(self) -> NDArray[np.int64]:
        return self._offsets("token_offsets", self.info.queries, self.info.token_rows, self.info.tokens)

    @cached_property
    def query_offsets(self) -> NDArray[np.int64]:
        info = self.info
        return self._offsets("query_offsets", info.videos, info.queries, info.queries)

    @cached_property
    def owner_Q(self) -> NDArray[np.int32]:
        videos = np.arange(len(self.query_offsets) - 1, dtype=np.int32)
        return np.repeat(videos, np.diff(self.query_offsets))

    @cached_property
    def moments_Q2(self) -> NDArray[np.float32]:
        return np.array(self._array("moments", np.float32, self.info.queries, 2))

    @cached_property
    def durations_V(self) -> NDArray[np.float32]:
        return np.array(self._array("durations", np.float32, self.info.videos))

    def usual_seconds(self, split: Split) -> float | None:
        """The length of all but the longest tenth of a split's videos; None where lengths are unknown."""
        known = self.durations_V[split.videos]
        known = known[np.isfinite(known)]
        return float(np.quantile(known, 0.9)) if len(known) else None

    @cached_property
    def kinds_Q(self) -> NDArray[np.int8]:
        return np.array(self._array("kinds", np.int8, self.info.queries))

    @cached_property
    def video_ids(self) -> list[str]:
        return self._texts("videos.json", read_json(self.path / "videos.json"), self.info.videos)

    @cached_property
    def _queries(self) -> dict[str, list[str]]:
        values = read_json(self.path / "queries.json")
        if not isinstance(values, dict) or values.keys() != {"ids", "captions"}:
            raise self._damaged("queries.json", "it does not hold ids and captions")
        return {name: self._texts("queries.json", texts, self.info.queries) for name, texts in values.items()}

    def _texts(self, name: str, values: Any, count: int) -> list[str]:
        if not isinstance(values, list) or len(values) != count or not all(type(v) is str for v in values):
            raise self._damaged(name, f"it does not hold {count} texts")
        return values

    @property
    def query_ids(self) -> list[str]:
        return self._queries["ids"]

    @property
    def captions(self) -> list[str]:
        return self._queries["captions"]

    @cached_property
    def also_fits(self) -> dict[int, list[int]]:
        """Query → other videos that fit it."""
        videos, queries = self.info.videos, self.info.queries
        given: dict[str, list[int]] = build(
            dict[str, list[Count]], read_json(self.path / "also_fits.json"), "also_fits.json"
        )
        for query, others in given.items():
            known = query.isdecimal() and len(query) < 16 and int(query) < queries
            if not known or any(video >= videos for video in others):
                raise self._damaged(
                    "also_fits.json", f"query {query[:20]} or a video of it is not in the store"
                )
        return {int(query): others for query, others in given.items()}

    @property
    def splits(self) -> list[str]:
        return list(self.info.splits)

    def split(self, name: str) -> Split:
        if name not in self.info.splits:
            raise unknown(f"split in {self.path}:", name, self.splits)
        sizes = self.info.splits[name]
        videos = self._array(f"split.{name}.videos", np.int64, sizes.get("videos", 0))
        queries = self._array(f"split.{name}.queries", np.int64, sizes.get("queries", 0))
        for what, items, count in (
            ("videos", videos, self.info.videos),
            ("queries", queries, self.info.queries),
        ):
            if len(items) and not 0 <= items.min() <= items.max() < count:
                raise self._damaged(f"split.{name}.{what}.npy", f"not all are of the store's {count} {what}")
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
