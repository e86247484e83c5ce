"""Find what a feature folder of the field holds: the collection, its splits, its feature sets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holmes.errors import HolmesError, unknown

SPLITS = ("train", "val", "test")


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
    name = only(found, collection, "collection", source / "TextData", "--collection NAME")
    visual_name, visual_path = chosen(
        visual_sets(source), visual, "visual feature set", source / "FeatureData", "--visual NAME"
    )
    _, text_path = chosen(text_sets(source), text, "text feature file", source / "TextData", "--text FILE")
    return SourceFiles(source, name, found[name], visual_name, visual_path, text_path)


def caption_files(source: Path) -> dict[str, dict[str, Path]]:
    """Collection → split → file, splits in the usual order."""
    found: dict[str, dict[str, Path]] = {}
    for split in SPLITS:
        for path in sorted((source / "TextData").glob(f"*{split}.caption.txt")):
            found.setdefault(path.name.removesuffix(f"{split}.caption.txt"), {})[split] = path
    if not found:
        raise HolmesError(f"{source} has no TextData/<collection>train.caption.txt; is it the right folder?")
    return found


def visual_sets(source: Path) -> dict[str, Path]:
    """A folder with a BigFile or feature.hdf5 goes by its own name, any other HDF5 file by its stem."""
    folder, sets = source / "FeatureData", dict[str, Path]()
    for path in sorted([*folder.glob("*"), *folder.glob("*/*.hdf5")]):
        if path.is_dir() and ((path / "feature.bin").is_file() or (path / "feature.hdf5").is_file()):
            sets[path.name] = path
        elif path.suffix == ".hdf5" and path.is_file() and path.name != "feature.hdf5":
            sets[path.stem] = path
    return sets


def text_sets(source: Path) -> dict[str, Path]:
    return {path.stem: path for path in sorted((source / "TextData").glob("*.hdf5"))}


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
