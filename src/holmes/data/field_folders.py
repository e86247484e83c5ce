"""Writes collections as the field keeps them (MS-SL): captions, features, and what is known of the queries.

FOLDER/TextData/<collection><split>.caption.txt        `<id> <caption>`, one per line
FOLDER/TextData/<name>.hdf5                            caption id → token states
FOLDER/FeatureData/<name>/feature.hdf5                 video id → rows
FOLDER/moments.json, kinds.json, also_fits.json        each only where something is known
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
from numpy.typing import NDArray

from holmes.base.files import atomic_file, sync_folder, write_json
from holmes.base.printing import shown
from holmes.base.progress import progress_bar
from holmes.errors import HolmesError

TEXT, FEATURES = "TextData", "FeatureData"


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Where to write a folder that appears when all of it is there; an existing one is refused."""
    if folder.exists():
        raise HolmesError(f"{folder} already exists; choose another name or remove it.")
    building = folder.parent / f".{folder.name}.building"
    shutil.rmtree(building, ignore_errors=True)
    try:
        yield building
        os.replace(building, folder)
        sync_folder(folder.parent)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def write_captions(folder: Path, collection: str, split: str, captions: Iterable[tuple[str, str]]) -> None:
    """The captions of a split, each with its id."""
    lines = "".join(f"{id} {caption}\n" for id, caption in captions)
    with atomic_file(folder / TEXT / f"{collection}{split}.caption.txt") as file:
        file.write(lines.encode())


def write_rows(
    path: Path, rows: Iterable[tuple[str, NDArray[Any]]], count: int, what: str, progress: bool
) -> None:
    """Every id's rows as a data set of an HDF5 file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file, progress_bar(what, count, progress=progress) as advance:
        for id, values in rows:
            try:
                file.create_dataset(id, data=values)
            except (ValueError, TypeError, RuntimeError) as error:  # such as two equal names
                raise HolmesError(f"{shown(id)} cannot be exported ({str(error)[:100]}).") from None
            advance(1)


def write_known(
    folder: Path,
    moments: Mapping[str, list[float]],
    kinds: Mapping[str, str],
    also_fits: Mapping[str, list[str]],
) -> None:
    """What is known of captions, by their ids; moments as [first row, end row, rows of the video]."""
    for name, known in (("moments", moments), ("kinds", kinds), ("also_fits", also_fits)):
        if known:
            write_json(folder / f"{name}.json", known)
