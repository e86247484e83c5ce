"""Damaged index files give one clear line, never anything else."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from test_index_store import CLIPS, WIDTH, make_video

from by_hand import reseal
from holmes.errors import HolmesError
from holmes.index.engine.gallery import open_gallery
from holmes.index.engine.nearest import nearest_videos
from holmes.index.engine.scan import make_probes
from holmes.index.storage.manifest import Manifest
from holmes.index.storage.store import IndexStore
from holmes.index.storage.writer import IndexWriter, create_index
from holmes.records import QueryEmbedding


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    index = tmp_path_factory.mktemp("fuzz") / "index"
    create_index(index, Manifest({"digest": "m"}, {}, WIDTH, CLIPS))
    with IndexWriter(index) as writer:
        writer.add([make_video(str(i), 1 + 9 * i) for i in range(9)])
        writer.remove(["3"])
    return index


def use(index: Path) -> bool:
    """Open it and search it; one line is the only failure allowed. Return whether it went well."""
    try:
        store = IndexStore.open(index)
        gallery = open_gallery(store, torch.device("cpu"))
        query = QueryEmbedding(torch.ones(1, WIDTH))
        nearest_videos(gallery, make_probes(query, 0.4, 0.6), 3)
        list(store.positions)
        return True
    except HolmesError as error:
        assert "\n" not in str(error) and len(str(error).replace(str(index), "INDEX")) < 300
        return False


def truncated(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content))]


def flipped(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(chance.choice([1, 3, 50])):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def replaced(content: bytes, chance: random.Random) -> bytes:
    return chance.randbytes(chance.choice([0, 1, len(content), 2 * len(content)]))


def grown(content: bytes, chance: random.Random) -> bytes:
    return content + chance.randbytes(chance.randrange(1, 5000))


@pytest.mark.parametrize("damage", [truncated, flipped, replaced, grown])
def test_damaged_files(sound: Path, tmp_path: Path, damage: Callable) -> None:
    chance = random.Random(damage.__name__)
    index = tmp_path / "index"
    shutil.copytree(sound, index)
    for file in [path for path in index.rglob("*") if path.is_file()]:
        content = file.read_bytes()
        for _ in range(30):
            changed = damage(content, chance)
            file.write_bytes(changed)
            went_well = use(index)
            # Of large files only `check` reads all bytes; the lock's content means nothing.
            resized = len(changed) != len(content)
            large = file.name in ("rows.f16", "codes.i8", "spans.f32", "sums.i64")
            if file.name != "lock" and changed != content and (resized or not large):
                assert not went_well
        file.write_bytes(content)
    assert use(index)


MANIFESTS = {
    "deep": b"[" * 200_000,
    "long number": b'{"format": "holmes-index", "version": ' + b"9" * 10_000 + b"}",
    "list": b"[1, 2]",
    "null": b"null",
    "foreign": b'{"format": "other"}',
    "surrogate": b'{"format": "\\ud800"}',
    "bytes": b"\xff\xfe\x00",
    "empty": b"",
}


@pytest.mark.parametrize("name", MANIFESTS)
def test_strange_manifests(tmp_path: Path, name: str) -> None:
    (tmp_path / "manifest.json").write_bytes(MANIFESTS[name])
    with pytest.raises(HolmesError) as caught:
        IndexStore.open(tmp_path)
    assert "\n" not in str(caught.value) and str(tmp_path) in str(caught.value)


HOSTILE = [
    {"version": 1},
    {"version": 99},
    {"segments": [{"name": "../../etc", "videos": 1, "files": {}, "removed": []}]},
    {"segments": [{"name": "00000001", "videos": 10**18, "files": {}, "removed": []}]},
    {"segments": [{"name": "00000001", "videos": 1, "files": {}, "removed": [5]}]},
    {"segments": 7},
    {"segments": [[]]},
    {"width": -1},
    {"width": 1e300},
    {"clips": True},
    {"model": "x"},
    {"generation": None},
    {"generation": 10**300},
    *({side: size} for side in ("width", "clips") for size in (2**62, 10**30)),
    {"segments": [{"name": "00000001", "videos": 1, "files": [], "removed": []}]},
    {"segments": [{"name": "1" * 300, "videos": 1, "files": {}, "removed": []}]},
    {"model": {"kind": "holmes", "name": ["x"]}},
    {"model": {"kind": "holmes", "name": "x", "visual": 5}},
    {"extraction": {"rate": 2.0}},
    {"extraction": {"backbone": ["pocket"], "rate": 2.0}},
    {"extraction": {"backbone": {"name": "pocket", "digest": 7}, "rate": 2.0}},
    *(
        {"extraction": {"backbone": {"name": "pocket", "digest": "d"}, "rate": rate}}
        for rate in ("abc", -1, float("nan"), float("inf"))
    ),
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("change", HOSTILE, ids=lambda change: str(change)[:80])
def test_manifests_that_lie_with_a_right_checksum(sound: Path, tmp_path: Path, change: dict) -> None:
    index = tmp_path / "index"
    shutil.copytree(sound, index)
    reseal(index / "manifest.json", **change)
    with pytest.raises(HolmesError) as caught:
        IndexStore.open(index)
    said = str(caught.value)
    assert "\n" not in said and len(said.replace(str(index), "INDEX")) < 220
    assert f"holmes index build {index} VIDEOS" in said if "version" in change else f"emove {index}" in said


def test_a_missing_segment_is_named(sound: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    shutil.copytree(sound, index)
    next(index.rglob("spans.f32")).unlink()
    with pytest.raises(HolmesError, match=r"spans.f32 is missing"):
        IndexStore.open(index)
