"""Snapshots of an index, whose segments are kept while the index changes.

    INDEX/sealed-DIGEST.json    a copy of the manifest, named by the SHA-256 of its bytes

The shards of a larger index are read by digest, long after their writer has published newer states.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from pathlib import Path

from holmes.base.files import atomic_file, read_file
from holmes.errors import HolmesError
from holmes.index.storage.manifest import FILE_NAME, Manifest, read_manifest

DIGITS = 16  # of the digest, in the name of the file
PATTERN = "sealed-*.json"


def snapshot_name(digest: str) -> str:
    return PATTERN.replace("*", digest[:DIGITS])


def take_snapshot(index: Path) -> str:
    """Keep the present state; return its digest."""
    read_manifest(index)  # an error where there is no index
    content = read_file(index / FILE_NAME)
    digest = hashlib.sha256(content).hexdigest()
    if not (index / snapshot_name(digest)).exists():
        with atomic_file(index / snapshot_name(digest)) as file:
            file.write(content)
    return digest


def read_snapshot(index: Path, digest: str) -> Manifest:
    path = index / snapshot_name(digest)
    if not path.exists():
        raise FileNotFoundError(2, "the index has no snapshot of this state", str(path))
    if hashlib.sha256(read_file(path)).hexdigest() != digest:
        raise HolmesError(f"{path} is damaged (its checksum does not match).")
    return read_manifest(index, path.name)


def drop_snapshots(index: Path, but: Collection[str]) -> None:
    """Delete all snapshots but these digests; the next writer deletes the segments that only they named."""
    kept = {snapshot_name(digest) for digest in but}
    for path in index.glob(PATTERN):
        if path.name not in kept:
            path.unlink(missing_ok=True)


def snapshot_segments(index: Path) -> set[str]:
    """The segments that snapshots name; a damaged snapshot names none."""
    names: set[str] = set()
    for path in index.glob(PATTERN):
        try:
            names |= read_manifest(index, path.name).folders.keys()
        except HolmesError:
            continue
    return names
