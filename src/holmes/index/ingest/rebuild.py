"""Rebuild an index with another model, while the old one keeps answering."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Unpack

from holmes.errors import HolmesError
from holmes.heard.passages import HEARD
from holmes.index.embedders.protocol import Embedder
from holmes.index.ingest.builder import BuildSummary, IngestOptions, build_index
from holmes.index.storage.lock import lock_index
from holmes.index.storage.manifest import FILE_NAME, read_manifest
from holmes.index.storage.store import IndexStore
from holmes.index.storage.writer import IndexWriter
from holmes.media.extraction import Failure

NEW, BEFORE = ".rebuilding", ".before"  # what the names of both end with


@dataclass(frozen=True)
class RebuildSummary:
    """What became of the videos, and where both indexes are."""

    build: BuildSummary
    index: Path
    before: Path | None  # the old index; None if the new one has not taken its place

    @property
    def new(self) -> Path:
        """Where the new index is."""
        return self.index if self.before is not None else self.index.with_name(self.index.name + NEW)


def rebuild_index(
    path: Path | str,
    embedder: Embedder,
    *,
    rate: float | None = None,
    without_missing: bool = False,
    **how: Unpack[IngestOptions],
) -> RebuildSummary:
    """Encode all videos of an index with another model; the new index takes its place when it is complete.

    The old one is kept as INDEX.before. Run it again to continue. Videos that cannot be encoded again keep
    the old index in place, unless `without_missing` says to go on without them.
    """
    path = Path(os.path.abspath(path))
    new, before = path.with_name(path.name + NEW), path.with_name(path.name + BEFORE)
    if before.exists():
        raise HolmesError(
            f"{before} is still there from an earlier rebuild; compare both, then remove or rename it."
        )
    store = IndexStore.open(path)
    if store.manifest.model.get("digest") == embedder.record.get("digest"):
        raise HolmesError(f"{path} was already made with '{embedder.record['name']}'; name another model.")
    if (new / FILE_NAME).exists():
        begun = read_manifest(new).model
        if begun.get("digest") != embedder.record.get("digest"):
            raise HolmesError(
                f"{new} was begun with '{begun.get('name')}'; continue with that model, or remove {new}."
            )
    added, names = 0, set[str]()
    while names != (wanted := set(IndexStore.open(path).positions)):  # the old index may grow meanwhile
        names = wanted
        there = sorted(name for name in names if os.path.exists(name))
        if not there:
            raise HolmesError(f"none of the videos of {path} is where it was; nothing can be encoded.")
        build = build_index(new, there, embedder, rate=rate, **how)
        added += build.added
    gone = tuple(Failure(Path(n), "its file is no longer there") for n in sorted(names - set(there)))
    build = replace(build, added=added, failures=(*gone, *build.failures))
    if build.failures and not without_missing:
        return RebuildSummary(build, path, None)
    _carry_words(path, new)
    with lock_index(path):
        _swap(path, new, before)
    return RebuildSummary(build, path, before)


def _carry_words(path: Path, new: Path) -> None:
    """Take along the spoken and written words of the videos: they do not depend on the model."""
    store = IndexStore.open(path)
    if not store.passages:
        return
    if (path / HEARD).is_dir():
        shutil.copytree(path / HEARD, new / HEARD, dirs_exist_ok=True)
    with IndexWriter(new) as writer:
        writer.take_words(store)


def _swap(path: Path, new: Path, before: Path) -> None:
    """Two renames; a reader that opens the index between them is told that there is none, and tries again."""
    os.replace(path, before)
    try:
        os.replace(new, path)
    except OSError:
        os.replace(before, path)
        raise
