"""Splitting, building and sealing a sharded index, killed before every single file operation."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from test_killed import emptied, restored

from holmes.cluster.location import Location
from holmes.cluster.manifest import read_shards
from holmes.cluster.write import build_shards, publish_shards, split_index
from holmes.index.embedders.zero_shot import ZeroShot
from holmes.index.ingest.builder import add_videos, build_index
from holmes.index.storage.store import IndexStore
from index_fakes import FILMS, FakeJoint, known_encoders, write_features
from killing import every_kill

EVERY = {f"/films/{name}.mp4" for name in FILMS}


@pytest.fixture
def embedder(monkeypatch: pytest.MonkeyPatch) -> ZeroShot:
    known_encoders(monkeypatch, FakeJoint())
    return ZeroShot(FakeJoint())


def videos_in(shards: Path) -> set[str]:
    """All that the sealed shards hold, every byte verified."""
    stores = [IndexStore.open(shards / entry.name) for entry in read_shards(Location(shards)).shards]
    assert [fault for store in stores for fault in store.faults()] == []
    return {name for store in stores for name in store.positions}


def test_splitting(tmp_path: Path, embedder: ZeroShot) -> None:
    """The sharded index appears complete or not at all, and the index is left alone."""
    features, place = write_features(tmp_path / "features", FILMS).path, tmp_path / "place"
    build_index(tmp_path / "index", [features], embedder)
    for killed in every_kill(
        place, lambda: split_index(tmp_path / "index", place / "shards", 2), emptied(place), 40
    ):
        if not (place / "shards").exists():
            split_index(tmp_path / "index", place / "shards", 2)
        assert videos_in(place / "shards") == EVERY, killed
    assert set(IndexStore.open(tmp_path / "index").positions) == EVERY


def test_building(tmp_path: Path, embedder: ZeroShot) -> None:
    features, place = write_features(tmp_path / "features", FILMS).path, tmp_path / "place"

    def work() -> None:
        build_shards(place / "shards", [features], embedder, 2)

    for killed in every_kill(place, work, emptied(place)):
        work()
        assert videos_in(place / "shards") == EVERY, killed


def test_sealing(tmp_path: Path, embedder: ZeroShot) -> None:
    """What was sealed before, or what is sealed now."""
    some = write_features(tmp_path / "some", {name: FILMS[name] for name in ("coast", "kitchen")}).path
    more = write_features(tmp_path / "more", {"street": FILMS["street"]}).path
    before, place = tmp_path / "before", tmp_path / "place"
    build_shards(before / "shards", [some], embedder, 1)
    add_videos(before / "shards" / "shard-0000", [more], embedder)
    shutil.copytree(before, place)
    old = read_shards(Location(before / "shards"))
    for killed in every_kill(place, lambda: publish_shards(place / "shards"), restored(place, before)):
        assert read_shards(Location(place / "shards")).generation in (old.generation, old.generation + 1), (
            killed
        )
        assert publish_shards(place / "shards").generation == old.generation + 1, killed
        assert videos_in(place / "shards") == EVERY, killed
