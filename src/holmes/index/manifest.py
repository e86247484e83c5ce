"""The one file that says what an index holds. Replacing it is the commit of every change.

It carries a checksum of its own, so damage is told from a format this version does not know.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from holmes.errors import HolmesError
from holmes.files import write_json
from holmes.media.features import LEAST_RATE, MOST_RATE

FORMAT = "holmes-index"
VERSION = 2
FILE_NAME = "manifest.json"
LARGEST_MANIFEST = 256 * 2**20  # bytes; a million removed videos fit many times
LARGEST_COUNT = 2**53  # whole numbers up to here are the same to every reader of JSON
LARGEST_SIDE = 2**20  # of a video's embeddings, rows or columns; real ones have hundreds
TEXTS = ("kind", "name", "digest", "visual", "text", "text_digest")  # what is written about a model


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
    extraction: dict[str, Any]  # how videos became features: backbone, rate; empty if made elsewhere
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
        quoted = shlex.quote(str(folder))
        raise HolmesError(
            f"{folder} is an index of version {str(body.get('version'))[:20]}; this Holmes reads {VERSION}. "
            f"Build it again, what was extracted is kept: rm -r {quoted}/{{{FILE_NAME},segments}} && "
            f"holmes index build {quoted} VIDEOS…"
        )
    if body.pop("checksum", None) != _checksum(body):
        raise damaged(folder, f"{path} is damaged (its checksum does not match)")
    try:
        return _parse(body)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise damaged(folder, f"{path} is damaged ({type(error).__name__}: {str(error)[:80]})") from None


def damaged(index: Path, fault: str) -> HolmesError:
    """The one line about an index whose files are not as they were written."""
    return HolmesError(f"{fault}. Remove {index} and build it again, or restore it from a copy.")


def _read(folder: Path, path: Path) -> Any:
    try:
        if path.stat().st_size > LARGEST_MANIFEST:
            raise damaged(folder, f"{path} is damaged (larger than any manifest that Holmes writes)")
        return json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise HolmesError(f"{folder} is no index; make one: holmes index build {folder} VIDEOS…") from None
    except (ValueError, RecursionError) as error:
        raise damaged(folder, f"{path} is damaged (not valid JSON: {type(error).__name__})") from None


def _checksum(body: dict[str, Any]) -> str:
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _parse(body: dict[str, Any]) -> Manifest:
    segments = tuple(_parse_segment(entry) for entry in body["segments"])
    width, clips = _count(body["width"], 1, LARGEST_SIDE), _count(body["clips"], 1, LARGEST_SIDE)
    model, extraction, generation = body["model"], body["extraction"], _count(body["generation"])
    if not isinstance(model, dict) or not isinstance(extraction, dict):
        raise ValueError("model and extraction must be objects")
    _check_model(model)
    if extraction:
        _check_extraction(extraction)
    return Manifest(model, extraction, width, clips, generation, segments)


def _check_model(model: dict[str, Any]) -> None:
    for what in TEXTS:
        if not isinstance(model.get(what, ""), str):
            raise ValueError(f"the model's {what} must be text")


def _check_extraction(extraction: dict[str, Any]) -> None:
    backbone, rate = extraction["backbone"], extraction["rate"]
    if not isinstance(backbone["name"], str) or not isinstance(backbone["digest"], str):
        raise ValueError("the encoder's name and digest must be text")
    if not isinstance(rate, int | float) or not LEAST_RATE <= rate <= MOST_RATE:
        raise ValueError(f"rate {str(rate)[:20]!r}")


def _parse_segment(entry: dict[str, Any]) -> SegmentEntry:
    name, videos = entry["name"], _count(entry["videos"])
    if not re.fullmatch(r"[0-9]{8,40}", name):  # never a path out of the folder
        raise ValueError(f"segment name {name!r}")
    files = {file: FileEntry(_count(at["bytes"]), str(at["sha256"])) for file, at in entry["files"].items()}
    removed = tuple(_count(position) for position in entry["removed"])
    if any(position >= videos for position in removed) or len(set(removed)) < len(removed):
        raise ValueError(f"removed videos of segment {name}")
    return SegmentEntry(name, videos, files, removed)


def _count(value: Any, least: int = 0, most: int = LARGEST_COUNT) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"{str(value)[:20]!r} is not a count")
    return value
