"""No path that a file's content names leads out of its folder: nothing outside is read, written or removed.

Every text and every key of every manifest becomes a path out of the folder (`..`, absolute, through a link,
with a NUL), with all checksums right. Then every command that reads the file runs, and a witness of the
folder outside must have seen nothing. Links in the place of our own files are tried in the same way.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("av")
from altering import Path_, key_paths
from holmes.base.files import sha256_file
from holmes.base.manifests import checksum
from holmes.cluster.index import open_index
from holmes.cluster.write import ShardsWriter, check_shards, publish_shards, split_index
from holmes.data.check import check_store
from holmes.data.export import export_store
from holmes.data.store import Store
from holmes.encoders.checkpoint import load_checkpoint, update_extras
from holmes.errors import HolmesError
from holmes.evaluation.runs.folders import find_runs, store_of
from holmes.index.embedders.zero_shot import ZeroShot
from holmes.index.ingest.builder import add_videos, build_index
from holmes.index.ingest.skipped import read_skipped, record_skipped
from holmes.index.storage.maintenance import compact_index, feature_faults
from holmes.index.storage.snapshots import snapshot_name
from holmes.index.storage.store import IndexStore
from holmes.index.storage.writer import IndexWriter
from holmes.media.extraction import Failure
from holmes.media.feature_folder import VideoFeatures, video_id
from holmes.media.origin import Fingerprint
from holmes.serve.settings import ServeSettings
from holmes.training.resume import StateKeeper
from holmes.training.run import train
from holmes.worlds.rendered import RenderedWorld, RenderSettings, render_world
from index_fakes import FILMS, RATE, WIDTH, FakeJoint, every_name_loads, write_features
from serve_fakes import PLENTY, client_of
from tiny_runs import QUIET, tiny_settings, tiny_world
from witness import FolderWitness

BAIT = {"bait": b"precious", ".bait.part": b"precious", "0000000099": b"precious"}
TINY = tiny_settings(epochs=1, warm_up_epochs=0, batch_videos=4)
BAIT["bait.safetensors"] = b"precious"


class Ground:
    """Sound folders of every kind, a copy to be turned against its user, and what must stay untouched."""

    def __init__(self, folder: Path) -> None:
        self.sound, self.place, self.outside = (folder / name for name in ("sound", "place", "outside"))
        self.cache = folder / "cache"
        self.outside.mkdir()
        self.witness = FolderWitness(self.outside)

    def fresh(self, name: str) -> Path:
        """The folder `name` as it was, and nothing else that an earlier case left."""
        for folder in (self.place, self.cache):
            shutil.rmtree(folder, ignore_errors=True)
        self.place.mkdir()
        for needed in {name, "store"} if name == "run" else {name}:
            shutil.copytree(self.sound / needed, self.place / needed)
        for path in self.outside.iterdir():
            path.unlink()
        for bait, content in BAIT.items():
            (self.outside / bait).write_bytes(content)
        self.witness.seen()
        return self.place / name

    def ways_out(self, folder: Path) -> dict[str, str]:
        """Paths out of a folder; a link that leads there is made in it."""
        (folder / "link").symlink_to(self.outside)
        up = os.path.relpath(self.outside, folder)
        return {
            "upwards": f"../../{up}/bait",  # from two folders below, as segments/NUMBER is
            "absolute": f"{self.outside}/bait",
            "through a link": "../../link/bait",
            "with a NUL": f"{self.outside}/bait\0.json",
        }

    def check(self, case: object) -> None:
        touched = self.witness.seen()
        assert touched == set(), f"{case}: {sorted(touched)} outside"
        found = {path.name: path.read_bytes() for path in self.outside.iterdir()}
        self.witness.seen()
        assert found == BAIT, case


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    ground = Ground(tmp_path_factory.mktemp("paths"))
    place = ground.place
    store = tiny_world(place / "store", videos=6)
    train(store, TINY, place / "run", options=QUIET)
    features = write_features(place / "features", FILMS)
    with pytest.MonkeyPatch.context() as patch:
        every_name_loads(patch, FakeJoint())
        build_index(place / "index", [features.path], ZeroShot(FakeJoint()))
        shutil.copytree(place / "features", place / "index/features")
        record_skipped(place / "index", [Failure(Path("/films/x.mp4"), "empty")], [], set())
        split_index(place / "index", place / "shards", 1)
        settings = RenderSettings(2, 2, scenes=(1, 1), seconds=(1.0, 1.0), size=(16, 16))
        render_world(place / "world", settings)
        os.replace(place, ground.sound)
        yield ground
    ground.witness.close()


def search(path: Path, **how: Any) -> None:
    open_index(path, device="cpu", **how).search("dog runs")


def remove_one(writer: IndexWriter | ShardsWriter) -> None:
    with writer:
        writer.remove(list(writer.store.positions)[:1])


def add_one(place: Path) -> None:
    more = write_features(place / "more", {"harbour": FILMS["coast"]}).path
    add_videos(place / "index", [more], ZeroShot(FakeJoint()))


def read_films(world: RenderedWorld) -> None:
    for video in world.videos:
        world.path(video).read_bytes()


Use = Callable[[Path], object]
INDEX: list[Use] = [
    lambda place: search(place / "index"),
    lambda place: IndexStore.open(place / "index").faults(),
    lambda place: feature_faults(place / "index"),
    lambda place: read_skipped(place / "index"),
    lambda place: split_index(place / "index", place / "split", 2),
    lambda place: remove_one(IndexWriter(place / "index")),
    add_one,
    lambda place: compact_index(place / "index"),
]
SHARDS: list[Use] = [
    lambda place: search(place / "shards", cache=place.parent / "cache"),
    lambda place: search(place / "shards"),
    lambda place: check_shards(place / "shards"),
    lambda place: remove_one(ShardsWriter(place / "shards")),
    lambda place: publish_shards(place / "shards"),
]
STORE: list[Use] = [
    lambda place: check_store(Store.open(place / "store")),
    lambda place: export_store(Store.open(place / "store"), place / "exported"),
]
RUN: list[Use] = [
    lambda place: load_checkpoint(place / "run/best"),
    lambda place: update_extras(place / "run/best", {"more": 1}),
    lambda place: StateKeeper(place / "run").load(),
    lambda place: store_of(find_runs(place / "run")[0], None),
]
CONTINUE: Use = lambda place: train(Store.open(place / "store"), TINY, place / "run", options=QUIET)  # noqa: E731
FEATURES: list[Use] = [
    lambda place: build_index(place / "other", [place / "features"], ZeroShot(FakeJoint())),
]
MANIFESTS: dict[str, list[Use]] = {
    "index/manifest.json": INDEX,
    "index/features/features.json": INDEX,
    "index/left_out.json": INDEX,
    "shards/shards.json": SHARDS,
    "shards/shard-0000/manifest.json": SHARDS,
    "store/store.json": STORE,
    "run/run.json": RUN,
    "run/state.json": RUN,
    "run/best/checkpoint.json": RUN,
    "features/features.json": FEATURES,
    "world/world.json": [lambda place: read_films(RenderedWorld.open(place / "world"))],
}


def run_all(uses: list[Use], place: Path) -> list[str]:
    """Do one after the other, those that change something last; what was refused is returned."""
    refused = []
    for use in uses:
        try:
            use(place)
        except (HolmesError, OSError) as error:
            refused.append(str(error))
    return refused


@pytest.mark.parametrize("name", MANIFESTS)
def test_sound_folders(ground: Ground, name: str) -> None:
    """Else the cases below would prove nothing."""
    ground.fresh(name.split("/")[0])
    assert run_all(MANIFESTS[name], ground.place) == []
    ground.check(name)


def texts(body: Any) -> Iterator[tuple[Path_, bool]]:
    """Where a manifest has a text, and where a key."""
    for at in key_paths(body):
        value = reduce(getitem, at, body)
        if isinstance(value, str):
            yield at, False
        if isinstance(at[-1], str):
            yield at, True


def lie(body: Any, at: Path_, is_key: bool, new: str) -> Any:
    """The body with another text in a place, or with one more key there."""
    body = copy.deepcopy(body)
    holder = reduce(getitem, at[:-1], body)
    holder[new if is_key else at[-1]] = copy.deepcopy(holder[at[-1]]) if is_key else new
    return body


def vouch(path: Path, body: Any) -> None:
    """Write a manifest with all checksums right: its own, of files it names, and where others name it."""
    for segment in body.get("segments", ()):
        for name, entry in segment["files"].items():
            if "bait" in name and isinstance(entry, dict):
                entry |= {"bytes": 8, "sha256": hashlib.sha256(b"precious").hexdigest()}
    body.pop("checksum", None)
    path.write_text(json.dumps(body | {"checksum": checksum(body)}))
    whole = path.parent.parent / "shards.json"
    if whole.exists():
        digest = sha256_file(path)
        shutil.copyfile(path, path.parent / snapshot_name(digest))
        shards = json.loads(whole.read_text())
        shards["shards"][0]["sha256"] = digest
        vouch(whole, shards)


PLAIN = ("checksum", "format", "version", "settings", "config", "progress")  # numbers, or one of a few words


@pytest.mark.parametrize("name", MANIFESTS)
def test_texts_and_keys_that_lead_out(ground: Ground, name: str) -> None:
    body = json.loads((ground.sound / name).read_text())
    for at, is_key in texts(body):
        if at[0] in PLAIN:
            continue
        for way in range(4):
            ground.fresh(name.split("/")[0])
            new = list(ground.ways_out((ground.place / name).parent).values())[way]
            vouch(ground.place / name, lie(body, at, is_key, new))
            run_all(MANIFESTS[name], ground.place)
            ground.check((at, "key" if is_key else "text", new))


LINKS: dict[str, list[Use]] = {
    "index/lock": INDEX,
    "index/segments": INDEX,
    "index/segments/*": INDEX,
    "index/segments/*/rows.f16": INDEX,
    "index/features": INDEX,
    "index/features/videos": INDEX,
    "index/features/videos/*.safetensors": INDEX,
    "index/manifest.json": INDEX,
    "index/left_out.json": INDEX,
    "shards/shard-0000": SHARDS,
    "shards/shard-0000/lock": SHARDS,
    "shards/shard-0000/segments": SHARDS,
    "shards/shard-0000/segments/*/rows.f16": SHARDS,
    "shards/features/videos": SHARDS,
    "run/lock": [CONTINUE],
    "run/best": [*RUN, CONTINUE],
}


@pytest.mark.parametrize("name", LINKS)
def test_links_in_the_place_of_our_files(ground: Ground, name: str) -> None:
    """Files that were swapped for links may be read, if their bytes are right; outside nothing changes."""
    ground.fresh(name.split("/")[0])
    (path, *_) = sorted(ground.place.glob(name)) or [ground.place / name]
    if path.is_dir():
        shutil.rmtree(path)
        path.symlink_to(ground.outside)
    else:
        path.unlink(missing_ok=True)
        path.symlink_to(ground.outside / "bait")
    run_all(LINKS[name], ground.place)
    found = {file.name: file.read_bytes() for file in ground.outside.iterdir()}
    assert found == BAIT
    ground.witness.seen()
    secret = [file for file in ground.place.rglob("*") if file.is_file() and not file.is_symlink()]
    assert not [file for file in secret if b"precious" in file.read_bytes()], "it was copied"
    ground.witness.seen()


def test_a_served_index_gives_out_videos_only(ground: Ground, tmp_path: Path) -> None:
    """An index names its videos by path, and may name a key: the server finds it and does not send it."""
    key, film, clip = tmp_path / "id_rsa", tmp_path / "film", tmp_path / "clip.mp4"
    key.write_text("-----BEGIN OPENSSH PRIVATE KEY-----")
    film.write_bytes(b"\x1aE\xdf\xa3 a film without a suffix")
    clip.write_bytes(b"a film by its name")
    made = write_features(tmp_path / "features", {})
    for at, source in enumerate((key, film, clip)):
        rows = np.random.default_rng(at).normal(size=(8, WIDTH)).astype(np.float32)
        times = np.arange(8, dtype=np.float32) / RATE
        made.write(VideoFeatures(video_id(source), source, 4.0, rows, times), Fingerprint(1, 1))
    build_index(tmp_path / "index", [made.path], ZeroShot(FakeJoint()))
    index = open_index(tmp_path / "index", device="cpu")
    with client_of(index, ServeSettings(limits=PLENTY)) as client:
        sent = {path: client.get(f"/api/videos/{video_id(path)}/stream") for path in (key, film, clip)}
    assert [answer.status_code for answer in sent.values()] == [404, 200, 200]
    assert "PRIVATE KEY" not in sent[key].text and "is not a video" in sent[key].text


def test_a_sharded_index_that_writes_into_a_home(ground: Ground, tmp_path: Path) -> None:
    """The file to plant lies beside the shards; copied to the cache, its path would end in the home."""
    ground.fresh("shards")
    home = tmp_path / "home"
    (home / ".cache/shards").mkdir(parents=True)
    (home / ".bashrc").write_text("mine")
    (tmp_path / "download").mkdir()
    shards = Path(shutil.move(ground.place / "shards", tmp_path / "download/a/b/shards"))
    (tmp_path / "download/.bashrc").write_text("theirs")
    manifest = shards / "shard-0000/manifest.json"
    body = json.loads(manifest.read_text())
    planted = {"bytes": 6, "sha256": hashlib.sha256(b"theirs").hexdigest()}
    body["segments"][0]["files"]["../../../../../../.bashrc"] = planted
    vouch(manifest, body)
    with pytest.raises(HolmesError, match="bashrc"):
        search(shards, cache=home / ".cache/shards/x")
    assert (home / ".bashrc").read_text() == "mine"
    with pytest.raises(HolmesError, match="bashrc"):
        check_shards(shards)
