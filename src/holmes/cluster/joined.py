"""Several indexes with the same model, searched as one, with one distribution over all videos.

Each index takes the place of a shard, so the answers are those of one index with all the videos. Indexes of
different models cannot be joined: a score of one model says nothing about a score of another.
All are in this process, without Ray.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holmes.cluster.calls import LocalClient
from holmes.cluster.index import ShardedIndex
from holmes.cluster.location import Location
from holmes.cluster.manifest import Shards, shards_like
from holmes.cluster.shard import Shard
from holmes.cluster.snapshots import Snapshot
from holmes.cluster.write import shard_entry
from holmes.errors import HolmesError
from holmes.index.answer.base import SearchIndex
from holmes.index.answer.searcher import Index, open_single_index
from holmes.index.embedders.loading import COMPARABLE
from holmes.index.storage.store import IndexStore

UNUSED = "0" * 64  # a digest: an open index has one snapshot


class LibraryShard(Shard):
    """An open index that is called like a shard."""

    def __init__(self, index: Index) -> None:
        self.index, self.device = index, index.device

    def _at(self, digest: str) -> Index:
        return self.index


@dataclass(repr=False)
class JoinedIndex(ShardedIndex):
    """Indexes by their names, searched as one; they are changed one by one."""

    indexes: dict[str, Index] = field(default_factory=dict)

    def library_of(self, video: str) -> str | None:
        """The name of the index that holds a video."""
        return self.current.owner.get(video)

    def refresh(self) -> bool:
        with self._refreshing:
            if not any([index.refresh() for index in self.indexes.values()]):
                return False
            self.current = self.current.next(_as_shards(self.indexes, self.current.shards.generation + 1))
            return True

    def close(self) -> None:
        for index in self.indexes.values():
            index.close()

    def _folder(self, command: str) -> Path:
        raise HolmesError(f"{self._where} are several indexes; run 'holmes index {command}' on one of them.")

    @property
    def _where(self) -> str:
        return " + ".join(self.indexes)


def join_indexes(
    paths: Mapping[str, Path | str], *, device: str = "auto", model: str | None = None
) -> JoinedIndex:
    """Open indexes as one; `why_separate` must allow it."""
    indexes = {name: open_single_index(path, device=device, model=model) for name, path in paths.items()}
    if why := why_separate(indexes):
        raise HolmesError(why)
    location = Location(".")
    client = LocalClient(location, opened={name: LibraryShard(index) for name, index in indexes.items()})
    snapshot = Snapshot(_as_shards(indexes), client, model, device=device)
    return JoinedIndex(location, snapshot, indexes)


def why_separate(indexes: Mapping[str, SearchIndex]) -> str | None:
    """Why these indexes cannot be searched as one, in a sentence; None if they can."""
    stores: dict[str, IndexStore] = {}
    for name, index in indexes.items():
        if not isinstance(index, Index):
            return f"{name} is sharded, so it is searched by itself."
        stores[name] = index.store
    (first, one), *others = stores.items()
    for name, store in others:
        if _comparable(store) != _comparable(one):
            return f"{first} and {name} have different models, so each is searched by itself."
    owner: dict[str, str] = {}
    for name, store in stores.items():
        for video in store.positions:
            if owner.setdefault(video, name) != name:
                both = f"{owner[video]} and {name} both hold {Path(video).name}"
                return f"{both}, which would count twice, so each is searched by itself."
    return None


def _comparable(store: IndexStore) -> Sequence[object]:
    manifest = store.manifest
    return [
        *(manifest.model.get(key) for key in COMPARABLE),
        manifest.extraction,
        manifest.width,
        manifest.clips,
    ]


def _as_shards(indexes: Mapping[str, Index], generation: int = 0) -> Shards:
    if why := why_separate(indexes):
        raise HolmesError(why)
    manifest = next(iter(indexes.values())).store.manifest
    entries = (shard_entry(name, UNUSED, index.store) for name, index in indexes.items())
    return shards_like(manifest, generation, entries)
