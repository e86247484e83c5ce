"""Read and write collections in the field's folder layout (MS-SL): captions, features, annotations.

A folder is written here, or searched for its collection, its splits and its feature sets.

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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
from numpy.typing import NDArray

from holmes.base.files import atomic_file, sync_folder, write_json
from holmes.base.printing import shown
from holmes.base.progress import progress_bar
from holmes.errors import HolmesError, unknown

TEXT, FEATURES = "TextData", "FeatureData"
SPLITS = ("train", "val", "test")


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


@dataclass(frozen=True)
class SourceFiles:
    source: Path
    collection: str
    captions: dict[str, Path]  # split → file
    visual_name: str
    visual: Path  # a folder (BigFile or feature.hdf5) or an HDF5 file
    text: Path

    def files(self) -> list[Path]:
        """Every file that decides the store's rows."""
        visual = (
            sorted(path for path in self.visual.iterdir() if path.is_file())
            if self.visual.is_dir()
            else [self.visual]
        )
        return [*self.captions.values(), *visual, self.text]


def find_source_files(
    source: Path, collection: str | None = None, visual: str | None = None, text: str | None = None
) -> SourceFiles:
    if not source.is_dir():
        raise HolmesError(f"{source} is not a folder; give the one that holds TextData and FeatureData.")
    found = caption_files(source)
    name = only(found, collection, "collection", source / TEXT, "--collection NAME")
    visual_name, visual_path = chosen(
        visual_sets(source), visual, "visual feature set", source / FEATURES, "--visual NAME"
    )
    _, text_path = chosen(text_sets(source), text, "text feature file", source / TEXT, "--text FILE")
    return SourceFiles(source, name, found[name], visual_name, visual_path, text_path)


def caption_files(source: Path) -> dict[str, dict[str, Path]]:
    """Collection → split → file, splits in the usual order."""
    found: dict[str, dict[str, Path]] = {}
    for split in SPLITS:
        for path in sorted((source / TEXT).glob(f"*{split}.caption.txt")):
            found.setdefault(path.name.removesuffix(f"{split}.caption.txt"), {})[split] = path
    if not found:
        raise HolmesError(f"{source} has no TextData/<collection>train.caption.txt; is it the right folder?")
    return found


def visual_sets(source: Path) -> dict[str, Path]:
    """A folder with a BigFile or feature.hdf5 goes by its own name, any other HDF5 file by its stem."""
    folder, sets = source / FEATURES, dict[str, Path]()
    for path in sorted([*folder.glob("*"), *folder.glob("*/*.hdf5")]):
        if path.is_dir() and ((path / "feature.bin").is_file() or (path / "feature.hdf5").is_file()):
            sets[path.name] = path
        elif path.suffix == ".hdf5" and path.is_file() and path.name != "feature.hdf5":
            sets[path.stem] = path
    return sets


def text_sets(source: Path) -> dict[str, Path]:
    return {path.stem: path for path in sorted((source / TEXT).glob("*.hdf5"))}


def chosen(
    sets: dict[str, Path], wanted: str | None, what: str, folder: Path, option: str
) -> tuple[str, Path]:
    """The wanted set, by name, file name or path; the only one where none is named."""
    if wanted is not None and Path(wanted).suffix == ".hdf5":
        if Path(wanted).is_file() and Path(wanted).stem not in sets:
            return Path(wanted).stem, Path(wanted)
        wanted = Path(wanted).stem
    name = only(sets, wanted, what, folder, option)
    return name, sets[name]


def only(known: dict[str, Any], wanted: str | None, what: str, folder: Path, option: str) -> str:
    if wanted is not None:
        if wanted not in known:
            raise unknown(f"{what} in {folder}", wanted, known)
        return wanted
    if not known:
        raise HolmesError(f"{folder} contains no {what}; is it the right folder?")
    if len(known) > 1:
        raise HolmesError(f"{folder} contains several: {', '.join(known)}; choose with {option}.")
    return next(iter(known))
