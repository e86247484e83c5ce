"""Copy a shard to this machine's disk, once: only what is not here yet, and every byte is verified.

    CACHE/NAME-HASH/segments/NUMBER/FILE    of the shard NAME at one place; segments never change

A shard in a local folder is opened where it is unless a cache is given.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from holmes.base.files import atomic_file, inside, sha256_file
from holmes.cluster.locations import Place
from holmes.cluster.manifest import LARGEST
from holmes.errors import HolmesError
from holmes.index.storage.manifest import FILE_NAME as INDEX_FILE
from holmes.index.storage.manifest import Manifest, read_manifest
from holmes.index.storage.snapshots import read_snapshot, snapshot_name, snapshot_segments
from holmes.index.storage.store import SEGMENTS, IndexStore


def open_shard(place: Place, name: str, digest: str, cache: Path | None) -> IndexStore:
    """The state of a shard that has this digest."""
    if cache is None:
        if place.folder is None:
            raise HolmesError(f"{place} is not a folder of this machine; name one to copy its shards to.")
        folder = place.folder / name
    else:
        folder = copied(place, name, digest, cache)
    try:
        return IndexStore(folder, read_snapshot(folder, digest))
    except FileNotFoundError as error:
        raise _missing(place / name, os.path.relpath(str(error.filename), folder)) from None


def copied(place: Place, name: str, digest: str, cache: Path) -> Path:
    """The folder on this disk that has the shard in this state; what is missing there is copied."""
    folder, at = cached_folder(place, name, cache), place / name
    manifest = _manifest(at, folder, digest)
    for entry in manifest.segments:
        for file, expected in entry.files.items():
            part = f"{SEGMENTS}/{entry.name}/{file}"
            target = inside(folder, part)
            if _is_whole(target, expected.sha256):
                continue
            try:
                at.copy(part, target, expected)
            except FileNotFoundError:
                raise _missing(at, part) from None
            except OSError as error:
                reason = error.strerror or error
                raise HolmesError(f"{name} of {place} cannot be copied to {cache}: {reason}.") from None
    return folder


def cached_folder(place: Place, name: str, cache: Path) -> Path:
    return cache / f"{name}-{_hash(place)}"


def sweep(folder: Path, but: Collection[str]) -> None:
    """Remove what was copied for states other than these; whoever has it open keeps it until then."""
    for path in folder.glob("sealed-*.json"):
        if path.name not in {snapshot_name(digest) for digest in but}:
            path.unlink(missing_ok=True)
    named = snapshot_segments(folder)
    with suppress(FileNotFoundError):
        for segment in os.listdir(folder / SEGMENTS):
            if segment not in named:
                shutil.rmtree(folder / SEGMENTS / segment, ignore_errors=True)


def _manifest(at: Place, folder: Path, digest: str) -> Manifest:
    sealed = snapshot_name(digest)
    try:
        return read_snapshot(folder, digest)
    except (FileNotFoundError, HolmesError):  # not here yet, or damaged here
        pass
    try:
        content = at.read(sealed, LARGEST)
    except FileNotFoundError:
        raise _missing(at, sealed) from None
    if hashlib.sha256(content).hexdigest() != digest:
        raise HolmesError(f"{at}/{sealed} is damaged (its checksum does not match); split the index again.")
    with atomic_file(folder / sealed) as file:
        file.write(content)
    return read_manifest(folder, sealed)


def _is_whole(path: Path, digest: str) -> bool:
    """Whether a file is here as it was written. Reading it also brings it into memory, where it is needed."""
    try:
        return sha256_file(path) == digest
    except (OSError, HolmesError):
        return False


def _missing(at: Place, file: str) -> HolmesError:
    """Why a shard cannot be opened in the state that the sharded index names."""
    if not at.exists(INDEX_FILE):
        return HolmesError(f"the shard {at} is missing; put it back, or split the index again.")
    return HolmesError(
        f"{at} is not the shard that belongs here, or was changed by itself (it has no {file}); put its own "
        "shard back, or take up what it holds now with 'holmes index seal'."
    )


def _hash(place: Place) -> str:
    """A name for a place, so that two places with shards of the same name get two folders."""
    where = str(place.folder.resolve()) if place.folder is not None else place.url
    return hashlib.sha256(where.encode(errors="surrogateescape")).hexdigest()[:12]
