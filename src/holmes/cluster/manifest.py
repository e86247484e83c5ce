"""The manifest of a sharded index. Replacing it publishes a new snapshot of all shards at once.

    SHARDS/shards.json             this file: every shard by name, with the digest of its snapshot
    SHARDS/shard-0000/             an ordinary index, usable alone
    SHARDS/features/               the extracted features of all shards

A shard may be changed at any time. Searches see the snapshot whose digest is here.
Ray stores no data.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from holmes.base.manifests import FileFormat
from holmes.base.validation import Count, Matching, Sha256, Within
from holmes.cluster.location import LARGEST, Location
from holmes.errors import HolmesError
from holmes.index.storage.manifest import FILE_NAME as INDEX_FILE
from holmes.index.storage.manifest import Manifest, Side
from holmes.index.storage.store import IndexDescription

FILE_NAME = "shards.json"
FORMAT = FileFormat("holmes-shards", 1, "a sharded index", "split the index again")
MOST_SHARDS = 100_000
ShardName = Annotated[str, Matching(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}", "the name of a shard")]


@dataclass(frozen=True)
class ShardEntry:
    """One shard in one snapshot."""

    name: ShardName
    sha256: Sha256  # of the snapshot: of a manifest that has the digests of all files
    videos: Count
    parts: Count  # of these videos: a long one has several
    seconds: Annotated[float, Within(0, 1e15)]  # of video
    bytes: Count  # of all files
    codes: Count  # bytes of them that every search reads


@dataclass(frozen=True)
class Shards:
    """One snapshot of all shards; `generation` numbers them."""

    model: dict[str, Any]
    extraction: dict[str, Any]
    width: Side
    clips: Side
    generation: Count
    shards: tuple[ShardEntry, ...]
    calibration: dict[str, Any] | None = None  # of the whole collection: learned from captions

    def __post_init__(self) -> None:
        names = [entry.name for entry in self.shards]
        if not names or len(names) > MOST_SHARDS or len(set(names)) < len(names):
            raise HolmesError("shards.json must list at least one shard, each with a unique name.")

    @property
    def videos(self) -> int:
        return sum(entry.videos for entry in self.shards)

    @property
    def in_parts(self) -> bool:
        """Whether any video has more than one part."""
        return any(entry.parts > entry.videos for entry in self.shards)

    def __getitem__(self, name: str) -> ShardEntry:
        return self._by_name[name]

    @cached_property
    def _by_name(self) -> dict[str, ShardEntry]:
        return {entry.name: entry for entry in self.shards}

    def describe(self, path: str) -> IndexDescription:
        """As an open index describes itself."""
        return IndexDescription(
            path=path,
            generation=self.generation,
            videos=self.videos,
            hours=sum(entry.seconds for entry in self.shards) / 3600,
            removed=0,
            bytes=sum(entry.bytes for entry in self.shards),
            width=self.width,
            model=self.model,
            extraction=self.extraction,
            shards=len(self.shards),
        )


def shards_like(
    manifest: Manifest,
    generation: int,
    entries: Iterable[ShardEntry],
    calibration: dict[str, Any] | None = None,
) -> Shards:
    """A snapshot of shards that have the model and the shape of this one."""
    shape = manifest.model, manifest.extraction, manifest.width, manifest.clips
    return Shards(*shape, generation, tuple(entries), calibration)


def is_sharded(path: Path | str | Location) -> bool:
    location = path if isinstance(path, Location) else Location(path)
    return location.exists(FILE_NAME)


def read_shards(location: Location) -> Shards:
    if location.folder is not None:
        if not (location.folder / FILE_NAME).exists():
            raise _no_shards(location)
        return FORMAT.read(location.folder / FILE_NAME, Shards)
    try:
        content = location.read(FILE_NAME, LARGEST)
    except FileNotFoundError:
        raise _no_shards(location) from None
    with tempfile.TemporaryDirectory() as folder:
        local = Path(folder) / FILE_NAME
        local.write_bytes(content)
        try:
            return FORMAT.read(local, Shards)
        except HolmesError as error:
            raise HolmesError(str(error).replace(folder, str(location))) from None


def write_shards(folder: Path, shards: Shards) -> None:
    FORMAT.write(folder / FILE_NAME, asdict(shards))


def check_belongs(shards: Shards, manifest: Manifest, where: str) -> None:
    """Refuse a shard of another model or another shape: its scores would mean something else."""
    for what in ("model", "extraction", "width", "clips"):
        if getattr(shards, what) != getattr(manifest, what):
            raise HolmesError(
                f"{where} does not belong to this sharded index (its {what} differs); restore the right "
                "shard, or split the index again."
            )


def _no_shards(location: Location) -> HolmesError:
    if location.exists(INDEX_FILE):
        return HolmesError(
            f"{location} is a single index, not a sharded one; make one of it: "
            f"holmes index split {location} SHARDS --shards N."
        )
    return HolmesError(
        f"{location} is not a sharded index (it has no {FILE_NAME}); make one: holmes index split."
    )
