"""The cache of shards on a node's disk: files are copied once, and every byte is verified.

    CACHE/NAME-HASH/segments/NUMBER/FILE    a file of the shard NAME; HASH stands for its location

Without a cache, a shard in a folder is opened where it is.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from holmes.base.files import atomic_file, inside, sha256_file
from holmes.cluster.location import Location
from holmes.cluster.manifest import LARGEST
from holmes.errors import HolmesError
from holmes.index.storage.manifest import FILE_NAME as INDEX_FILE
from holmes.index.storage.manifest import Manifest, read_manifest
from holmes.index.storage.snapshots import PATTERN, read_snapshot, snapshot_name, snapshot_segments
from holmes.index.storage.store import SEGMENTS, IndexStore


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
    return cache / f"{name}-{_hash(location)}"


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


def _hash(location: Location) -> str:
    """A name for a location, so that shards of the same name at two locations get two folders."""
    where = str(location.folder.resolve()) if location.folder is not None else location.url
    return hashlib.sha256(where.encode(errors="surrogateescape")).hexdigest()[:12]
