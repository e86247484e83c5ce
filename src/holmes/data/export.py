"""Write a store as an MS-SL feature folder (HDF5), for other code.

Rows are what the store holds: pooled, of unit length, float16 precision, written as float32.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from holmes.base.feature_origin import CollectionOrigin, write_origin
from holmes.base.printing import shown as named
from holmes.data.field_folders import FEATURES, TEXT, new_folder, write_captions, write_known, write_rows
from holmes.data.store import Store
from holmes.errors import HolmesError
from holmes.records import QueryKind

PLAIN = re.compile(r"(?!/)[^\s\0\ud800-\udfff]+(?<!/)")  # of ids: a slash makes a folder inside the HDF5 file
LINE = re.compile(r"[^\n\r\v\f\x1c-\x1e\x85\u2028\u2029\0\ud800-\udfff]+")
HDF5_OVERHEAD = 2048  # bytes a data set takes beyond its numbers, about


def export_store(store: Store, folder: Path, progress: bool = False) -> None:
    if not folder.exists():
        refuse_odd_names(store)
        refuse_full_disk(store, folder.parent)
    with new_folder(folder) as building:
        for name in store.splits:
            queries = store.split(name).queries
            captions = ((store.query_ids[query], store.captions[query]) for query in queries)
            write_captions(building, store.info.collection, name, captions)
        write_rows(
            building / TEXT / f"{store.info.text}.hdf5",
            rows_of(store.query_ids, store.tokens, store.token_offsets),
            len(store.query_ids), "exporting queries", progress,
        )  # fmt: skip
        write_rows(
            building / FEATURES / store.info.visual / "feature.hdf5",
            rows_of(store.video_ids, store.frames, store.frame_offsets),
            len(store.video_ids), "exporting videos", progress,
        )  # fmt: skip
        write_known(building, *known_of(store))
        write_origin(building, CollectionOrigin(store.info.visual, store.info.text, store.info.encoders))


def refuse_odd_names(store: Store) -> None:
    """Refuse what this layout cannot hold: a name ends at a blank, and a caption at the end of its line."""
    for what, names in (("video", store.video_ids), ("caption", store.query_ids)):
        odd = [name for name in names if not PLAIN.fullmatch(name)]
        if odd:
            raise HolmesError(
                f"{store.path}: {what} id {named(odd[0])} cannot be a name in a feature folder."
            )
    odd = [caption for caption in store.captions if not LINE.fullmatch(caption)]
    if odd:
        raise HolmesError(f"{store.path}: {named(odd[0])} cannot be a caption in a feature folder.")


def refuse_full_disk(store: Store, folder: Path) -> None:
    """Make sure there is space before it starts: HDF5 does not survive a disk that fills up."""
    folder.mkdir(parents=True, exist_ok=True)
    needed = 2 * (store.tokens.nbytes + store.frames.nbytes) + HDF5_OVERHEAD * (
        len(store.query_ids) + len(store.video_ids)
    )
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise HolmesError(
            f"{folder} has {free / 1e6:.0f} MB free, but the export needs about {needed / 1e6:.0f}; "
            "free some space."
        )


def rows_of(
    names: list[str], rows: NDArray[np.float16], offsets: NDArray[np.int64]
) -> Iterator[tuple[str, NDArray[np.float32]]]:
    for index, name in enumerate(names):
        yield name, rows[offsets[index] : offsets[index + 1]].astype(np.float32)


def known_of(store: Store) -> tuple[dict[str, list[float]], dict[str, str], dict[str, list[str]]]:
    """Moments (in frames of the exported features), kinds and fits."""
    frames_Q = np.diff(store.frame_offsets)[store.owner_Q]
    bounds_Q2 = (store.moments_Q2 * frames_Q[:, None]).astype(np.float64)
    known = np.flatnonzero(~np.isnan(bounds_Q2).any(1))
    moments = {store.query_ids[q]: [*bounds_Q2[q].round(3).tolist(), int(frames_Q[q])] for q in known}
    kinds = {
        store.query_ids[q]: QueryKind(store.kinds_Q[q]).name.lower()
        for q in np.flatnonzero(store.kinds_Q >= 0)
    }
    fits = {store.query_ids[q]: [store.video_ids[v] for v in videos] for q, videos in store.also_fits.items()}
    return moments, kinds, fits
