"""Verify a store: every byte against its checksum, and what its readers rely on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import numpy as np
from numpy.typing import NDArray

from holmes.base.files import sha256_file
from holmes.base.progress import progress_bar
from holmes.data.manifest import FEATURES
from holmes.data.store import DAMAGED, Store
from holmes.errors import HolmesError
from holmes.records import QueryKind

READ_BYTES = 16 << 20
UNIT = 1.002  # a unit row in float16 may be a little longer than 1


def check_store(store: Store, progress: bool = False) -> None:
    """Raise HolmesError about the first thing that is wrong."""
    check_checksums(store, progress)
    for problem in problems(store):
        raise HolmesError(f"{store.path}: {problem}; pack the store again.")


def check_checksums(store: Store, progress: bool) -> None:
    with progress_bar("checking MiB", store.info.bytes >> 20, progress=progress) as advance:
        left_over = 0
        for name, expected in store.info.files.items():
            digest = hashlib.sha256()
            with open(store.path / name, "rb") as file:
                while piece := file.read(READ_BYTES):
                    digest.update(piece)
                    left_over += len(piece)
                    advance(left_over >> 20)
                    left_over &= (1 << 20) - 1
            if digest.hexdigest() != expected.sha256:
                raise HolmesError(f"{store.path / name} {DAMAGED}; pack the store again.")


def problems(store: Store) -> Iterator[str]:
    """Every violation of the format, the most basic first."""
    info = store.info
    shapes = {
        "frames.npy": (store.frames.shape, (info.frame_rows, info.video_width)),
        "clips.npy": (store.clips.shape, (info.videos, info.clips, info.video_width)),
        "tokens.npy": (store.tokens.shape, (info.token_rows, info.text_width)),
        "moments.npy": (store.moments_Q2.shape, (info.queries, 2)),
        "durations.npy": (store.durations_V.shape, (info.videos,)),
        "kinds.npy": (store.kinds_Q.shape, (info.queries,)),
    }
    yield from (
        f"{name} is {found}, not {wanted}" for name, (found, wanted) in shapes.items() if found != wanted
    )
    yield from offset_problems(
        "frame_offsets.npy", store.frame_offsets, info.videos, info.frame_rows, info.frames
    )
    yield from offset_problems(
        "token_offsets.npy", store.token_offsets, info.queries, info.token_rows, info.tokens
    )
    yield from offset_problems(
        "query_offsets.npy", store.query_offsets, info.videos, info.queries, info.queries
    )
    for name, ids, count in (
        ("video", store.video_ids, info.videos),
        ("caption", store.query_ids, info.queries),
    ):
        if len(set(ids)) != count or len(ids) != count:
            yield f"there are not {count} different {name} ids"
    if len(store.captions) != info.queries:
        yield f"there are {len(store.captions)} captions for {info.queries} queries"
    known = store.moments_Q2[~np.isnan(store.moments_Q2).any(1)]
    if ((known < 0) | (known > 1)).any() or (known[:, 0] > known[:, 1]).any():
        yield "a moment is not a start and an end within its video"
    if not np.isin(store.kinds_Q, [-1, *QueryKind]).all():
        yield "a query has a kind that does not exist"
    for query, videos in store.also_fits.items():
        if (
            not 0 <= query < info.queries
            or store.owner_Q[query] in videos
            or not all(0 <= v < info.videos for v in videos)
        ):
            yield f"also_fits.json is wrong about query {query}"
    for name in store.splits:
        split = store.split(name)
        sizes = {"videos": len(split.videos), "queries": len(split.queries)}
        if sizes != info.splits[name]:
            yield f"split '{name}' has {sizes}, not {info.splits[name]}"
    yield from leaks(store)
    for name, rows in (("frames", store.frames), ("clips", store.clips), ("tokens", store.tokens)):
        yield from row_problems(f"{name}.npy", rows.reshape(-1, rows.shape[-1]))


def leaks(store: Store) -> Iterator[str]:
    """Report videos that are both trained on and tested on: figures on them flatter."""
    if "train" not in store.splits:
        return
    trained = store.split("train").videos
    for name in store.splits:
        shared = np.intersect1d(trained, store.split(name).videos)
        if name != "train" and len(shared):
            yield (
                f"{len(shared)} videos of split '{name}' are also in train, such as "
                f"'{store.video_ids[shared[0]]}': mend the caption files"
            )


def offset_problems(name: str, offsets: NDArray[np.int64], items: int, rows: int, most: int) -> Iterator[str]:
    lengths = np.diff(offsets)
    if len(offsets) != items + 1 or offsets[0] != 0 or offsets[-1] != rows:
        yield f"{name} does not lead from 0 to {rows} in {items} steps"
    elif lengths.min() < 1 or lengths.max() > most:
        yield f"{name} has an item of {lengths.min()} to {lengths.max()} rows; 1 to {most} are allowed"


def row_problems(name: str, rows: NDArray[np.float16]) -> Iterator[str]:
    step = max(1, READ_BYTES // (rows.shape[1] * rows.itemsize))
    for start in range(0, len(rows), step):
        piece = rows[start : start + step].astype(np.float32)
        lengths = np.sqrt(np.einsum("nd,nd->n", piece, piece))
        wrong = np.flatnonzero(~(lengths <= UNIT))  # NaN is wrong too
        if len(wrong):
            yield f"{name}: row {start + wrong[0]} is not finite and of unit length"
            return


_sound: set[tuple[Path, str]] = set()  # what this process has verified already


class FeatureCheck:
    """Reads the large arrays once in the background; `require` waits for the verdict."""

    def __init__(self, store: Store) -> None:
        self.store, self.fault = store, ""
        self.key = (store.path.resolve(), store.info.digest)
        self.thread = Thread(target=self._read, name="verify features", daemon=True)
        if self.key not in _sound:
            self.thread.start()

    def _read(self) -> None:
        try:
            for name in FEATURES:
                if sha256_file(self.store.path / name) != self.store.info.files[name].sha256:
                    self.fault = f"{self.store.path / name} {DAMAGED}; pack the store again."
                    return
        except (OSError, HolmesError) as error:
            self.fault = f"{self.store.path} cannot be verified: {error}"

    def require(self) -> None:
        """Raise HolmesError if the features are not those that were packed."""
        if self.key in _sound:
            return
        self.thread.join()
        if self.fault:
            raise HolmesError(self.fault)
        _sound.add(self.key)
