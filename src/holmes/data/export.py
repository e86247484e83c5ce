"""Write a store back as the MS-SL folder layout (HDF5), so that other code can run on it.

Rows are what the store holds: pooled, of unit length, float16 precision, written as float32.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray

from holmes.data.store import Store
from holmes.errors import HolmesError
from holmes.feature_origin import CollectionOrigin, write_origin
from holmes.files import atomic_file, sync_folder, write_json
from holmes.printable import shown as named
from holmes.progress import progress_bar
from holmes.records import QueryKind

PLAIN = re.compile(r"(?!/)[^\s\0\ud800-\udfff]+(?<!/)")  # of ids: a slash makes a folder inside the HDF5 file
LINE = re.compile(r"[^\n\r\v\f\x1c-\x1e\x85\u2028\u2029\0\ud800-\udfff]+")
HDF5_OVERHEAD = 2048  # bytes a data set takes beyond its numbers, about


def export_store(store: Store, folder: Path, progress: bool = False) -> None:
    if folder.exists():
        raise HolmesError(f"{folder} already exists; choose another name or remove it.")
    refuse_odd_names(store)
    refuse_full_disk(store, folder.parent)
    building = folder.parent / f".{folder.name}.building"
    shutil.rmtree(building, ignore_errors=True)
    try:
        write_captions(store, building / "TextData")
        write_rows(
            building / "TextData" / f"{store.info.text}.hdf5",
            store.query_ids, store.tokens, store.token_offsets, "exporting queries", progress,
        )  # fmt: skip
        write_rows(
            building / "FeatureData" / store.info.visual / "feature.hdf5",
            store.video_ids, store.frames, store.frame_offsets, "exporting videos", progress,
        )  # fmt: skip
        write_knowledge(store, building)
        write_origin(building, CollectionOrigin(store.info.visual, store.info.text, store.info.encoders))
        os.replace(building, folder)
        sync_folder(folder.parent)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def refuse_odd_names(store: Store) -> None:
    """In this layout a name ends at a blank, and a caption at the end of its line."""
    for what, names in (("video", store.video_ids), ("caption", store.query_ids)):
        odd = [name for name in names if not PLAIN.fullmatch(name)]
        if odd:
            raise HolmesError(
                f"{store.path}: {what} id {named(odd[0])} cannot be a name in a feature folder."
            )
    odd = [caption for caption in store.captions if not LINE.fullmatch(caption)]
    if odd:
        raise HolmesError(f"{store.path}: {named(odd[0])} cannot be a caption in a feature folder.")


def refuse_full_disk(store: Store, place: Path) -> None:
    """HDF5 does not survive a disk that fills up, so there must be room before it starts."""
    place.mkdir(parents=True, exist_ok=True)
    needed = 2 * (store.tokens.nbytes + store.frames.nbytes) + HDF5_OVERHEAD * (
        len(store.query_ids) + len(store.video_ids)
    )
    free = shutil.disk_usage(place).free
    if needed > free:
        raise HolmesError(
            f"{place} has {free / 1e6:.0f} MB free, the export needs about {needed / 1e6:.0f}; "
            "make room for it."
        )


def write_captions(store: Store, folder: Path) -> None:
    for name in store.splits:
        lines = (f"{store.query_ids[q]} {store.captions[q]}\n" for q in store.split(name).queries)
        with atomic_file(folder / f"{store.info.collection}{name}.caption.txt") as file:
            file.write("".join(lines).encode())


def write_rows(
    path: Path,
    names: list[str],
    rows: NDArray[np.float16],
    offsets: NDArray[np.int64],
    what: str,
    progress: bool,
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file, progress_bar(what, len(names), progress=progress) as advance:
        for index, name in enumerate(names):
            try:
                file.create_dataset(name, data=rows[offsets[index] : offsets[index + 1]].astype(np.float32))
            except (ValueError, TypeError, RuntimeError) as error:  # such as two equal names
                raise HolmesError(f"{named(name)} cannot be exported ({str(error)[:100]}).") from None
            advance(1)


def write_knowledge(store: Store, folder: Path) -> None:
    """Moments (in frames of the exported features), kinds and fits, each only where something is known."""
    frames_Q = np.diff(store.frame_offsets)[store.owner_Q]
    bounds_Q2 = (store.moments_Q2 * frames_Q[:, None]).astype(np.float64)
    known = np.flatnonzero(~np.isnan(bounds_Q2).any(1))
    moments = {store.query_ids[q]: [*bounds_Q2[q].round(3).tolist(), int(frames_Q[q])] for q in known}
    kinds = {
        store.query_ids[q]: QueryKind(store.kinds_Q[q]).name.lower()
        for q in np.flatnonzero(store.kinds_Q >= 0)
    }
    fits = {store.query_ids[q]: [store.video_ids[v] for v in videos] for q, videos in store.also_fits.items()}
    for name, value in (("moments", moments), ("kinds", kinds), ("also_fits", fits)):
        if value:
            write_json(folder / f"{name}.json", value)
