"""The identity of a video file: enough to notice changes, and to recognise it elsewhere."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

READ_AT_ONCE = 2**22  # bytes


@dataclass(frozen=True)
class Fingerprint:
    """The size and time of change of a source file; if they differ, it is extracted again."""

    size: int
    changed: int  # nanoseconds

    @classmethod
    def of(cls, path: Path) -> Fingerprint:
        info = path.stat()
        return cls(info.st_size, info.st_mtime_ns)


@dataclass(frozen=True)
class Origin:
    """A source file as it was when its features were taken."""

    source: Path
    fingerprint: Fingerprint
    content: str = ""  # SHA-256 of all its bytes; empty where it was extracted before that was kept
    mount: str = ""  # where its file system was mounted; while that is empty, the file is not deleted

    @classmethod
    def of(cls, source: Path, alive: Callable[[], None] = lambda: None) -> Origin:
        """Read all of the file; `alive` is called now and then as a sign of life."""
        return cls(source, Fingerprint.of(source), content_digest(source, alive), mount_point(source))


def content_digest(path: Path, alive: Callable[[], None] = lambda: None) -> str:
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(READ_AT_ONCE):
            digest.update(piece)
            alive()
    return digest.hexdigest()


def mount_point(path: Path) -> str:
    """Where the file system of `path` is mounted."""
    folder = os.path.dirname(os.path.realpath(path))
    while not os.path.ismount(folder) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
    return folder


def is_disconnected(origin: Origin) -> bool:
    """Whether the file cannot be seen because its disk or share is not there, and so may well exist."""
    return bool(origin.mount) and not os.path.ismount(origin.mount)
