"""Make sharded indexes: split one index, or begin with none; publish what the shards hold; check it.

The name of a video decides its shard. Changes become visible all at once, when `publish_shards` writes a new
snapshot; until then, searches use the previous one.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from holmes.base.files import UMASK, sync_folder, write_json
from holmes.base.progress import progress_bar
from holmes.cluster.cache import open_snapshot
from holmes.cluster.location import Location
from holmes.cluster.manifest import (
    FILE_NAME,
    MOST_SHARDS,
    ShardEntry,
    Shards,
    check_belongs,
    read_shards,
    shards_like,
    write_shards,
)
from holmes.errors import HolmesError
from holmes.heard.passages import HEARD
from holmes.index.answer.confidence import FILE as CALIBRATION
from holmes.index.answer.confidence import read_values
from holmes.index.storage.maintenance import feature_faults, is_linked
from holmes.index.storage.manifest import CODES, Manifest, damaged, read_manifest
from holmes.index.storage.manifest import FILE_NAME as INDEX_FILE
from holmes.index.storage.segments import video_key
from holmes.index.storage.snapshots import drop_snapshots, take_snapshot
from holmes.index.storage.store import FEATURES, IndexStore
from holmes.index.storage.writer import IndexWriter, create_index
from holmes.media.feature_folder import MANIFEST, SUFFIX, VIDEOS

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
                for heard in store.passages:
                    words = [video for video in heard.live(heard.entry) if video.name in writer.store]
                    if words:
                        writer.hear(words, heard.entry.encoder)
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
