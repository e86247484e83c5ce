"""A folder of extracted features: one file a video, each whole or absent, and a manifest of what made them.

    FEATURES/features.json                  format, version, the encoder, the sampling rate
    FEATURES/videos/NAME-HASH.safetensors   rows, times, thumbnails of one video

Used by the index and by training: `for video in FeatureFolder.open(path): video.rows, video.times, …`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from holmes.errors import HolmesError, unknown
from holmes.files import atomic_file, read_json, write_json
from holmes.media.backbones.base import Identity, Matrix

FORMAT, VERSION = "holmes-features", 2
LEAST_RATE, MOST_RATE = 0.01, 100.0  # samples a second
MANIFEST, VIDEOS, SUFFIX = "features.json", "videos", ".safetensors"


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


@dataclass(frozen=True)
class Fingerprint:
    """When a source file's size or time of change differs, it is extracted anew."""

    size: int
    changed: int  # nanoseconds

    @classmethod
    def of(cls, path: Path) -> Fingerprint:
        info = path.stat()
        return cls(info.st_size, info.st_mtime_ns)


def check_rate(rate: float) -> None:
    """What extraction can sample; `LEAST_RATE` and `MOST_RATE` in words."""
    if not LEAST_RATE <= rate <= MOST_RATE:
        raise HolmesError(f"rate {rate:g} is not between .01 and 100 samples a second.")


class FeatureFolder:
    """Extracted features on disk. Iterating reads one video at a time, in order of id."""

    def __init__(self, path: Path, backbone: Identity, rate: float) -> None:
        self.path = path
        self.backbone = backbone  # the encoder that made the rows
        self.rate = rate  # samples a second

    @classmethod
    def open(cls, path: Path | str) -> FeatureFolder:
        """An existing folder; refuses what is not one, or was written by another version."""
        path = Path(path)
        if not (path / MANIFEST).exists():
            raise HolmesError(f"{path} holds no features: try 'holmes extract VIDEOS --out {path}'.")
        manifest = read_json(path / MANIFEST)
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            raise HolmesError(
                f"{path / MANIFEST} is not the manifest of a feature folder; 'holmes extract' makes one."
            )
        if manifest.get("version") != VERSION:
            version = manifest.get("version")
            raise HolmesError(
                f"{path} has features of version {version}; this Holmes reads {VERSION}; "
                "delete it, or extract into another folder."
            )
        try:
            return cls(path, Identity.from_json(manifest.get("backbone")), float(manifest["rate"]))
        except (KeyError, TypeError, ValueError):
            raise HolmesError(f"{path / MANIFEST} is damaged; extract again into another folder.") from None

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
                    f"{path} was sampled {folder.rate:g} times a second, not {rate:g}; use another folder."
                )
            return folder
        if path.exists() and not _is_vacant(path):
            raise HolmesError(f"{path} exists and is not a feature folder; choose another place.")
        (path / VIDEOS).mkdir(parents=True, exist_ok=True)
        manifest = {"format": FORMAT, "version": VERSION, "backbone": asdict(backbone), "rate": rate}
        write_json(path / MANIFEST, manifest)
        return cls(path, backbone, rate)

    def ids(self) -> list[str]:
        return sorted(file.name.removesuffix(SUFFIX) for file in (self.path / VIDEOS).glob(f"[!.]*{SUFFIX}"))

    def __len__(self) -> int:
        return len(self.ids())

    def __iter__(self) -> Iterator[VideoFeatures]:
        return (self[id] for id in self.ids())

    def __contains__(self, id: str) -> bool:
        return self.file(id).exists()

    def __getitem__(self, id: str) -> VideoFeatures:
        if id not in self:
            raise unknown(f"video in {self.path}", id, self.ids()[:20])
        tensors, record = _read(self.file(id))
        try:
            if record.pop("sha256") != _digest(tensors, record):
                raise _damaged(self.file(id))
            ends = np.cumsum(tensors["thumbnail_sizes"])
            jpegs = np.split(tensors["thumbnails"], ends[:-1]) if len(ends) else []
            return VideoFeatures(
                id=id,
                source=Path(record["source"]),
                duration=float(record["duration"]),
                rows=tensors["rows"].astype(np.float32),
                times=tensors["times"],
                thumbnails=tuple(
                    Thumbnail(float(time), jpeg.tobytes())
                    for time, jpeg in zip(tensors["thumbnail_times"], jpegs, strict=True)
                ),
                start=float(record["start"]),
                note=str(record["note"]),
            )
        except (KeyError, TypeError, ValueError):
            raise _damaged(self.file(id)) from None

    def file(self, id: str) -> Path:
        return self.path / VIDEOS / f"{id}{SUFFIX}"

    def is_current(self, source: Path) -> bool:
        """Whether this video is here already, whole, and from the file as it now is."""
        file = self.file(video_id(source))
        try:
            if not file.exists():
                return False
            tensors, record = _read(file)
            unchanged: bool = record["fingerprint"] == asdict(Fingerprint.of(source))
            return unchanged and record.pop("sha256") == _digest(tensors, record)
        except (HolmesError, OSError, KeyError):
            return False

    def write(self, video: VideoFeatures, fingerprint: Fingerprint) -> None:
        """Keep one video; its file appears only when it is complete."""
        from safetensors.numpy import save

        rows = video.rows.astype(np.float16)
        if not np.isfinite(rows).all():
            raise HolmesError("the encoder gave numbers that are not finite")
        tensors: dict[str, np.ndarray] = {
            "rows": rows,
            "times": np.asarray(video.times, np.float32),
            "thumbnail_times": np.array([t.time for t in video.thumbnails], np.float32),
            "thumbnail_sizes": np.array([len(t.jpeg) for t in video.thumbnails], np.int64),
            "thumbnails": np.frombuffer(b"".join(t.jpeg for t in video.thumbnails), np.uint8),
        }
        record: dict[str, Any] = {
            "source": str(video.source),
            "start": video.start,
            "duration": video.duration,
            "note": video.note,
            "fingerprint": asdict(fingerprint),
        }
        record["sha256"] = _digest(tensors, record)
        with atomic_file(self.file(video.id)) as file:
            # ASCII JSON: file names that are no valid text (lone surrogates) survive as escapes.
            file.write(save(tensors, {"video": json.dumps(record)}))


def video_id(source: Path) -> str:
    """The id of a video file: readable, safe as a file name, different for different paths."""
    path = os.path.abspath(source)
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", Path(path).stem)[:60].lstrip(".") or "video"
    return f"{plain}-{hashlib.sha256(os.fsencode(path)).hexdigest()[:10]}"


def _is_vacant(path: Path) -> bool:
    """Whether a feature folder may be made here: nothing is, or what a kill left before the manifest was."""
    if not path.is_dir():
        return False
    begun = path / VIDEOS
    left = [entry for entry in path.iterdir() if not entry.match(f".{MANIFEST}.*.part")]
    return not left or (left == [begun] and begun.is_dir() and not any(begun.iterdir()))


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a file holds, and the few words about its video."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            record = json.loads(file.metadata()["video"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, RecursionError):
        raise _damaged(path) from None
    if not isinstance(record, dict):
        raise _damaged(path)
    return tensors, record


def _digest(tensors: dict[str, Any], record: dict[str, Any]) -> str:
    """Of all that is kept: what changed on the disk must not pass for a video's."""
    kinds = {name: (tensor.dtype.str, tensor.shape) for name, tensor in tensors.items()}
    digest = hashlib.sha256(json.dumps([record, kinds], sort_keys=True).encode())
    for name in sorted(tensors):
        digest.update(np.ascontiguousarray(tensors[name]).data)
    return digest.hexdigest()


def _damaged(path: Path) -> HolmesError:
    return HolmesError(f"{path} is damaged; extract its video again, or delete the file.")
