"""Add to sharded indexes and calibrate them as if they were one index."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, Unpack

import torch

from holmes.cluster.client import LocalClient
from holmes.cluster.location import Location
from holmes.cluster.manifest import FILE_NAME, is_sharded, read_shards, write_shards
from holmes.cluster.publish import check_count, create_shards, publish_shards, shard_of
from holmes.cluster.shard import Shard, to_arrays
from holmes.cluster.snapshots import Snapshot
from holmes.errors import HolmesError
from holmes.index.answer.calibration import CalibrationSummary, learn
from holmes.index.answer.confidence import FILE, calibration_of, write_values
from holmes.index.embedders.loading import Model
from holmes.index.embedders.protocol import Embedder
from holmes.index.ingest.builder import BuildSummary, IngestOptions, add_videos, first_manifest
from holmes.index.storage.manifest import FILE_NAME as INDEX_FILE
from holmes.index.storage.manifest import Manifest
from holmes.index.storage.passages import StoredWords
from holmes.index.storage.segments import StoredVideo
from holmes.index.storage.store import matching
from holmes.index.storage.writer import IndexWriter
from holmes.records import Scores

T = TypeVar("T")


class ShardsWriter:
    """All shards open for writing, as if they were one index; a context manager that holds their locks.

    What was written is published at the end, unless an error ends it.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def __enter__(self) -> ShardsWriter:
        self.shards = read_shards(Location(self.path))
        with ExitStack() as held:
            folders = (self.path / entry.name for entry in self.shards.shards)
            self._writers: list[IndexWriter] = [held.enter_context(IndexWriter(f)) for f in folders]
            self._held = held.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._held.close()
        if kind is None:
            publish_shards(self.path)

    @property
    def store(self) -> WrittenShards:
        return WrittenShards(self.path, self._writers)

    def add(self, videos: Sequence[StoredVideo], instead_of: Mapping[str, str] | None = None) -> None:
        """As `IndexWriter.add`. A video that the shards hold stays in its shard."""
        leaving = {old: new for new, old in (instead_of or {}).items() if new in {v.name for v in videos}}
        for number, group in self._by_shard(videos, lambda video: video.name):
            added = {video.name for video in group}
            here = {new: old for old, new in leaving.items() if self._holder(old) == number}
            own = {new: old for new, old in here.items() if new in added}
            self._writers[number].add(group, own)
        self.remove(old for old in leaving if self._holder(old) is not None)

    def hear(self, videos: Sequence[StoredWords], encoder: str) -> None:
        """As `IndexWriter.hear`; words go to the shard of their video."""
        for number, group in self._by_shard(videos, lambda video: video.name):
            self._writers[number].hear(group, encoder)

    def remove(self, names: Iterable[str]) -> None:
        for number, group in self._by_shard(names, str):
            self._writers[number].remove(group)

    def _by_shard(self, items: Iterable[T], name_of: Callable[[T], str]) -> list[tuple[int, list[T]]]:
        """The number of each shard, and the items that belong there."""
        groups: dict[int, list[T]] = {}
        for item in items:
            holder = self._holder(name := name_of(item))
            number = shard_of(name, len(self._writers)) if holder is None else holder
            groups.setdefault(number, []).append(item)
        return sorted(groups.items())

    def _holder(self, name: str) -> int | None:
        own = shard_of(name, len(self._writers))  # nearly always the right one
        numbers = [own, *range(len(self._writers))]
        return next((number for number in numbers if name in self._writers[number].store), None)


class WrittenShards:
    """What the shards hold together, as far as code that adds to an index needs it."""

    def __init__(self, path: Path, writers: Sequence[IndexWriter]) -> None:
        self.path, self._stores = path, [writer.store for writer in writers]

    @property
    def manifest(self) -> Manifest:
        return self._stores[0].manifest

    @property
    def positions(self) -> dict[str, Any]:
        return {name: position for store in self._stores for name, position in store.positions.items()}

    def __len__(self) -> int:
        return sum(map(len, self._stores))

    def __iter__(self) -> Iterator[str]:
        return iter(self.positions)

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        own = self._stores[shard_of(name, len(self._stores))]
        return name in own or any(name in store for store in self._stores)

    def stamp(self, name: str) -> int | None:
        """The stamp of a video, None where no shard has it."""
        found = (store.stamp(name) for store in self._stores)
        return next((stamp for stamp in found if stamp is not None), None)

    def heard_stamp(self, name: str) -> str | None:
        """What a video's words were made from, None where it was never heard."""
        found = (store.heard_stamp(name) for store in self._stores)
        return next((stamp for stamp in found if stamp is not None), None)

    def matching(self, pattern: str) -> list[str]:
        """As `IndexStore.matching`."""
        return matching(self, pattern, self.path)

    def __getitem__(self, name: str) -> StoredVideo:
        for store in (self._stores[shard_of(name, len(self._stores))], *self._stores):
            with suppress(KeyError):
                return store[name]
        raise KeyError(name)


def build_shards(
    path: Path | str,
    videos: Iterable[Path | str],
    embedder: Embedder,
    count: int,
    *,
    rate: float | None = None,
    **how: Unpack[IngestOptions],
) -> BuildSummary:
    """Make a sharded index of `videos`, or add them to one."""
    path, videos = Path(path), list(videos)
    check_count(count)
    if (path / INDEX_FILE).exists():
        raise HolmesError(
            f"{path} is a single index; make shards of it: holmes index split {path} SHARDS --shards {count}."
        )
    if not (path / FILE_NAME).exists():
        create_shards(path, first_manifest(videos, embedder, rate), count)
    if (held := len(read_shards(Location(path)).shards)) != count:
        raise HolmesError(f"{path} has {held} shards, not {count}; continue with --shards {held}.")
    return add_videos(path, videos, embedder, rate=rate, writer=ShardsWriter, **how)


def calibrate_shards(
    path: Path | str, captions: Sequence[tuple[str, str]], model: Model | None = None
) -> CalibrationSummary:
    """Fit the calibration of a sharded index on sentences and the videos they describe, and keep it."""
    location = Location(path)
    if location.folder is None:
        raise HolmesError(
            f"{path} is not a folder; calibrate the index before it is split and copied there, or its shards "
            "in a folder."
        )
    before = read_shards(location)
    client = LocalClient(location)
    client.prepare(before)
    now = Snapshot(before, client, model, device="cpu")
    videos = [name for names in now.call_all(Shard.names).values() for name in names]

    def score(sentences: Sequence[str]) -> Scores:
        found = now.call_all(Shard.every_score, to_arrays(now.probes(sentences))).values()
        frame_QV, clip_QV = (torch.cat([torch.from_numpy(f[at]) for f in found], 1) for at in (0, 1))
        return Scores(frame_QV, clip_QV)

    fitted, summary = learn(captions, videos, now.embedder, score, calibration_of(now.judge))
    if read_shards(location) != before:
        raise HolmesError(f"{path} was changed meanwhile; nothing was written, run it again.")
    values = fitted.to_dict()
    write_shards(location.folder, replace(before, calibration=values, generation=before.generation + 1))
    for entry in before.shards:
        write_values(location.folder / entry.name / FILE, values)
    return summary


def writer_of(path: Path) -> Callable[[Path], Any]:
    """The class that writes to this index, sharded or not."""
    return ShardsWriter if is_sharded(path) else IndexWriter
