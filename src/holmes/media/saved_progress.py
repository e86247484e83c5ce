"""Save the progress of extracting a video, so that an interrupted extraction continues.

    FEATURES/videos/.ID.unfinished    rows, times and thumbnails up to a position, and that position

It is used only for the same content, sampled in the same way, and if the reader finds the position again.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from holmes.base.validation import Count, Size
from holmes.errors import HolmesError
from holmes.media.backbones.base import Matrix
from holmes.media.pictures import ThumbnailStrip
from holmes.media.reader import ReadingPosition
from holmes.media.tensor_files import Arrays, read_tensors, write_tensors

SUFFIX, HEADER = ".unfinished", "unfinished"


@dataclass(frozen=True)
class SavedProgress:
    rows: Matrix
    times: np.ndarray
    strip: ThumbnailStrip
    position: ReadingPosition


@dataclass(frozen=True)
class Record:
    """What the file says beside its tensors."""

    made_of: str
    step: Size  # one picture in this many is kept as a thumbnail
    seen: Count
    place: ReadingPosition  # the name in the file


def progress_file(videos: Path, id: str) -> Path:
    return videos / f".{id}{SUFFIX}"


def save_progress(path: Path, made_of: str, so_far: SavedProgress) -> None:
    """`made_of` names all that decides the rows: the content of the file, the encoder, how it is sampled."""
    kept, step, seen = so_far.strip.state()
    tensors: Arrays = {
        "rows": so_far.rows.astype(np.float16),
        "times": np.asarray(so_far.times, np.float32),
        "thumbnail_times": np.array([time for time, _ in kept], np.float64),
        "thumbnail_sizes": np.array([len(jpeg) for _, jpeg in kept], np.int64),
        "thumbnails": np.frombuffer(b"".join(jpeg for _, jpeg in kept), np.uint8),
    }
    write_tensors(path, HEADER, Record(made_of, step, seen, so_far.position), tensors)


def load_progress(path: Path, made_of: str) -> SavedProgress | None:
    """What was saved, if it is intact and made of the same; otherwise None, and extraction begins again."""
    try:
        record, tensors = read_tensors(path, HEADER, Record)
        if record.made_of != made_of:
            return None
        jpegs = np.split(tensors["thumbnails"], np.cumsum(tensors["thumbnail_sizes"])[:-1])
        kept = list(zip(tensors["thumbnail_times"].tolist(), map(np.ndarray.tobytes, jpegs), strict=True))
        strip = ThumbnailStrip.resumed(kept, record.step, record.seen)
        rows = tensors["rows"].astype(np.float32)
        if len(rows) != len(tensors["times"]) or not np.isfinite(rows).all():
            return None
        return SavedProgress(rows, tensors["times"], strip, record.place)
    except (HolmesError, OSError, KeyError, TypeError, ValueError):
        return None
