"""The manifest of an index. Replacing it commits a change.

It carries a checksum of its own, so damage can be told from a format that this version does not know.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

from holmes.base.feature_origin import LEAST_RATE, MOST_RATE
from holmes.base.files import sha256_file
from holmes.base.manifests import FileEntry, FileFormat
from holmes.base.printing import shown
from holmes.base.validation import Count, Matching, Within, build
from holmes.errors import HolmesError

FILE_NAME = "manifest.json"
Side = Annotated[int, Within(1, 2**20)]  # of a video's embeddings, rows or columns; real ones have hundreds
SegmentName = Annotated[str, Matching(r"[0-9]{8,40}", "the number of a segment")]  # never a path out of here
# The files of a segment. A manifest names no others: its names become paths.
ROWS, CODES, PARTS = "rows.f16", "codes.i8", "parts.f32"
SPANS, VIDEOS, NAMES = "spans.f32", "videos.bin", "names.bin"
FILES = (ROWS, CODES, PARTS, SPANS, VIDEOS, NAMES)
SUMS = "sums.i64"  # not in segments of earlier versions
# The files of a segment of passages; see `passages.py`.
PASSAGES, VECTORS, PASSAGE_NUMBERS = "passages.sqlite", "vectors.i8", "numbers.f32"
OWNERS, KINDS = "owners.i32", "kinds.i8"
PASSAGE_FILES = (PASSAGES, VECTORS, PASSAGE_NUMBERS, OWNERS, KINDS)
TEXTS = ("kind", "name", "digest", "visual", "text", "text_digest")  # what is written about a model


@dataclass(frozen=True)
class RemovableVideos:
    """What both kinds of segments have: files, and videos of which some have been removed since."""

    name: SegmentName
    videos: Count
    files: dict[str, FileEntry]
    removed: tuple[Count, ...] = field(default=(), kw_only=True)  # positions inside the segment, ascending

    def check_removed(self) -> None:
        if any(at >= self.videos for at in self.removed) or len(set(self.removed)) < len(self.removed):
            raise HolmesError(f"'removed' names videos that segment {self.name} does not have.")

    def faults(self, folder: Path) -> list[str]:
        """Files in `folder` whose bytes are not those that were written; reads all of them."""
        return [
            f"{folder / name} is damaged (its checksum does not match)"
            for name, expected in self.files.items()
            if sha256_file(folder / name) != expected.sha256
        ]

    @property
    def live(self) -> int:
        return self.videos - len(self.removed)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files.values())


@dataclass(frozen=True)
class SegmentEntry(RemovableVideos):
    """An immutable segment, and which of its videos have been removed since."""

    def __post_init__(self) -> None:
        self.check_removed()
        if self.files.keys() - {SUMS} != set(FILES):
            other = min(self.files.keys() - {SUMS} ^ set(FILES))
            state = "lists" if other in self.files else "does not list"
            raise HolmesError(
                f"segment {self.name} {state} {shown(other)}; its files are {', '.join(FILES)} and {SUMS}."
            )


@dataclass(frozen=True)
class PassageEntry(RemovableVideos):
    """An immutable segment of passages, and which of its videos have been removed since."""

    passages: Count
    width: Annotated[int, Within(0, 2**20)]  # of the vectors; 0 where there are none
    encoder: str  # the digest of the text encoder that made the vectors

    def __post_init__(self) -> None:
        self.check_removed()
        if self.files.keys() != set(PASSAGE_FILES):
            raise HolmesError(
                f"segment {self.name} does not list the files of passages: {', '.join(PASSAGE_FILES)}."
            )


@dataclass(frozen=True)
class Manifest:
    """Everything about an index but its embeddings."""

    model: dict[str, Any]  # how to load the model again, and the digest of its weights
    extraction: dict[str, Any]  # how videos became features: backbone, rate; empty if made elsewhere
    width: Side  # of every embedding
    clips: Side  # rows of the clip branch, the same for every video
    generation: Count = 0  # grows by one with every change
    segments: tuple[SegmentEntry, ...] = field(default=())
    passages: tuple[PassageEntry, ...] = field(default=())  # earlier versions wrote none

    def __post_init__(self) -> None:
        names = Counter([entry.name for entry in self.segments] + [entry.name for entry in self.passages])
        twice = [name for name, times in names.items() if times > 1]
        if twice:
            raise HolmesError(f"it names segment {twice[0]} twice.")
        for what in TEXTS:
            build(str, self.model.get(what, ""), f"model.{what}")
        if self.extraction:
            backbone: dict[str, Any] = build(dict[str, Any], self.extraction.get("backbone"), "backbone")
            for what in ("name", "digest"):
                build(str, backbone.get(what), f"backbone.{what}")
            build(Annotated[float, Within(LEAST_RATE, MOST_RATE)], self.extraction.get("rate"), "rate")

    @property
    def videos(self) -> int:
        return sum(segment.live for segment in self.segments)

    @property
    def folders(self) -> dict[str, dict[str, FileEntry]]:
        """The files of every segment, of pictures and of passages, by the segment's name."""
        return {e.name: e.files for e in self.segments} | {e.name: e.files for e in self.passages}


class IndexFormat(FileFormat):
    """The form of the manifest; an index of another version is refused with the way to build it again."""

    def load(self, path: Path) -> Any:
        try:
            return super().load(path)
        except HolmesError as error:
            raise damaged(path.parent, str(error)[:-1]) from None

    def damaged(self, path: Path, fault: str) -> HolmesError:
        return damaged(path.parent, fault)

    def outdated(self, path: Path, version: str) -> HolmesError:
        folder, quoted = path.parent, shlex.quote(str(path.parent))
        return HolmesError(
            f"{folder} is an index of version {version}; this version of Holmes reads version "
            f"{self.version}. Build it again; the extracted features are kept: "
            f"rm -r {quoted}/{{{FILE_NAME},segments}} && holmes index build {quoted} VIDEOS…"
        )


FORMAT = IndexFormat("holmes-index", 3, "a Holmes index", "build it again")


def write_manifest(folder: Path, manifest: Manifest, still_wanted: Callable[[], None] = lambda: None) -> None:
    FORMAT.write(folder / FILE_NAME, asdict(manifest), still_wanted)


def read_manifest(folder: Path, name: str = FILE_NAME) -> Manifest:
    path = folder / name
    if folder.is_file():
        raise HolmesError(f"{folder} is a file, not an index; name the folder 'holmes index build' made.")
    if not path.is_file():
        raise HolmesError(f"{folder} is not an index; make one: holmes index build {folder} VIDEOS…")
    return FORMAT.read(path, Manifest)


def damaged(index: Path, fault: str) -> HolmesError:
    """The error about an index whose files are not as they were written."""
    return HolmesError(f"{fault}. Remove {index} and build it again, or restore it from a copy.")
