"""Identify files by content: moved files keep their features, copies are reported."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from holmes.index.storage.store import IndexStore
from holmes.media.feature_folder import FeatureFolder, video_id
from holmes.media.origin import Fingerprint, Origin, content_digest, is_disconnected


@dataclass(frozen=True)
class Moved:
    """A file whose content is known from another path."""

    id: str  # the id of the features made there
    before: Path
    now: Path


@dataclass(frozen=True)
class Duplicate:
    """A file with the same content as one that is in the index, or goes there with it."""

    source: Path
    same_as: Path


@dataclass
class Recognised:
    """What is to be done with some files."""

    new: list[Path] = field(default_factory=list)
    moved: list[Moved] = field(default_factory=list)
    duplicates: list[Duplicate] = field(default_factory=list)


class FeatureCatalogue:
    """What a feature folder remembers of its source files; read from the heads of its files when asked."""

    def __init__(self, features: FeatureFolder) -> None:
        self._features = features

    def is_current(self, source: Path) -> bool:
        """Whether features of the file as it now is are there, by its size and time of change."""
        origin = self._of_source.get(source)
        try:
            return origin is not None and origin.fingerprint == Fingerprint.of(source)
        except OSError:
            return False

    def origin(self, source: Path) -> Origin | None:
        return self._of_source.get(source)

    def with_content(self, size: int, content: str) -> list[tuple[str, Origin]]:
        return [(id, origin) for id, origin in self._by_size.get(size, []) if origin.content == content]

    def may_hold(self, size: int) -> bool:
        return any(origin.content for _, origin in self._by_size.get(size, []))

    @cached_property
    def names(self) -> set[str]:
        return {origin.source.name for origin in self._origins.values()}

    @cached_property
    def _origins(self) -> dict[str, Origin]:
        known = ((id, self._features.origin(id)) for id in self._features.ids())
        return {id: origin for id, origin in known if origin is not None}

    @cached_property
    def _of_source(self) -> dict[Path, Origin]:
        return {origin.source: origin for origin in self._origins.values()}

    @cached_property
    def _by_size(self) -> dict[int, list[tuple[str, Origin]]]:
        by_size: dict[int, list[tuple[str, Origin]]] = {}
        for id, origin in self._origins.items():
            by_size.setdefault(origin.fingerprint.size, []).append((id, origin))
        return by_size


def recognise(sources: Iterable[Path], catalogue: FeatureCatalogue, store: IndexStore) -> Recognised:
    """Sort files that the index does not have as they are. Only those whose size is known are read."""
    found, sizes = Recognised(), {source: size for source in sources if (size := _size(source)) is not None}
    found.new += [source for source in sources if source not in sizes]  # extraction will say what is wrong
    twins = Counter(sizes.values())
    usual = catalogue.names  # of equal files, prefer one that kept its name
    sizes = dict(sorted(sizes.items(), key=lambda one: one[0].name not in usual))
    first: dict[tuple[int, str], Path] = {}
    taken: set[str] = set()
    for source, size in sizes.items():
        if twins[size] == 1 and not catalogue.may_hold(size):
            found.new.append(source)
            continue
        try:
            content = content_digest(source)
        except OSError:
            found.new.append(source)
            continue
        twin = first.setdefault((size, content), source)
        known = [(id, origin) for id, origin in catalogue.with_content(size, content) if id not in taken]
        # A file that was only touched stays where it is; of others, the one that the index has moved.
        known.sort(key=lambda one: (one[1].source != source, str(one[1].source) not in store))
        there = [origin.source for _, origin in known if origin.source != source and _stands(origin, store)]
        if twin != source or (there and known[0][1].source != source):
            found.duplicates.append(Duplicate(source, there[0] if there else twin))
        elif known:
            id, origin = known[0]
            taken.add(id)
            found.moved.append(Moved(id, origin.source, source))
        else:
            found.new.append(source)
    return found


def old_name(source: Path, catalogue: FeatureCatalogue, store: IndexStore) -> str | None:
    """The name under which the index still has a file that is now `source`: a move was cut short."""
    origin = catalogue.origin(source)
    if origin is None or not origin.content or str(source) in store:
        return None
    for _, other in catalogue.with_content(origin.fingerprint.size, origin.content):
        gone = not os.path.exists(other.source) and not is_disconnected(other)
        if other.source != source and str(other.source) in store and gone:
            return str(other.source)
    return None


def in_order(moved: Iterable[Moved]) -> tuple[list[Moved], list[Path]]:
    """Moves in an order in which none overwrites what a later one needs; and files that swapped names."""
    waiting, ordered = list(moved), list[Moved]()
    while waiting:
        needed = Counter(move.id for move in waiting)
        free = [m for m in waiting if not needed[video_id(m.now)] or video_id(m.now) == m.id]
        if not free:
            break
        ordered += free
        waiting = [move for move in waiting if move not in free]
    return ordered, [move.now for move in waiting]


def _stands(origin: Origin, store: IndexStore) -> bool:
    """Whether the index has this file and it is still there unchanged, or only its disk is away."""
    if str(origin.source) not in store:
        return False
    try:
        return Fingerprint.of(origin.source) == origin.fingerprint
    except OSError:
        return is_disconnected(origin)


def _size(source: Path) -> int | None:
    try:
        return os.stat(source).st_size if source.is_file() else None
    except OSError:
        return None
