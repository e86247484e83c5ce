"""Where shards are: a folder, or object storage through fsspec (`s3://bucket/films`, `memory://films`).

Files are read whole, or copied with their digest checked. They are never changed.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from holmes.base.files import atomic_file, inside, open_file
from holmes.base.manifests import FileEntry
from holmes.errors import HolmesError, in_one_line, missing_packages

PIECE = 1 << 22  # bytes read at once


class Location:
    """A folder by its path or URL."""

    def __init__(self, url: str | Path) -> None:
        text = os.fspath(url)
        if isinstance(url, Path):  # a path has one slash where the URL has two
            text = re.sub(r"^([a-z][a-z0-9]+):/(?!/)", r"\1://", text)
        self.folder = None if "://" in text else Path(text)
        self.url = text if self.folder is None else str(Path(text))
        self._system: Any = None
        if self.folder is None:
            self._system, self._root = _system_of(self.url)

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> Location:
        return Location(f"{self.url.rstrip('/')}/{name}")

    def exists(self, name: str) -> bool:
        if self.folder is not None:
            return (self.folder / name).exists()
        with _one_line(f"{self.url}/{name}"):
            return bool(self._system.exists(f"{self._root}/{name}"))

    def read(self, name: str, most: int) -> bytes:
        """All of a file of at most this many bytes; FileNotFoundError where there is none."""
        with self._open(name) as file:
            content = file.read(most + 1)
        if len(content) > most:
            raise HolmesError(f"{self.url}/{name} is larger than {most >> 20} MiB, the most it may have.")
        return content

    def copy(self, name: str, to: Path, entry: FileEntry) -> None:
        """Copy a file to the disk; it appears there only if its bytes are those of `entry`."""
        digest, size = hashlib.sha256(), 0
        with self._open(name) as source, atomic_file(to) as target:
            while piece := source.read(PIECE):
                digest.update(piece)
                size += len(piece)
                target.write(piece)
            if size != entry.bytes or digest.hexdigest() != entry.sha256:
                raise HolmesError(
                    f"{self.url}/{name} is damaged (its checksum does not match); restore it from a copy, "
                    "or split the index again."
                )

    def put(self, source: Path, name: str) -> None:
        """Copy a file of this disk to a name here."""
        with _one_line(f"{self.url}/{name}"):
            self._system.makedirs(os.path.dirname(f"{self._root}/{name}"), exist_ok=True)
            self._system.put_file(str(source), f"{self._root}/{name}")

    @contextmanager
    def _open(self, name: str) -> Iterator[BinaryIO]:
        if self.folder is not None:
            with open_file(inside(self.folder, name)) as file:
                yield file
            return
        with _one_line(f"{self.url}/{name}"), self._system.open(f"{self._root}/{name}", "rb") as file:
            yield file


@contextmanager
def _one_line(what: str) -> Iterator[None]:
    """Turn the errors of any kind of storage into one line."""
    try:
        yield
    except (FileNotFoundError, HolmesError):
        raise
    except Exception as error:
        reason = in_one_line(error)
        raise HolmesError(f"{what} cannot be reached ({reason}).") from None


def _system_of(url: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError:
        raise missing_packages(url, "fsspec") from None
    try:
        system, root = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise HolmesError(f"{url} cannot be opened ({reason}).") from None
    return system, str(root).rstrip("/")
