"""The files of a collection, in a folder or in a zip file, by their paths under TextData and FeatureData.

A zip file comes from anywhere: only entries whose names are plain are seen, sizes are bounded, and an entry
is written under a path that is made here, never under its own.
"""

from __future__ import annotations

import lzma
import re
import shutil
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from holmes.base.files import atomic_file, inside, read_file
from holmes.data.field_folders import FEATURES, TEXT
from holmes.errors import HolmesError

LARGEST_TEXT = 64 << 20  # bytes of a caption file or of shape.txt
LARGEST_ENTRY = 128 << 30  # bytes of a feature file; the largest of the field has 12 GB
MOST_ENTRIES = 200_000
PLAIN = re.compile(r"[A-Za-z0-9_.+-]{1,200}")  # a part of a path: no separators, no odd characters
BLOCK = 1 << 20
DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    MemoryError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OSError,
)


@dataclass(frozen=True)
class FolderTree:
    """The files of a collection in a folder."""

    where: Path
    sizes: dict[str, int]  # path under `where` → bytes

    @classmethod
    def of(cls, folder: Path) -> FolderTree:
        found = {}
        for part, pattern in ((TEXT, "*"), (FEATURES, "*"), (FEATURES, "*/*")):
            for path in sorted((folder / part).glob(pattern)):
                if path.is_file():
                    found[path.relative_to(folder).as_posix()] = path.stat().st_size
        return cls(folder, found)

    def read(self, name: str) -> bytes:
        return read_file(self.where / name, LARGEST_TEXT)


@dataclass(frozen=True)
class ZipTree:
    """The files of a collection in a zip file."""

    where: Path  # the zip file
    sizes: dict[str, int]
    entries: dict[str, zipfile.ZipInfo]

    def read(self, name: str) -> bytes:
        if self.sizes[name] > LARGEST_TEXT:
            raise HolmesError(f"{self.where}: {name} is larger than {LARGEST_TEXT >> 20} MiB.")
        try:
            with zipfile.ZipFile(self.where) as archive:
                return archive.read(self.entries[name])
        except DAMAGED as error:
            raise damaged(self.where, name, error) from None

    def unpack(self, names: list[str], target: Path, advance: Callable[[int], None]) -> None:
        """Write these files under `target`, each whole or not at all; what is there already is kept."""
        left = [name for name in names if size_of(target / name) != self.sizes[name]]
        for name in names:
            if name not in left:
                advance(self.sizes[name])
        needed = sum(self.sizes[name] for name in left)
        target.mkdir(parents=True, exist_ok=True)
        if needed > (free := shutil.disk_usage(target).free):
            raise HolmesError(
                f"unpacking {self.where} needs {needed / 1e9:.1f} GB, and {target} has {free / 1e9:.1f} GB "
                "left; give an --out on a larger disk, or unpack the zip file yourself."
            )
        with zipfile.ZipFile(self.where) as archive:
            for name in left:
                path = inside(target, *PurePosixPath(name).parts)
                try:
                    with atomic_file(path) as file, archive.open(self.entries[name]) as entry:
                        while block := entry.read(BLOCK):  # at most the declared size; the end has a checksum
                            file.write(block)
                            advance(len(block))
                except DAMAGED as error:
                    if isinstance(error, OSError) and error.filename is not None:  # ours: a full disk
                        raise
                    raise damaged(self.where, name, error) from None


Tree = FolderTree | ZipTree


def zip_trees(path: Path) -> Iterator[ZipTree]:
    """Every folder of a zip file that has TextData or FeatureData in it."""
    try:
        with zipfile.ZipFile(path) as archive:
            infos = archive.infolist()
    except DAMAGED as error:
        raise damaged(path, "", error) from None
    if len(infos) > MOST_ENTRIES:
        raise HolmesError(f"{path} has {len(infos):,} entries, more than a collection has.")
    found: dict[str, dict[str, zipfile.ZipInfo]] = {}
    for info in infos:
        parts = info.filename.split("/")
        start = next((number for number, part in enumerate(parts) if part in (TEXT, FEATURES)), None)
        if start is None or info.is_dir() or not is_plain(info, parts):
            continue
        inner = "/".join(parts[start:])
        if len(parts) - start <= 3:
            found.setdefault("/".join(parts[:start]), {}).setdefault(inner, info)
    for entries in found.values():
        yield ZipTree(path, {name: info.file_size for name, info in entries.items()}, entries)


def is_plain(info: zipfile.ZipInfo, parts: list[str]) -> bool:
    """Whether an entry is a file with a harmless name, not encrypted, not a link, of a size that can be."""
    kind = stat.S_IFMT(info.external_attr >> 16)
    names = all(PLAIN.fullmatch(part) and part.strip(".") for part in parts[-3:])
    return names and kind in (0, stat.S_IFREG) and not info.flag_bits & 1 and info.file_size <= LARGEST_ENTRY


def size_of(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None


def damaged(path: Path, name: str, error: Exception) -> HolmesError:
    why = " ".join(str(error).split())[:100] or type(error).__name__
    where = f" at {name}" if name else ""
    return HolmesError(f"{path} is truncated or damaged{where} ({why}); download it again.")
