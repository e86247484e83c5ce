"""Make sharded indexes, add videos, calibrate, publish snapshots, and check them.

The name of a video decides its shard. Changes become visible all at once, when `publish_shards` writes a new
snapshot; until then, searches use the previous one. Files are written here, without Ray.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar, Unpack

import torch

from holmes.base.files import UMASK, sync_folder, write_json
from holmes.base.progress import progress_bar
from holmes.cluster.calls import LocalClient
from holmes.cluster.location import Location, open_snapshot
from holmes.cluster.manifest import (
    FILE_NAME,
    MOST_SHARDS,
    ShardEntry,
    Shards,
    check_belongs,
    is_sharded,
    read_shards,
    shards_like,
    write_shards,
)
from holmes.cluster.shard import Shard, to_arrays
from holmes.cluster.snapshots import Snapshot
from holmes.errors import HolmesError
from holmes.heard.passages import HEARD
from holmes.index.answer.calibration import (
    FILE,
    CalibrationSummary,
    calibration_of,
    learn,
    read_values,
    write_values,
)
from holmes.index.answer.calibration import FILE as CALIBRATION
from holmes.index.embedders.loading import Model
from holmes.index.embedders.protocol import Embedder
from holmes.index.ingest.builder import BuildSummary, IngestOptions, add_videos, first_manifest
from holmes.index.storage.maintenance import feature_faults, is_linked
from holmes.index.storage.manifest import CODES, Manifest, damaged, read_manifest
from holmes.index.storage.manifest import FILE_NAME as INDEX_FILE
from holmes.index.storage.passages import StoredWords
from holmes.index.storage.segments import StoredVideo, video_key
from holmes.index.storage.snapshots import drop_snapshots, take_snapshot
from holmes.index.storage.store import FEATURES, IndexStore, matching
from holmes.index.storage.writer import IndexWriter, create_index
from holmes.media.feature_folder import MANIFEST, SUFFIX, VIDEOS
from holmes.records import Scores

T = TypeVar("T")
VIDEOS_PER_COMMIT = 1024


def shard_name(number: int) -> str:
    return f"shard-{number:04d}"


def shard_of(video: str, count: int) -> int:
    """The number of the shard that a video belongs to."""
    return video_key(video) % count


def check_count(count: int) -> None:
    if not 1 <= count <= MOST_SHARDS:
        raise HolmesError(f"{count} shards are not possible; choose 1 to {MOST_SHARDS:,}.")


def split_index(index: Path | str, out: str | Path, count: int, *, progress: bool = False) -> Shards:
    """Make a sharded index of one index, in a new folder or object storage, where it appears complete."""
    check_count(count)
    store, location = IndexStore.open(index), Location(out)
    if faults := store.faults():  # the copy of a damaged file would get a checksum that fits
        raise damaged(store.path, "; ".join(faults))
    if location.folder is None:
        with tempfile.TemporaryDirectory() as folder:
            shards = _split(store, Path(folder), count, progress)
            upload(Path(folder), location)
        return shards
    if location.folder.exists() and (not location.folder.is_dir() or any(location.folder.iterdir())):
        raise HolmesError(f"{out} exists and is not empty; choose another folder for the shards.")
    parent = location.folder.absolute().parent
    parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=parent, prefix=f".{location.folder.name}.part-"))
    try:
        shards = _split(store, made, count, progress)
        made.chmod(0o777 & ~UMASK)
        os.replace(made, location.folder)
        sync_folder(parent)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    return shards


def _split(store: IndexStore, out: Path, count: int, progress: bool) -> Shards:
    names: list[list[str]] = [[] for _ in range(count)]
    for name in store.positions:
        names[shard_of(name, count)].append(name)
    empty = replace(store.manifest, generation=0, segments=(), passages=())
    calibration = read_values(store.path / CALIBRATION)
    with progress_bar("splitting", len(store), progress=progress) as advance:
        for number, own in enumerate(names):
            folder = out / shard_name(number)
            create_index(folder, empty)
            if calibration is not None:  # of the whole collection; each shard keeps it
                write_json(folder / CALIBRATION, calibration)
            waiting = iter(own)
            with IndexWriter(folder) as writer:
                while some := list(islice(waiting, VIDEOS_PER_COMMIT)):
                    writer.add([store[name] for name in some])
                    for segment in store.segments:
                        segment.release_pages()
                    advance(len(some))
                writer.take_words(store)
    _take_features(store.path / FEATURES, out / FEATURES)
    return publish_shards(out, calibration=calibration)


def _take_features(source: Path, target: Path) -> None:
    """Take the extracted features along: as hard links where the disk is the same."""
    files = [] if is_linked(source) else [source / MANIFEST, *(source / VIDEOS).glob(f"*{SUFFIX}")]
    for path in sorted(files):
        if path.is_file() and not path.is_symlink() and not path.name.startswith("."):
            there = target / path.relative_to(source)
            there.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(path, there)
            except OSError:
                shutil.copyfile(path, there)


def upload(folder: Path, location: Location) -> None:
    """Copy a sharded index to object storage; the file that makes it one goes last."""
    if location.exists(FILE_NAME):
        raise HolmesError(f"{location} is already a sharded index; choose another name.")
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "lock"]
    files.sort(key=lambda path: path == folder / FILE_NAME)
    for path in files:
        location.put(path, str(path.relative_to(folder)))


def create_shards(path: Path, manifest: Manifest, count: int) -> None:
    """Make an empty sharded index, or finish one whose creation was cut short."""
    check_count(count)
    names = [shard_name(number) for number in range(count)]
    if path.exists():
        strange = [
            e.name for e in path.iterdir() if e.name not in (*names, FEATURES, HEARD) and e.name[0] != "."
        ]
        if not path.is_dir() or strange:
            raise HolmesError(f"{path} exists and is not empty; choose another folder for the shards.")
    for name in names:
        if not (path / name / INDEX_FILE).exists():
            create_index(path / name, manifest)
    publish_shards(path)


def publish_shards(path: Path, calibration: Any = None) -> Shards:
    """Publish what the shards hold now as the next snapshot of the sharded index."""
    before = read_shards(Location(path)) if (path / FILE_NAME).exists() else None
    names = [entry.name for entry in before.shards] if before else _found(path)
    for name in names:
        if not (path / name / INDEX_FILE).exists():
            raise HolmesError(f"the shard {path / name} is missing; restore it, or split the index again.")
    manifest = read_manifest(path / names[0])
    entries = (shard_entry(name, take_snapshot(path / name), IndexStore.open(path / name)) for name in names)
    if calibration is None and before:
        calibration = before.calibration
    after = shards_like(manifest, before.generation if before else 0, entries, calibration)
    for name in names:
        check_belongs(before or after, read_manifest(path / name), str(path / name))
    _refuse_duplicates(path, names)
    if after == before:
        return after
    after = replace(after, generation=after.generation + 1)
    write_shards(path, after)
    for name in names:  # processes that have not moved on yet still read the previous snapshot
        drop_snapshots(path / name, [shards[name].sha256 for shards in (after, before) if shards is not None])
    return after


def _found(path: Path) -> list[str]:
    names = sorted(entry.name for entry in path.glob("shard-*") if entry.is_dir())
    if not names:
        raise HolmesError(
            f"{path} contains no shards; make some: holmes index split INDEX {path} --shards N."
        )
    return names


def shard_entry(name: str, digest: str, store: IndexStore) -> ShardEntry:
    """What `shards.json` says of a shard in the snapshot with this digest."""
    return ShardEntry(
        name=name,
        sha256=digest,
        videos=len(store),
        parts=sum(segment.live_parts(segment.entry) for segment in store.segments),
        seconds=sum(store.durations.values()),
        bytes=store.describe().bytes,
        codes=sum(entry.files[CODES].bytes for entry in store.manifest.segments),
    )


def _refuse_duplicates(path: Path, names: Sequence[str]) -> None:
    """Refuse a video that is in two shards: it would be two hits, and count twice in every mean."""
    owner: dict[str, str] = {}
    for name in names:
        for video in IndexStore.open(path / name).positions:
            if owner.setdefault(video, name) != name:
                raise HolmesError(
                    f"{video} is in {owner[video]} and in {name}; remove it from one: holmes index remove."
                )


def check_shards(path: Path) -> Shards:
    """The shards, if all of them are as they were written; else one line about those that are not."""
    location = Location(path)
    shards = read_shards(location)
    faults = []
    for entry in shards.shards:
        store = open_snapshot(location, entry.name, entry.sha256, None)
        check_belongs(shards, store.manifest, str(path / entry.name))
        faults += store.faults()
    faults += feature_faults(path)
    if faults:
        raise damaged(path, "; ".join(fault.rstrip(".") for fault in faults))
    return shards


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
            here = {new: old for old, new in leaving.items() if self.store.holder(old) == number}
            own = {new: old for new, old in here.items() if new in added}
            self._writers[number].add(group, own)
        self.remove(old for old in leaving if old in self.store)

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
        store = self.store
        for item in items:
            holder = store.holder(name := name_of(item))
            number = shard_of(name, len(self._writers)) if holder is None else holder
            groups.setdefault(number, []).append(item)
        return sorted(groups.items())


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
        return isinstance(name, str) and self.holder(name) is not None

    def holder(self, name: str) -> int | None:
        """The number of the shard that has a video, None where no shard has it."""
        own = shard_of(name, len(self._stores))  # nearly always the right one
        numbers = [own, *range(len(self._stores))]
        return next((number for number in numbers if name in self._stores[number]), None)

    def stamp(self, name: str) -> int | None:
        """The stamp of a video, None where no shard has it."""
        holder = self.holder(name)
        return None if holder is None else self._stores[holder].stamp(name)

    def heard_stamp(self, name: str) -> str | None:
        """What a video's words were made from, None where it was never heard."""
        holder = self.holder(name)
        return None if holder is None else self._stores[holder].heard_stamp(name)

    def matching(self, pattern: str) -> list[str]:
        """As `IndexStore.matching`."""
        return matching(self, pattern, self.path)

    def __getitem__(self, name: str) -> StoredVideo:
        holder = self.holder(name)
        if holder is None:
            raise KeyError(name)
        return self._stores[holder][name]


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
