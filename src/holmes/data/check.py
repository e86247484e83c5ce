"""Verify a store: every byte against its checksum, and the rules that its readers rely on."""

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
    """What is wrong, besides types, shapes, offsets and counts, which the store checks when they are read."""
    _ = store.frame_offsets, store.token_offsets, store.query_offsets, store.durations_V, store.captions
    for name, ids in (("video", store.video_ids), ("caption", store.query_ids)):
        if len(set(ids)) < len(ids):
            yield f"there are not {len(ids)} different {name} ids"
    known = store.moments_Q2[~np.isnan(store.moments_Q2).any(1)]
    if ((known < 0) | (known > 1)).any() or (known[:, 0] > known[:, 1]).any():
        yield "a moment is not a start and an end within its video"
    if not np.isin(store.kinds_Q, [-1, *QueryKind]).all():
        yield "a query has a kind that does not exist"
    for query, videos in store.also_fits.items():
        if store.owner_Q[query] in videos:
            yield f"also_fits.json names query {query}'s own video"
    for name in store.splits:
        split = store.split(name)
        sizes = {"videos": len(split.videos), "queries": len(split.queries)}
        if sizes != store.info.splits[name]:
            yield f"split '{name}' has {sizes}, not {store.info.splits[name]}"
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
