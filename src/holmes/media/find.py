"""Find the video files that a user names, and those in folders."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from holmes.base.files import open_file
from holmes.errors import HolmesError

# Only for searching folders: a file that is named is tried whatever it is called.
# fmt: off
SUFFIXES = (
    ".3g2", ".3gp", ".asf", ".avi", ".divx", ".f4v", ".flv", ".gif", ".m2ts", ".m2v", ".m4v", ".mkv",
    ".mov", ".mp4", ".mpeg", ".mpg", ".mts", ".mxf", ".ogm", ".ogv", ".qt", ".rm", ".rmvb", ".ts", ".vob",
    ".webm", ".wmv", ".y4m",
)
# fmt: on


# How video files begin, each at its first byte or a few after it.
BEGINNINGS = (
    (0, b"\x1aE\xdf\xa3"), (4, b"ftyp"), (4, b"moov"), (4, b"mdat"), (0, b"RIFF"), (0, b"OggS"), (0, b"FLV"),
    (0, b"\x30\x26\xb2\x75"), (0, b"\0\0\x01\xba"), (0, b"\0\0\x01\xb3"), (0, b"GIF8"), (0, b".RMF"),
    (0, b"\x06\x0e\x2b\x34"), (0, b"YUV4MPEG2"),
)  # fmt: skip


def is_video_file(path: str) -> bool:
    """Whether a file is named like a video or begins like one; it need not be one that can be decoded."""
    if path.lower().endswith(SUFFIXES):
        return True
    try:
        with open_file(Path(path)) as file:
            head = file.read(400)
    except (OSError, HolmesError):
        return False
    is_transport_stream = head[:377:188] == b"GGG" or head[4:389:192] == b"GGG"  # packets begin with it
    return is_transport_stream or any(head[at : at + len(mark)] == mark for at, mark in BEGINNINGS)


def find_videos(paths: Iterable[Path | str]) -> list[Path]:
    """Absolute paths, each once: named files in order, a folder's videos sorted, linked folders followed."""
    found: dict[str, None] = {}
    closed: list[OSError] = []
    for path in paths:
        absolute = os.path.abspath(path)
        for file in walk_videos(absolute, closed) if os.path.isdir(absolute) else [absolute]:
            found.setdefault(file)
    if not found and closed:
        raise HolmesError(f"{closed[0].filename} cannot be searched ({closed[0].strerror}).")
    if not found:
        raise HolmesError(
            "no videos were found; name files, or folders with files such as .mp4, .mkv, .mov, .webm."
        )
    for error in closed:  # treated as if it were a video, and named among the failures
        found.setdefault(str(error.filename))
    return [Path(file) for file in found]


def refuse_missing(files: Sequence[Path]) -> None:
    """Refuse names of which none exists, before anything is made of them."""
    if not any(os.path.exists(file) for file in files):
        raise HolmesError(f"{files[0]} does not exist; name video files, or folders that contain some.")


def walk_videos(folder: str, closed: list[OSError]) -> Iterator[str]:
    """The videos in a folder and the folders below it; those that cannot be searched go to `closed`."""
    visited = set()
    for parent, folders, files in os.walk(folder, followlinks=True, onerror=closed.append):
        real = os.path.realpath(parent)
        if real in visited:  # a link back to a folder above
            folders.clear()
            continue
        visited.add(real)
        folders.sort()
        yield from (
            os.path.join(parent, name)
            for name in sorted(files)
            if name.lower().endswith(SUFFIXES) and not name.startswith("._")
        )
