"""Check an index for damage, and compact it."""

from __future__ import annotations

import os
from pathlib import Path

from holmes.errors import HolmesError
from holmes.heard.passages import HEARD
from holmes.index.storage.manifest import read_manifest
from holmes.index.storage.store import FEATURES, IndexStore
from holmes.index.storage.writer import IndexWriter
from holmes.media.feature_folder import MANIFEST, VIDEOS, FeatureFolder, video_id
from holmes.media.saved_progress import SUFFIX as UNFINISHED


def index_faults(path: Path | str) -> tuple[IndexStore, list[str]]:
    """An index and what is wrong with its files, all of which are read, again if a writer replaces them."""
    path = Path(path)
    while True:
        store = IndexStore.open(path)
        try:
            faults = store.faults()
        except FileNotFoundError as error:
            faults = [f"{error.filename} is missing"]
        if not faults or read_manifest(path) == store.manifest:
            return store, faults


def feature_faults(path: Path | str) -> list[str]:
    """What is wrong with the features that an index keeps; reads all of them."""
    path, faults = Path(path), []
    if not _has_features(path):
        return []
    features = FeatureFolder.open(path / FEATURES)
    for id in features.ids():
        try:
            features[id]
        except HolmesError as error:
            if id in features:  # a compaction may delete it meanwhile
                faults.append(str(error))
    return faults


def compact_index(path: Path | str) -> int:
    """Free the space of removed videos, embeddings and extracted features; return how many bytes."""
    path = Path(path)
    before = _size(path)
    with IndexWriter(path) as writer:
        features = FeatureFolder.open(path / FEATURES) if _has_features(path) else None
        writer.compact()
        sweep_parts(path / FEATURES)
        if is_linked(path / FEATURES):
            features = None
        kept = {video_id(Path(name), digits) for name in writer.store.positions for digits in (32, 10)}
        if features is not None:
            _sweep_unfinished(features)
            for id in set(features.ids()) - kept:
                features.file(id).unlink(missing_ok=True)
        if not (path / HEARD).is_symlink():
            for file in (path / HEARD).glob("*.json"):
                if file.stem not in kept:
                    file.unlink(missing_ok=True)
    return max(0, before - _size(path))


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def sweep_parts(features: Path) -> None:
    """Delete the remains of a killed extraction. The caller must hold the index's lock."""
    if not is_linked(features):
        for part in features.rglob(".*.part"):
            part.unlink(missing_ok=True)


def is_linked(features: Path) -> bool:
    """Whether features are reached through a link: then nothing of them is deleted, and none is copied."""
    return features.is_symlink() or (features / VIDEOS).is_symlink()


def _sweep_unfinished(features: FeatureFolder) -> None:
    for file in features.videos.glob(f".*{UNFINISHED}"):
        file.unlink(missing_ok=True)


def _has_features(index: Path) -> bool:
    try:
        os.stat(index / FEATURES / MANIFEST)  # a folder that may not be read is not a missing one
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
