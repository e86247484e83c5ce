"""All shards, written to as one index: code that adds to an index can add to a sharded one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from holmes.cluster.places import Place
from holmes.cluster.shards_manifest import read_shards
from holmes.cluster.writing import shard_of
from holmes.index.index_manifest import Manifest
from holmes.index.index_writer import IndexWriter
from holmes.index.stored_video import StoredVideo


class ShardsWriter:
    """All shards open for writing, as if they were one index; a context manager that holds their locks."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def __enter__(self) -> ShardsWriter:
        self.shards = read_shards(Place(self.path))
        with ExitStack() as held:
            folders = (self.path / entry.name for entry in self.shards.shards)
            self._writers: list[IndexWriter] = [held.enter_context(IndexWriter(f)) for f in folders]
            self._held = held.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._held.close()

    @property
    def store(self) -> WrittenShards:
        return WrittenShards(self.path, self._writers)

    def add(self, videos: Sequence[StoredVideo], instead_of: Mapping[str, str] | None = None) -> None:
        """As `IndexWriter.add`. A video that the shards hold stays in its shard."""
        groups: dict[int, list[StoredVideo]] = {}
        for video in videos:
            groups.setdefault(self._place(video.name), []).append(video)
        leaving = {old: new for new, old in (instead_of or {}).items() if new in {v.name for v in videos}}
        for place, group in sorted(groups.items()):
            added = {video.name for video in group}
            here = {new: old for old, new in leaving.items() if self._holder(old) == place}
            own = {new: old for new, old in here.items() if new in added}
            self._writers[place].add(group, own)
        self.remove(old for old in leaving if self._holder(old) is not None)

    def remove(self, names: Iterable[str]) -> None:
        groups: dict[int, list[str]] = {}
        for name in names:
            groups.setdefault(self._place(name), []).append(name)
        for place, group in groups.items():
            self._writers[place].remove(group)

    def _place(self, name: str) -> int:
        holder = self._holder(name)
        return shard_of(name, len(self._writers)) if holder is None else holder

    def _holder(self, name: str) -> int | None:
        own = shard_of(name, len(self._writers))  # nearly always the right one
        places = [own, *range(len(self._writers))]
        return next((place for place in places if name in self._writers[place].store), None)


class WrittenShards:
    """What the shards hold together, as far as code that adds to an index needs it."""

    def __init__(self, path: Path, writers: Sequence[IndexWriter]) -> None:
        self.path, self._stores = path, [writer.store for writer in writers]

    @property
    def manifest(self) -> Manifest:
        return self._stores[0].manifest

    @property
    def places(self) -> dict[str, Any]:
        return {name: place for store in self._stores for name, place in store.places.items()}

    def __len__(self) -> int:
        return sum(map(len, self._stores))

    def __contains__(self, name: str) -> bool:
        own = self._stores[shard_of(name, len(self._stores))]
        return name in own or any(name in store for store in self._stores)

    def __getitem__(self, name: str) -> StoredVideo:
        for store in (self._stores[shard_of(name, len(self._stores))], *self._stores):
            with suppress(KeyError):
                return store[name]
        raise KeyError(name)
