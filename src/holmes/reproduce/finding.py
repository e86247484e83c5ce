"""Find the field's collections and published checkpoints in a folder.

Zip files, unpacked folders, wrapped in other folders, BigFile or HDF5, all collections or one. What differs
from the field's copy is remarked; what is missing is named with where to get it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from holmes.data.feature_files import BIGFILE, HDF5Features
from holmes.data.field_folders import FEATURES, SPLITS, TEXT
from holmes.errors import HolmesError
from holmes.reproduce.published import COLLECTIONS, FEATURES_AT, Collection
from holmes.reproduce.trees import FolderTree, Tree, ZipTree, zip_trees

DEEPEST = 6  # folders below DATA that are searched
MOST_FOLDERS = 20_000
CHECKPOINTS = (".pth", ".pt", ".ckpt", ".tar", ".bin")
SMALLEST_CHECKPOINT, LARGEST_CHECKPOINT = 1 << 16, 2 << 30  # bytes


@dataclass(frozen=True)
class FoundCollection:
    """A collection of the field in DATA."""

    about: Collection
    tree: Tree
    sizes: dict[str, tuple[int, int]]  # split → videos, queries
    visual: str | None = None  # the feature set in FeatureData
    text: str | None = None  # the file in TextData, without .hdf5
    form: str = ""  # BigFile or HDF5
    missing: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()  # where it differs from the field's copy

    @property
    def usable(self) -> bool:
        return not self.missing

    @property
    def packed(self) -> bool:
        """Whether it has to be unpacked first."""
        return isinstance(self.tree, ZipTree)

    def wanted(self) -> list[str]:
        """The files that decide the store."""
        captions = [f"{TEXT}/{self.about.name}{split}.caption.txt" for split in self.sizes]
        visual = [
            name
            for name in self.tree.sizes
            if name.startswith(f"{FEATURES}/{self.visual}/") or name == f"{FEATURES}/{self.visual}.hdf5"
        ]
        return [*captions, f"{TEXT}/{self.text}.hdf5", *visual]


@dataclass
class Findings:
    """All that DATA holds."""

    folder: Path
    collections: dict[str, FoundCollection] = field(default_factory=dict)
    checkpoints: list[Path] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)  # files that cannot be read

    @property
    def usable(self) -> dict[str, FoundCollection]:
        return {name: found for name, found in self.collections.items() if found.usable}


def find(folder: Path, without: Path | None = None) -> Findings:
    """The collections and checkpoints under a folder; of two copies the more complete, unpacked one.

    `without` is a folder that is not searched: results may be written below the data.
    """
    if not folder.is_dir():
        raise HolmesError(f"{folder} is not a folder; give the one with activitynet, charades or tvr in it.")
    findings = Findings(folder)
    copies: dict[str, list[FoundCollection]] = {}
    for tree in trees(folder, without, findings):
        for name, about in COLLECTIONS.items():
            if any(f"{TEXT}/{name}{split}.caption.txt" in tree.sizes for split in SPLITS):
                try:
                    found = describe(about, tree)
                except HolmesError as error:
                    findings.faults.append(str(error))
                    continue
                copies.setdefault(name, []).append(found)
    for name in COLLECTIONS:
        if name in copies:
            findings.collections[name] = min(copies[name], key=lambda each: (len(each.missing), each.packed))
    return findings


def refuse_data_as_results(data: Path, out: Path) -> str | None:
    """Refuse to write among the features; a line to say where results go into a folder below DATA."""
    where, into = data.resolve(), out.resolve()
    if not into.is_relative_to(where):
        return None
    if into == where or {TEXT, FEATURES} & {*into.relative_to(where).parts}:
        raise HolmesError(
            f"--out {out} is a folder of features; give another one, such as {where.name}-results."
        )
    return f"{out} is inside {data}; it is for the results and is not searched for features"


def trees(folder: Path, without: Path | None, findings: Findings) -> Iterator[Tree]:
    """Every folder that has TextData, also inside zip files; checkpoints are noted on the way."""
    seen = set[str]() if without is None else {os.path.realpath(without)}
    for visited, folders, files in os.walk(folder, followlinks=True):
        here = Path(visited)
        real = os.path.realpath(visited)
        if real in seen or len(seen) >= MOST_FOLDERS or len(here.relative_to(folder).parts) > DEEPEST:
            folders.clear()
            continue
        seen.add(real)
        if TEXT in folders:
            yield FolderTree.of(here)
        folders[:] = sorted(name for name in folders if name[0] != "." and name not in (TEXT, FEATURES))
        for name in sorted(files):
            path = here / name
            if name.lower().endswith(".zip"):
                try:
                    yield from zip_trees(path)
                except HolmesError as error:
                    findings.faults.append(str(error))
            elif name.lower().endswith(CHECKPOINTS) and could_be_checkpoint(path):
                findings.checkpoints.append(path)


def could_be_checkpoint(path: Path) -> bool:
    return path.is_file() and SMALLEST_CHECKPOINT <= path.stat().st_size <= LARGEST_CHECKPOINT


def describe(about: Collection, tree: Tree) -> FoundCollection:
    """What a copy of a collection holds, lacks, and where it differs from the field's."""
    captions = {split: f"{TEXT}/{about.name}{split}.caption.txt" for split in SPLITS}
    sizes = {split: count(tree.read(name)) for split, name in captions.items() if name in tree.sizes}
    missing = [name for split, name in captions.items() if split in about.sizes and split not in sizes]
    visual, form = visual_set(about, tree)
    text = text_file(about, tree)
    remarks = size_remarks(about, sizes)
    if visual is None:
        missing.append(f"{FEATURES}/{about.visual} (a BigFile or feature.hdf5)")
    elif (width := visual_width(tree, visual, form)) not in (None, about.video_width):
        remarks.append(f"video features are {width} wide, the field's {about.video_width}")
    if text is None:
        missing.append(f"{TEXT}/{about.text}.hdf5")
    if "test" not in sizes and matches(about, sizes.get("val"), "test"):
        remarks.append("val has the size of the field's test split: copy its caption file under that name")
    return FoundCollection(about, tree, sizes, visual, text, form, tuple(missing), tuple(remarks))


def count(captions: bytes) -> tuple[int, int]:
    """The videos and queries of a caption file."""
    ids = {line.split(maxsplit=1)[0] for line in captions.splitlines() if line.strip()}
    return len({name.split(b"#", 1)[0] for name in ids}), len(ids)


def visual_set(about: Collection, tree: Tree) -> tuple[str | None, str]:
    """The field's feature set, or the only one; and how it is stored."""
    sets = {}
    for name in tree.sizes:
        part, *rest = name.split("/")
        if part == FEATURES and rest[-1] == "feature.hdf5" and len(rest) == 2:
            sets[rest[0]] = "HDF5"
        elif part == FEATURES and rest[-1] == "feature.bin" and len(rest) == 2:
            whole = all(f"{FEATURES}/{rest[0]}/{file}" in tree.sizes for file in BIGFILE)
            if whole:
                sets.setdefault(rest[0], "BigFile")
        elif part == FEATURES and len(rest) == 1 and rest[0].endswith(".hdf5"):
            sets.setdefault(rest[0].removesuffix(".hdf5"), "HDF5")
    chosen = about.visual if about.visual in sets else next(iter(sets)) if len(sets) == 1 else None
    return chosen, sets.get(chosen or "", "")


def text_file(about: Collection, tree: Tree) -> str | None:
    known = [Path(name).stem for name in tree.sizes if name.startswith(f"{TEXT}/") and name.endswith(".hdf5")]
    return about.text if about.text in known else known[0] if len(known) == 1 else None


def visual_width(tree: Tree, visual: str, form: str) -> int | None:
    """The width of the video features; unknown in an HDF5 file that is still inside a zip file."""
    if form == "BigFile":
        words = tree.read(f"{FEATURES}/{visual}/shape.txt")[:100].split()
        return int(words[1]) if len(words) == 2 and words[1].isdigit() else None
    if isinstance(tree, ZipTree):
        return None
    folder = tree.where / FEATURES / visual
    path = folder / "feature.hdf5" if folder.is_dir() else folder.with_name(f"{visual}.hdf5")
    with HDF5Features(path) as features:  # follows no link out of the file
        first = next(iter(features.file), None)
        with suppress(HolmesError):  # an odd item is named when it is packed
            shape = None if first is None else features.shape(first)
            return None if shape is None else shape[1]
    return None


def size_remarks(about: Collection, sizes: dict[str, tuple[int, int]]) -> list[str]:
    """Where videos and queries of a split are not as many as the field's."""
    remarks = []
    for split, (videos, queries) in about.sizes.items():
        if split in sizes and not matches(about, sizes[split], split):
            found = sizes[split]
            remarks.append(
                f"{split} has {found[0]:,} videos and {found[1]:,} queries, the field's {videos:,} and "
                f"{queries:,}"
            )
    test_differs = "test" in sizes and not matches(about, sizes["test"], "test")
    if test_differs and matches(about, sizes.get("val"), "test"):
        remarks.append("val has the size of the field's test split: are val and test swapped?")
    return remarks


def matches(about: Collection, found: tuple[int, int] | None, split: str) -> bool:
    if found is None:
        return False
    pairs = zip(found, about.sizes[split], strict=True)
    return all(abs(ours - fields) <= about.tolerance * fields for ours, fields in pairs)


def missing_lines(findings: Findings, wanted: tuple[str, ...]) -> list[str]:
    """What is missing, with where to get it; what differs; what cannot be read."""
    lines = [*findings.faults]
    for name in wanted:
        found = findings.collections.get(name)
        if found is None:
            about = COLLECTIONS[name]
            lines.append(
                f"{about.title} is not in {findings.folder}: get {about.archive} (about "
                f"{about.bytes / 1e9:.2g} GB unpacked) from {FEATURES_AT}"
            )
            continue
        if found.missing:
            lines.append(
                f"{found.about.title} in {found.tree.where} lacks {', '.join(found.missing)}: get "
                f"{found.about.archive} again from {FEATURES_AT}"
            )
        lines += [f"{found.about.title}: {remark}" for remark in found.remarks]
    return lines
