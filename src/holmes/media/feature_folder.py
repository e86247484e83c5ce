"""A folder of extracted features: one file per video, and a manifest of how they were made.

    FEATURES/features.json                  format, version, the encoder, the sampling rate
    FEATURES/videos/NAME-HASH.safetensors   rows, times, thumbnails of one video

Used by the index and by training: `for video in FeatureFolder.open(path): video.rows, video.times, …`.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt

from holmes.base.feature_origin import LEAST_RATE, MOST_RATE
from holmes.base.manifests import FileFormat
from holmes.base.validation import Within
from holmes.errors import HolmesError, unknown
from holmes.media.backbones.base import Identity, Matrix
from holmes.media.origin import Fingerprint, Origin, mount_point
from holmes.media.tensor_files import Arrays, damaged, read_record, read_tensors, write_tensors

FORMAT = FileFormat(
    "holmes-features", 3, "a folder of features", "extract into another folder", without_checksum=(2,)
)
MANIFEST, VIDEOS, SUFFIX = "features.json", "videos", ".safetensors"
HEADER = "video"  # the record in the header of a video's file


@dataclass(frozen=True)
class FeatureManifest:
    """What `features.json` says."""

    backbone: Identity
    rate: Annotated[float, Within(LEAST_RATE, MOST_RATE)]


@dataclass(frozen=True)
class VideoRecord:
    """What a video's file says beside its tensors."""

    source: str
    start: float
    duration: float
    note: str
    fingerprint: Fingerprint
    content: str = ""
    mount: str = ""

    @property
    def origin(self) -> Origin:
        return Origin(Path(self.source), self.fingerprint, self.content, self.mount)


@dataclass(frozen=True)
class Thumbnail:
    time: float  # seconds
    jpeg: bytes  # at most 10 kB


@dataclass(frozen=True)
class VideoFeatures:
    """What extraction keeps of a video: `rows` of features, each with the time in seconds it stands for."""

    id: str  # unique in its folder: the file's name made plain, and a hash of its path
    source: Path  # absolute path of the video file
    duration: float  # seconds
    rows: Matrix  # N × width, float32 (kept as float16)
    times: npt.NDArray[np.float32]  # N seconds, rising: the middle of what a row describes
    thumbnails: tuple[Thumbnail, ...] = ()
    start: float = 0.0  # seconds until the first picture: sound may come before it
    note: str = ""  # a fault of the file that did not stop its extraction


def check_rate(rate: float) -> None:
    """Refuse a rate that extraction cannot sample at; the message spells `LEAST_RATE` and `MOST_RATE`."""
    if not LEAST_RATE <= rate <= MOST_RATE:
        raise HolmesError(f"rate {rate:g} is not between .01 and 100 samples per second.")


class FolderGoneError(HolmesError):
    """The folder that is written to is no longer there: nothing more can be kept."""


class FeatureFolder:
    """Extracted features on disk. Iterating reads one video at a time, in order of id."""

    def __init__(self, path: Path, backbone: Identity, rate: float) -> None:
        self.path = path
        self.backbone = backbone  # the encoder that made the rows
        self.rate = rate  # samples per second

    @classmethod
    def open(cls, path: Path | str) -> FeatureFolder:
        """An existing folder; refuses what is not one, or was written by another version."""
        path = Path(path)
        if not (path / MANIFEST).exists():
            raise HolmesError(f"{path} contains no features: try 'holmes extract VIDEOS --out {path}'.")
        manifest = FORMAT.read(path / MANIFEST, FeatureManifest)
        return cls(path, manifest.backbone, manifest.rate)

    @classmethod
    def create(cls, path: Path | str, backbone: Identity, rate: float) -> FeatureFolder:
        """The folder at `path`, made if absent; refuses one made by another encoder or at another rate."""
        path = Path(path)
        if (path / MANIFEST).exists():
            folder = cls.open(path)
            if folder.backbone.digest != backbone.digest:
                raise HolmesError(
                    f"{path} was made by '{folder.backbone.name}' (digest {folder.backbone.digest[:12]}), "
                    f"not by '{backbone.name}' ({backbone.digest[:12]}); use that encoder or another folder."
                )
            if folder.rate != rate:
                raise HolmesError(
                    f"{path} was sampled {folder.rate:g} times per second, not {rate:g}; use another folder."
                )
            return folder
        if path.exists() and not _is_vacant(path):
            raise HolmesError(f"{path} exists and is not a feature folder; choose another folder.")
        (path / VIDEOS).mkdir(parents=True, exist_ok=True)
        FORMAT.write(path / MANIFEST, asdict(FeatureManifest(backbone, rate)))
        return cls(path, backbone, rate)

    def check_there(self) -> None:
        """Refuse to write into a folder that was deleted: it would come back without its manifest."""
        if not (self.path / MANIFEST).exists():
            raise FolderGoneError(f"{self.path} has vanished; run the same command again to start over.")

    def ids(self) -> list[str]:
        try:
            with os.scandir(self.videos) as entries:
                names = [entry.name for entry in entries]
        except FileNotFoundError:
            return []
        return sorted(n.removesuffix(SUFFIX) for n in names if n.endswith(SUFFIX) and not n.startswith("."))

    def __len__(self) -> int:
        return len(self.ids())

    def __iter__(self) -> Iterator[VideoFeatures]:
        return (self[id] for id in self.ids())

    def __contains__(self, id: str) -> bool:
        return self.file(id).exists()

    def __getitem__(self, id: str) -> VideoFeatures:
        if id not in self:
            raise unknown(f"video in {self.path}", id, self.ids()[:20])
        record, tensors = read_tensors(self.file(id), HEADER, VideoRecord)
        try:
            ends = np.cumsum(tensors["thumbnail_sizes"])
            jpegs = np.split(tensors["thumbnails"], ends[:-1]) if len(ends) else []
            return VideoFeatures(
                id=id,
                source=Path(record.source),
                duration=record.duration,
                rows=tensors["rows"].astype(np.float32),
                times=tensors["times"],
                thumbnails=tuple(
                    Thumbnail(float(time), jpeg.tobytes())
                    for time, jpeg in zip(tensors["thumbnail_times"], jpegs, strict=True)
                ),
                start=record.start,
                note=record.note,
            )
        except (KeyError, TypeError, ValueError, OverflowError):
            raise damaged(self.file(id)) from None

    @property
    def videos(self) -> Path:
        return self.path / VIDEOS

    def file(self, id: str) -> Path:
        return self.videos / f"{id}{SUFFIX}"

    def is_current(self, source: Path) -> bool:
        """Whether this video is here already, whole, and from the file as it now is."""
        try:
            if not self._adopt(source):
                return False
            record, _ = read_tensors(self.file(video_id(source)), HEADER, VideoRecord)
            return record.fingerprint == Fingerprint.of(source)
        except (HolmesError, OSError):
            return False

    def _adopt(self, source: Path) -> bool:
        """Whether there is a file for this source; one under the shorter id of old versions is renamed."""
        file, earlier = self.file(video_id(source)), self.file(video_id(source, digits=10))
        if not file.exists() and earlier.exists() and self.origin(earlier.name.removesuffix(SUFFIX)):
            os.replace(earlier, file)
        return file.exists()

    def origin(self, id: str) -> Origin | None:
        """What is remembered of a video file, from the header of its features; None where that is damaged."""
        try:
            return read_record(self.file(id), HEADER, VideoRecord).origin
        except HolmesError:
            return None

    def move(self, id: str, to: Path) -> str:
        """Keep the features of `id` for the same content under another path too; return the new id."""
        origin, video = self.origin(id), self[id]
        if origin is None:
            raise damaged(self.file(id))
        moved = replace(origin, source=to, fingerprint=Fingerprint.of(to), mount=mount_point(to))
        self.write(replace(video, id=video_id(to), source=to), moved)
        return video_id(to)

    def write(self, video: VideoFeatures, origin: Origin | Fingerprint) -> None:
        """Keep one video; its file appears only when it is complete."""
        self.check_there()
        if isinstance(origin, Fingerprint):
            origin = Origin(video.source, origin)

        rows = video.rows.astype(np.float16)
        if not np.isfinite(rows).all():
            raise HolmesError("the encoder gave numbers that are not finite")
        tensors: Arrays = {
            "rows": rows,
            "times": np.asarray(video.times, np.float32),
            "thumbnail_times": np.array([t.time for t in video.thumbnails], np.float32),
            "thumbnail_sizes": np.array([len(t.jpeg) for t in video.thumbnails], np.int64),
            "thumbnails": np.frombuffer(b"".join(t.jpeg for t in video.thumbnails), np.uint8),
        }
        record = VideoRecord(
            source=str(video.source),
            start=video.start,
            duration=video.duration,
            note=video.note,
            fingerprint=origin.fingerprint,
            content=origin.content,
            mount=origin.mount,
        )
        write_tensors(self.file(video.id), HEADER, record, tensors)


def video_id(source: Path, digits: int = 32) -> str:
    """The id of a video file: readable, safe as a file name, different for different paths (128 bits)."""
    path = os.path.abspath(source)
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", Path(path).stem)[:60].lstrip(".") or "video"
    return f"{plain}-{hashlib.sha256(os.fsencode(path)).hexdigest()[:digits]}"


def _is_vacant(path: Path) -> bool:
    """Whether a feature folder may be made here: there is nothing, or only what a killed process left."""
    if not path.is_dir():
        return False
    begun = path / VIDEOS
    left = [entry for entry in path.iterdir() if not entry.match(f".{MANIFEST}.*.part")]
    return not left or (left == [begun] and begun.is_dir() and not any(begun.iterdir()))
