"""Making sharded indexes: split from one index, or created empty; and sealed, which makes a generation.

A video belongs to the shard that its name decides. Whatever is written to a shard becomes part of the sharded
index when all of it is sealed; until then searches see the last generation.
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

from holmes.cluster.places import Place
from holmes.cluster.shards_manifest import (
    FILE_NAME,
    MOST_SHARDS,
    ShardEntry,
    Shards,
    check_belongs,
    read_shards,
    write_shards,
)
from holmes.errors import HolmesError
from holmes.files import UMASK, sync_folder, write_json
from holmes.index.index_manifest import FILE_NAME as INDEX_FILE
from holmes.index.index_manifest import Manifest, damaged, read_manifest
from holmes.index.index_store import FEATURES, IndexStore
from holmes.index.index_writer import IndexWriter, create_index
from holmes.index.judge import FILE as CALIBRATION
from holmes.index.judge import read_values
from holmes.index.sealed import seal, unseal
from holmes.index.segment import CODES
from holmes.index.stored_video import video_key
from holmes.progress import progress_bar

AT_ONCE = 1024  # videos copied between two commits


def shard_name(number: int) -> str:
    return f"shard-{number:04d}"


def shard_of(video: str, count: int) -> int:
    """The shard that a video's name decides."""
    return video_key(video) % count


def check_count(count: int) -> None:
    if not 1 <= count <= MOST_SHARDS:
        raise HolmesError(f"{count} shards are not possible; choose 1 to {MOST_SHARDS:,}.")


def split_index(index: Path | str, out: str | Path, count: int, *, progress: bool = False) -> Shards:
    """Make a sharded index of one index, in a new folder or object storage, where it appears complete."""
    check_count(count)
    store, place = IndexStore.open(index), Place(out)
    if faults := store.faults():  # a damaged file would be copied with a checksum that calls it sound
        raise damaged(store.path, "; ".join(faults))
    if place.folder is None:
        with tempfile.TemporaryDirectory() as folder:
            shards = _split(store, Path(folder), count, progress)
            upload(Path(folder), place)
        return shards
    if place.folder.exists() and (not place.folder.is_dir() or any(place.folder.iterdir())):
        raise HolmesError(f"{out} exists and is not empty; choose another place for the shards.")
    place.folder.absolute().parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=place.folder.absolute().parent, prefix=f".{place.folder.name}.part-"))
    try:
        shards = _split(store, made, count, progress)
        made.chmod(0o777 & ~UMASK)
        os.replace(made, place.folder)
        sync_folder(place.folder.absolute().parent)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    return shards


def _split(store: IndexStore, out: Path, count: int, progress: bool) -> Shards:
    names: list[list[str]] = [[] for _ in range(count)]
    for name in store.places:
        names[shard_of(name, count)].append(name)
    empty = replace(store.manifest, generation=0, segments=())
    calibration = read_values(store.path / CALIBRATION)
    with progress_bar("splitting", len(store), progress=progress) as advance:
        for number, own in enumerate(names):
            folder = out / shard_name(number)
            create_index(folder, empty)
            if calibration is not None:  # of the whole collection; each shard keeps it
                write_json(folder / CALIBRATION, calibration)
            waiting = iter(own)
            with IndexWriter(folder) as writer:
                while some := list(islice(waiting, AT_ONCE)):
                    writer.add([store[name] for name in some])
                    for segment in store.segments:
                        segment.let_go()
                    advance(len(some))
    _take_features(store.path / FEATURES, out / FEATURES)
    return seal_shards(out, calibration=calibration)


def _take_features(source: Path, target: Path) -> None:
    """Take the extracted features along: as hard links where the disk is the same."""
    for path in sorted(source.rglob("*")):
        if path.is_file() and not path.name.startswith("."):
            there = target / path.relative_to(source)
            there.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(path, there)
            except OSError:
                shutil.copyfile(path, there)


def upload(folder: Path, place: Place) -> None:
    """Copy a sharded index to object storage; the file that makes it one goes last."""
    if place.exists(FILE_NAME):
        raise HolmesError(f"{place} is already a sharded index; choose another place.")
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "lock"]
    files.sort(key=lambda path: path == folder / FILE_NAME)
    for path in files:
        place.put(path, str(path.relative_to(folder)))


def create_shards(path: Path, manifest: Manifest, count: int) -> None:
    """Make an empty sharded index, or finish one whose creation was cut short."""
    check_count(count)
    names = [shard_name(number) for number in range(count)]
    if path.exists():
        strange = [e.name for e in path.iterdir() if e.name not in (*names, FEATURES) and e.name[0] != "."]
        if not path.is_dir() or strange:
            raise HolmesError(f"{path} exists and is not empty; choose another place for the shards.")
    for name in names:
        if not (path / name / INDEX_FILE).exists():
            create_index(path / name, manifest)
    seal_shards(path)


def seal_shards(path: Path, calibration: Any = None) -> Shards:
    """Make what the shards hold now the next generation of the sharded index."""
    before = read_shards(Place(path)) if (path / FILE_NAME).exists() else None
    names = [entry.name for entry in before.shards] if before else _found(path)
    for name in names:
        if not (path / name / INDEX_FILE).exists():
            raise HolmesError(f"the shard {path / name} is missing; put it back, or split the index again.")
    manifest = read_manifest(path / names[0])
    sealed = Shards(
        model=manifest.model,
        extraction=manifest.extraction,
        width=manifest.width,
        clips=manifest.clips,
        generation=before.generation if before else 0,
        shards=tuple(_entry(path, name) for name in names),
        calibration=calibration if calibration is not None else before.calibration if before else None,
    )
    for name in names:
        check_belongs(before or sealed, read_manifest(path / name), str(path / name))
    _refuse_twice(path, names)
    if sealed == before:
        return sealed
    sealed = replace(sealed, generation=sealed.generation + 1)
    write_shards(path, sealed)
    for name in names:  # the last generation stays for those who are still reading it
        states = [shards[name].sha256 for shards in (sealed, before) if shards is not None]
        unseal(path / name, states)
    return sealed


def _found(path: Path) -> list[str]:
    names = sorted(entry.name for entry in path.glob("shard-*") if entry.is_dir())
    if not names:
        raise HolmesError(
            f"{path} contains no shards; make some: holmes index split INDEX {path} --shards N."
        )
    return names


def _entry(path: Path, name: str) -> ShardEntry:
    digest, store = seal(path / name), IndexStore.open(path / name)
    files = [segment.files for segment in store.manifest.segments]
    return ShardEntry(
        name=name,
        sha256=digest,
        videos=len(store),
        parts=sum(segment.live_parts(segment.entry) for segment in store.segments),
        seconds=sum(store.durations.values()),
        bytes=sum(file.bytes for entry in files for file in entry.values()),
        codes=sum(entry[CODES].bytes for entry in files),
    )


def _refuse_twice(path: Path, names: Sequence[str]) -> None:
    """Refuse a video that is in two shards: it would be two hits, and count twice in every mean."""
    owner: dict[str, str] = {}
    for name in names:
        for video in IndexStore.open(path / name).places:
            if owner.setdefault(video, name) != name:
                raise HolmesError(
                    f"{video} is in {owner[video]} and in {name}; remove it from one: holmes index remove."
                )
