"""Encoders are remembered from extraction to search, and another one of the same width is refused."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest

from holmes.base.devices import choose_device
from holmes.base.feature_origin import ENCODERS, EncoderRecord, FeatureOrigin
from holmes.base.files import read_json
from holmes.base.manifests import checksum
from holmes.config.presets import preset
from holmes.data.export import export_store
from holmes.data.manifest import MANIFEST
from holmes.data.pack import Source, pack
from holmes.data.store import Store
from holmes.encoders.checkpoint import load_checkpoint, update_extras
from holmes.errors import HolmesError
from holmes.evaluation.runs.evaluate import evaluate_run
from holmes.evaluation.runs.folders import find_runs, store_of
from holmes.index.answer.searcher import open_single_index
from holmes.index.embedders import trained
from holmes.index.embedders.loading import load_embedder
from holmes.index.embedders.trained import TrainedHolmes
from holmes.index.ingest.builder import build_index, first_manifest
from holmes.index.storage.manifest import read_manifest
from holmes.media.collection import VideoCaption, write_collection
from holmes.training.run import train
from index_fakes import FILMS, RATE, WIDTH, FakeJoint, known_encoders, write_features
from tiny_runs import QUIET, TINY

FAKE = EncoderRecord(FakeJoint.name, FakeJoint.digest, WIDTH)
MADE = FeatureOrigin(FAKE, FAKE, RATE)


class Impostor(FakeJoint):
    """An encoder as wide as the other, but a different one."""

    name, digest = "impostor", "e0" * 32


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Encoders by name: 'fake' and 'impostor'."""
    known_encoders(monkeypatch, FakeJoint(), Impostor())


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Features, a collection, a store and a run of the fake encoder."""
    folder = tmp_path_factory.mktemp("world")
    films = {f"{name}{copy}": scenes for name, scenes in FILMS.items() for copy in range(4)}
    features = write_features(folder / "features", films)
    sentences = [
        VideoCaption(video.id, text, split)
        for number, video in enumerate(features)
        for split in [("train", "test")[number % 2]]
        for text in ("dog runs", "water boils", "rain falls")
    ]
    write_collection(folder / "collection", "tiny", features, sentences, FakeJoint())
    store = pack(Source(folder / "collection", rows_per_second=RATE), folder / "store")
    train(
        store,
        preset("small").with_changes(**TINY | {"epochs": 1, "held_out": 0.3}),
        folder / "run",
        options=QUIET,
    )
    return folder


def test_a_run_remembers_what_made_its_features(world: Path) -> None:
    """Through collection, store and run."""
    assert Store.open(world / "store").info.encoders == MADE
    assert load_checkpoint(world / "run" / "best").encoders == MADE


def test_an_exported_store_says_it_too(world: Path, tmp_path: Path) -> None:
    export_store(Store.open(world / "store"), tmp_path / "exported")
    assert pack(Source(tmp_path / "exported"), tmp_path / "again").info.encoders == MADE


def test_another_feature_set_beside_is_not_taken_for_it(world: Path, tmp_path: Path) -> None:
    export_store(Store.open(world / "store"), tmp_path / "folder")
    (tmp_path / "folder" / "FeatureData" / "fake").rename(tmp_path / "folder" / "FeatureData" / "other")
    assert pack(Source(tmp_path / "folder"), tmp_path / "again").info.encoders == FeatureOrigin(text=FAKE)


def test_the_remembered_encoders_and_rate_serve_an_index(world: Path, tmp_path: Path, fakes: None) -> None:
    embedder = load_embedder(str(world / "run"))
    assert (embedder.visual.name, embedder.rate) == ("fake", RATE)
    update = FeatureOrigin(FAKE, FAKE, 0.25)
    build_index(tmp_path / "index", [world / "features"], embedder)
    assert open_single_index(tmp_path / "index", device="cpu").search("dog runs").hits
    update_extras(copied(world / "run" / "best", tmp_path / "slow"), {"encoders": asdict(update)})
    assert load_embedder(str(tmp_path / "slow")).rate == 0.25


def test_another_rate_than_the_trained_one_is_refused(world: Path, tmp_path: Path, fakes: None) -> None:
    (tmp_path / "a.mp4").write_bytes(b"")
    embedder = load_embedder(str(world / "run"))
    with pytest.raises(HolmesError, match=r"trained on 2 samples per second, not 1; leave out --rate"):
        build_index(tmp_path / "index", [tmp_path / "a.mp4"], embedder, rate=1.0)
    assert not (tmp_path / "index").exists()
    assert first_manifest([tmp_path / "a.mp4"], embedder, RATE).extraction["rate"] == RATE


def test_the_device_of_an_index_holds_for_its_encoders(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def load(name: str, device: str = "auto") -> FakeJoint:
        asked.append(device)
        return FakeJoint()

    for name in ("load_visual", "load_text"):
        monkeypatch.setattr(trained, name, load)
    build_index(tmp_path / "index", [world / "features"], load_embedder(str(world / "run"), device="cpu"))
    index = open_single_index(tmp_path / "index", device="cpu")
    assert index.search("dog runs").hits
    assert set(asked) == {"cpu"} and index.embedder.device == "cpu"
    assert isinstance(index.embedder, TrainedHolmes)
    assert {parameter.device.type for parameter in index.embedder.checkpoint.model.parameters()} == {"cpu"}


@pytest.mark.parametrize("option", ["visual", "text"])
def test_another_encoder_of_the_same_width_is_refused(
    world: Path, tmp_path: Path, fakes: None, option: str
) -> None:
    with pytest.raises(HolmesError, match=rf"of 'fake' \(d1d1.*of 'impostor' \(e0e0.*--{option}"):
        build_index(
            tmp_path / "index",
            [world / "features"],
            load_embedder(str(world / "run"), **{"visual": "fake", "text": "fake"} | {option: "impostor"}),
        )
    assert not (tmp_path / "index").exists()


def test_an_old_checkpoint_wants_its_encoders_named(world: Path, tmp_path: Path, fakes: None) -> None:
    """Once, when the index is built: the index remembers them."""
    old = copied(world / "run" / "best", tmp_path / "old")
    body = read_json(old / "checkpoint.json")
    del body["extras"]["encoders"], body["checksum"]
    rewrite(old / "checkpoint.json", body)
    assert load_checkpoint(old).encoders == FeatureOrigin()
    with pytest.raises(HolmesError, match=r"does not know which encoder .* --visual"):
        load_embedder(str(old))
    build_index(tmp_path / "index", [world / "features"], load_embedder(str(old), "fake", "fake"))
    assert open_single_index(tmp_path / "index", device="cpu").search("dog runs").hits
    assert read_manifest(tmp_path / "index").model["visual"] == "fake"


def test_an_old_store_opens_and_knows_nothing(world: Path, tmp_path: Path) -> None:
    old = copied(world / "store", tmp_path / "old")
    body = read_json(old / MANIFEST)
    del body["encoders"], body["checksum"]
    rewrite(old / MANIFEST, body)
    assert Store.open(old).info.encoders == FeatureOrigin()
    (run,) = find_runs(world / "run")
    assert evaluate_run(run, Store.open(old), "test", choose_device("cpu")).report["metrics"]


def test_a_store_of_another_encoder_is_not_evaluated(world: Path, tmp_path: Path) -> None:
    other = copied(world / "store", tmp_path / "other")
    body = read_json(other / MANIFEST)
    body["encoders"]["visual"]["digest"] = "f0" * 32
    del body["checksum"]
    rewrite(other / MANIFEST, body)
    (run,) = find_runs(world / "run")
    with pytest.raises(HolmesError, match=r"the model learnt from features of 'fake'.*same encoders"):
        evaluate_run(run, Store.open(other), "test", choose_device("cpu"))
    assert evaluate_run(run, store_of(run, None), "test", choose_device("cpu")).report["metrics"]


def test_a_damaged_note_is_told_in_one_line(world: Path, tmp_path: Path) -> None:
    export_store(Store.open(world / "store"), tmp_path / "folder")
    (tmp_path / "folder" / ENCODERS).write_text("{}")
    with pytest.raises(HolmesError, match=r"encoders\.json does not describe"):
        pack(Source(tmp_path / "folder"), tmp_path / "again")


def copied(source: Path, target: Path) -> Path:
    return Path(shutil.copytree(source, target))


def rewrite(path: Path, body: dict) -> None:
    """As it would have been written then, with the checksum of what it says."""
    path.write_text(json.dumps({**body, "checksum": checksum(body)}))
