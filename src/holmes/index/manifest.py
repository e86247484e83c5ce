"""The one file that says what an index holds. Replacing it is the commit of every change.

It carries a checksum of its own, so damage is told from a format this version does not know.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from holmes.errors import HolmesError
from holmes.files import write_json

FORMAT = "holmes-index"
VERSION = 1
FILE_NAME = "manifest.json"
LARGEST_MANIFEST = 256 * 2**20  # bytes; a million removed videos fit many times


@dataclass(frozen=True)
class FileEntry:
    """One file of a segment as it was written."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class SegmentEntry:
    """An immutable segment, and which of its videos have been removed since."""

    name: str
    videos: int
    files: dict[str, FileEntry]
    removed: tuple[int, ...] = ()  # positions inside the segment, ascending

    @property
    def live(self) -> int:
        return self.videos - len(self.removed)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files.values())


@dataclass(frozen=True)
class Manifest:
    """Everything about an index but its embeddings."""

    model: dict[str, Any]  # how to load the model again, and the digest of its weights
    extraction: dict[str, Any]  # how videos became features; queries go the same way
    width: int  # of every embedding
    clips: int  # rows of the clip branch, the same for every video
    generation: int = 0  # grows by one with every change
    segments: tuple[SegmentEntry, ...] = field(default=())

    @property
    def videos(self) -> int:
        return sum(segment.live for segment in self.segments)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    body = {"format": FORMAT, "version": VERSION, **asdict(manifest)}
    write_json(folder / FILE_NAME, {**body, "checksum": _checksum(body)})


def read_manifest(folder: Path) -> Manifest:
    path = folder / FILE_NAME
    body = _read(folder, path)
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        raise HolmesError(f"{path} does not describe a Holmes index (no format '{FORMAT}').")
    if body.get("version") != VERSION:
        raise HolmesError(
            f"{folder} is an index of version {str(body.get('version'))[:20]}; this Holmes reads {VERSION}. "
            "Build it again, or use the Holmes that wrote it."
        )
    if body.pop("checksum", None) != _checksum(body):
        raise HolmesError(f"{path} is damaged (its checksum does not match). Build the index again.")
    try:
        return _parse(body)
    except (KeyError, TypeError, ValueError) as error:
        raise HolmesError(f"{path} is damaged ({type(error).__name__}: {error}).") from None


def _read(folder: Path, path: Path) -> Any:
    try:
        if path.stat().st_size > LARGEST_MANIFEST:
            raise HolmesError(f"{path} is larger than any manifest Holmes writes; it is damaged.")
        return json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise HolmesError(f"{folder} is no index; make one: holmes index build {folder} VIDEOS…") from None
    except (ValueError, RecursionError) as error:
        raise HolmesError(f"{path} is damaged: not valid JSON ({type(error).__name__}).") from None


def _checksum(body: dict[str, Any]) -> str:
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _parse(body: dict[str, Any]) -> Manifest:
    segments = tuple(_parse_segment(entry) for entry in body["segments"])
    width, clips = _count(body["width"], least=1), _count(body["clips"], least=1)
    if not isinstance(body["model"], dict) or not isinstance(body["extraction"], dict):
        raise ValueError("model and extraction must be objects")
    return Manifest(body["model"], body["extraction"], width, clips, _count(body["generation"]), segments)


def _parse_segment(entry: dict[str, Any]) -> SegmentEntry:
    name, videos = entry["name"], _count(entry["videos"])
    if not re.fullmatch(r"[0-9]{8,}", name):  # never a path out of the folder
        raise ValueError(f"segment name {name!r}")
    files = {file: FileEntry(_count(at["bytes"]), str(at["sha256"])) for file, at in entry["files"].items()}
    removed = tuple(_count(position) for position in entry["removed"])
    if any(position >= videos for position in removed) or len(set(removed)) < len(removed):
        raise ValueError(f"removed videos of segment {name}")
    return SegmentEntry(name, videos, files, removed)


def _count(value: Any, least: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{str(value)[:20]!r} is not a count")
    return value
