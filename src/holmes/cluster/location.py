"""Read shards from a folder or object storage (`s3://bucket/films`), and keep copies on a node.

    CACHE/NAME-HASH/segments/NUMBER/FILE    a file of the shard NAME; HASH stands for its location

Files are read whole, or copied once with their digest checked. They are never changed. Without a cache, a
shard in a folder is opened where it is. Ray stores no files.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from holmes.base.files import atomic_file, inside, open_file, sha256_file
from holmes.base.manifests import FileEntry
from holmes.errors import HolmesError, in_one_line, missing_packages
from holmes.index.storage.manifest import FILE_NAME as INDEX_FILE
from holmes.index.storage.manifest import Manifest, read_manifest
from holmes.index.storage.snapshots import PATTERN, read_snapshot, snapshot_name, snapshot_segments
from holmes.index.storage.store import SEGMENTS, IndexStore

PIECE = 1 << 22  # bytes read at once
LARGEST = 64 << 20  # bytes of a file that describes others


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


def open_snapshot(location: Location, name: str, digest: str, cache: Path | None) -> IndexStore:
    """A shard in the snapshot with this digest."""
    if cache is None:
        if location.folder is None:
            raise HolmesError(f"{location} is not a folder of this machine; name one to copy its shards to.")
        folder = location.folder / name
    else:
        folder = copy_snapshot(location, name, digest, cache)
    try:
        return IndexStore(folder, read_snapshot(folder, digest))
    except FileNotFoundError as error:
        raise _missing(location / name, os.path.relpath(str(error.filename), folder)) from None


def copy_snapshot(location: Location, name: str, digest: str, cache: Path) -> Path:
    """The folder in the cache that has the snapshot; files that are missing there are copied."""
    folder, at = cached_folder(location, name, cache), location / name
    manifest = _manifest(at, folder, digest)
    for segment, files in manifest.folders.items():
        for file, expected in files.items():
            part = f"{SEGMENTS}/{segment}/{file}"
            target = inside(folder, part)
            if _is_whole(target, expected.sha256):
                continue
            try:
                at.copy(part, target, expected)
            except FileNotFoundError:
                raise _missing(at, part) from None
            except OSError as error:
                reason = error.strerror or error
                raise HolmesError(f"{name} of {location} cannot be copied to {cache}: {reason}.") from None
    return folder


def cached_folder(location: Location, name: str, cache: Path) -> Path:
    """The hash of the location tells shards of the same name at two locations apart."""
    where = str(location.folder.resolve()) if location.folder is not None else location.url
    digest = hashlib.sha256(where.encode(errors="surrogateescape")).hexdigest()
    return cache / f"{name}-{digest[:12]}"


def delete_others(folder: Path, but: Collection[str]) -> None:
    """Delete what was copied for other snapshots; a process that has it open can go on reading."""
    for path in folder.glob(PATTERN):
        if path.name not in {snapshot_name(digest) for digest in but}:
            path.unlink(missing_ok=True)
    named = snapshot_segments(folder)
    with suppress(FileNotFoundError):
        for segment in os.listdir(folder / SEGMENTS):
            if segment not in named:
                shutil.rmtree(folder / SEGMENTS / segment, ignore_errors=True)


def _manifest(at: Location, folder: Path, digest: str) -> Manifest:
    file_name = snapshot_name(digest)
    try:
        return read_snapshot(folder, digest)
    except (FileNotFoundError, HolmesError):  # not here yet, or damaged here
        pass
    try:
        content = at.read(file_name, LARGEST)
    except FileNotFoundError:
        raise _missing(at, file_name) from None
    if hashlib.sha256(content).hexdigest() != digest:
        raise HolmesError(
            f"{at}/{file_name} is damaged (its checksum does not match); split the index again."
        )
    with atomic_file(folder / file_name) as file:
        file.write(content)
    return read_manifest(folder, file_name)


def _is_whole(path: Path, digest: str) -> bool:
    """Whether a file is here as it was written. Reading it also brings it into memory for the search."""
    try:
        return sha256_file(path) == digest
    except (OSError, HolmesError):
        return False


def _missing(at: Location, file: str) -> HolmesError:
    """The error about a shard that has not the snapshot that shards.json names."""
    if not at.exists(INDEX_FILE):
        return HolmesError(f"the shard {at} is missing; restore it, or split the index again.")
    return HolmesError(
        f"{at} does not match shards.json ({file} is missing). Restore it, or publish its contents with "
        "'holmes index seal'."
    )
