"""States of an index that stay whole while it changes: what a sealed manifest names is not swept away.

    INDEX/sealed-DIGEST.json    a copy of the manifest as it was, named by the SHA-256 of its bytes

A shard of a larger index is read elsewhere, by its digest, long after its writer has moved on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from pathlib import Path

from holmes.base.files import atomic_file, read_file
from holmes.errors import HolmesError
from holmes.index.storage.manifest import FILE_NAME, Manifest, read_manifest

DIGITS = 16  # of the digest, in the name of the file


def sealed_name(digest: str) -> str:
    return f"sealed-{digest[:DIGITS]}.json"


def seal(index: Path) -> str:
    """Keep the state that the manifest names now; return its digest."""
    read_manifest(index)  # an error where there is no index
    content = read_file(index / FILE_NAME)
    digest = hashlib.sha256(content).hexdigest()
    if not (index / sealed_name(digest)).exists():
        with atomic_file(index / sealed_name(digest)) as file:
            file.write(content)
    return digest


def read_sealed(index: Path, digest: str) -> Manifest:
    path = index / sealed_name(digest)
    if not path.exists():
        raise FileNotFoundError(2, "it is not sealed in this state", str(path))
    if hashlib.sha256(read_file(path)).hexdigest() != digest:
        raise HolmesError(f"{path} is damaged (its checksum does not match).")
    return read_manifest(index, path.name)


def unseal(index: Path, but: Collection[str]) -> None:
    """Let go of all states but those with these digests; the next writer sweeps up what only they named."""
    kept = {sealed_name(digest) for digest in but}
    for path in index.glob("sealed-*.json"):
        if path.name not in kept:
            path.unlink(missing_ok=True)


def sealed_segments(index: Path) -> set[str]:
    """The segments that sealed states name; a damaged one names none."""
    names: set[str] = set()
    for path in index.glob("sealed-*.json"):
        try:
            names |= {entry.name for entry in read_manifest(index, path.name).segments}
        except HolmesError:
            continue
    return names
