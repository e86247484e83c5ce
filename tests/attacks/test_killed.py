"""Every command that writes, killed before every single file operation.

After each kill either the old state or the new one is there, whole; and the same command, run again, ends as
if nothing had happened and leaves no litter.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from data_layouts import Miniature, random_store
from holmes.base.files import read_json, write_json
from holmes.data import writer as store_writer
from holmes.data.check import check_store
from holmes.data.export import export_store
from holmes.data.pack import Source, pack
from holmes.data.store import Store
from holmes.encoders.checkpoint import load_checkpoint
from holmes.evaluation.per_query import QueryTable, write_jsonl, write_parquet
from holmes.index.embedders.zero_shot import ZeroShot
from holmes.index.ingest.builder import add_videos, build_index
from holmes.index.storage.store import IndexStore
from holmes.index.storage.writer import IndexWriter
from holmes.media.extraction import extract
from holmes.report.figures.page import Section, page, write_page
from holmes.report.figures.sweep_curves import save_sweeps
from holmes.training import run as training
from holmes.training.resume import read_result
from holmes.worlds.planted import PlantSettings, plant
from index_fakes import FILMS, FakeJoint, known_encoders, write_features
from killing import contents, every_kill
from tiny_runs import QUIET, tiny_settings, tiny_world


def emptied(folder: Path) -> Callable[[], None]:
    def prepare() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()

    return prepare


def restored(folder: Path, copy: Path) -> Callable[[], None]:
    def prepare() -> None:
        shutil.rmtree(folder)
        shutil.copytree(copy, folder)

    return prepare


@pytest.fixture
def tiny(tmp_path: Path) -> Miniature:
    return Miniature.make(tmp_path / "source").write()


def test_json_files(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    for killed in every_kill(
        tmp_path, lambda: write_json(path, [2] * 999), lambda: write_json(path, [1] * 9)
    ):
        assert read_json(path) in ([1] * 9, [2] * 999), killed


def test_packing(tmp_path: Path, tiny: Miniature) -> None:
    place = tmp_path / "place"
    reference = contents(pack(Source(tiny.folder), tmp_path / "reference").path)
    for killed in every_kill(place, lambda: pack(Source(tiny.folder), place / "store"), emptied(place)):
        if (place / "store").exists():
            check_store(Store.open(place / "store"))
        else:
            pack(Source(tiny.folder), place / "store")
        stray = {"journal.json"}  # a kill between the store's taking its name and its last tidying
        found = {name: content for name, content in contents(place / "store").items() if name not in stray}
        assert found == reference, killed
        assert os.listdir(place) == ["store"], killed


@pytest.mark.parametrize("swaps", [True, False], ids=["one step", "two steps"])
def test_packing_over_a_store(
    tmp_path: Path, tiny: Miniature, swaps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a file system cannot exchange two names, there is a moment without a store; nothing is lost."""
    if not swaps:
        monkeypatch.setattr(store_writer, "exchange", lambda first, second: False)
    place, before = tmp_path / "place", tmp_path / "before"
    random_store(before / "store")
    shutil.copytree(before, place)
    source = Source(tiny.folder)
    old = contents(before / "store")
    new = contents(pack(source, tmp_path / "reference").path)
    last = 60 if swaps else 30  # before, only the new store grows, as in the test above
    work = lambda: pack(source, place / "store", overwrite=True)  # noqa: E731
    for killed in every_kill(place, work, restored(place, before), last):
        if not (place / "store").exists():
            assert not swaps, f"the store is gone after {killed}"
            assert contents(place / ".store.replaced") == old, killed
        else:
            found = {n: c for n, c in contents(place / "store").items() if n != "journal.json"}
            assert found in (old, new), killed
        pack(source, place / "store", overwrite=True)
        assert contents(place / "store") == new, killed
        assert os.listdir(place) == ["store"], killed


def test_a_store_moved_aside_is_found_again(tmp_path: Path, tiny: Miniature) -> None:
    """Also by those who only read: they are told where it is."""
    random_store(tmp_path / "store")
    (tmp_path / "store").rename(tmp_path / ".store.replaced")
    with pytest.raises(Exception, match=r"mv .*\.store\.replaced .*store"):
        Store.open(tmp_path / "store")


def test_exporting(tmp_path: Path, tiny: Miniature) -> None:
    store, place = pack(Source(tiny.folder), tmp_path / "store"), tmp_path / "place"
    export_store(store, tmp_path / "reference")
    reference = contents(tmp_path / "reference").keys()
    for killed in every_kill(place, lambda: export_store(store, place / "out"), emptied(place)):
        if not (place / "out").exists():
            export_store(store, place / "out")
        assert contents(place / "out").keys() == reference, killed
        again = pack(Source(place / "out"), tmp_path / "again", overwrite=True)
        np.testing.assert_allclose(again.frames, store.frames, atol=2e-3)
        assert os.listdir(place) == ["out"], killed


@pytest.fixture
def embedder(monkeypatch: pytest.MonkeyPatch) -> ZeroShot:
    known_encoders(monkeypatch, FakeJoint())
    return ZeroShot(FakeJoint())


def videos_in(index: Path) -> set[str]:
    store = IndexStore.open(index)
    assert store.faults() == []
    return set(store.positions)


def test_building_an_index(tmp_path: Path, embedder: ZeroShot) -> None:
    features, place = write_features(tmp_path / "features", FILMS), tmp_path / "place"
    every = {f"/films/{name}.mp4" for name in FILMS}
    for killed in every_kill(
        place, lambda: build_index(place / "index", [features.path], embedder), emptied(place)
    ):
        build_index(place / "index", [features.path], embedder)
        assert videos_in(place / "index") == every, killed
        assert sorted(p.name for p in (place / "index").iterdir()) == ["lock", "manifest.json", "segments"]


CHANGES: dict[str, tuple[Callable[[Path, Path, ZeroShot], Any], set[str]]] = {
    "add": (
        lambda index, films, embedder: add_videos(index, [films], embedder),
        {"coast", "kitchen", "street"},
    ),
    "remove": (lambda index, films, embedder: change(index, "remove", ["/films/coast.mp4"]), {"kitchen"}),
    "compact": (lambda index, films, embedder: change(index, "compact"), {"coast", "kitchen"}),
}


def change(index: Path, kind: str, *arguments: Any) -> None:
    with IndexWriter(index) as writer:
        getattr(writer, kind)(*arguments)


@pytest.mark.parametrize("kind", CHANGES)
def test_changing_an_index(tmp_path: Path, embedder: ZeroShot, kind: str) -> None:
    work, names = CHANGES[kind]
    before, place = tmp_path / "before", tmp_path / "place"
    some = write_features(tmp_path / "some", {name: FILMS[name] for name in ("coast", "kitchen")})
    more = write_features(tmp_path / "more", {"street": FILMS["street"]}).path
    build_index(before / "index", [some.path], embedder)
    shutil.copytree(before, place)
    index, wanted = place / "index", {f"/films/{name}.mp4" for name in names}
    for killed in every_kill(place, lambda: work(index, more, embedder), restored(place, before)):
        found = videos_in(index)
        assert found in (videos_in(before / "index"), wanted), killed
        if found != wanted or kind == "compact":
            work(index, more, embedder)
        with IndexWriter(index) as writer:  # sweeps
            named = {entry.name for entry in writer.store.manifest.segments}
        assert videos_in(index) == wanted, killed
        assert set(os.listdir(index / "segments")) == named and not list(index.glob(".*")), killed


def test_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The epochs here only move the weights a little: what is tested are the files between them."""
    store, place = tiny_world(tmp_path / "world", videos=6), tmp_path / "place"
    config = tiny_settings(epochs=2, warm_up_epochs=1, batch_videos=4)

    def one_epoch(run: training.Run, epoch: int, *_: Any) -> dict[str, Any]:
        training.seed_epoch(run.seed, epoch, 0)
        run.optimizer.values.add_(torch.randn_like(run.optimizer.values) * 0.01)
        total = float(run.optimizer.values.sum().abs())
        return {
            "epoch": epoch + 1,
            "stage": 1,
            "loss": {"total": total},
            "select": {"SumR": 100.0 + epoch % 2},
            "speed": {"steps_per_second": 1.0},
        }

    monkeypatch.setattr(training.Run, "one_epoch", one_epoch)
    ranks = torch.arange(len(store.split("test").queries)) + 1
    monkeypatch.setattr(training, "both_ranks", lambda *_, **__: (ranks, None))
    monkeypatch.setattr(training, "calibrate", lambda *_, **__: None)

    def train(out: Path) -> dict[str, Any]:
        return training.train(store, config, out, options=QUIET)

    expected = train(tmp_path / "reference")
    kept = ("metrics.jsonl", "result.json", "best/checkpoint.json", "run.json")
    reference = {name: (tmp_path / "reference" / name).read_bytes() for name in kept}
    for killed in every_kill(place, lambda: train(place / "run"), emptied(place)):
        assert train(place / "run") == expected == read_result(place / "run" / "result.json"), killed
        assert {name: (place / "run" / name).read_bytes() for name in kept} == reference, killed
        load_checkpoint(place / "run" / "best")
        assert len(list((place / "run").rglob("*.safetensors"))) == 2, killed
        assert not [path for path in (place / "run").rglob(".*")], killed


def test_extracting(tmp_path: Path) -> None:
    pytest.importorskip("av")
    from mean_colour import MeanColour, seconds_of_gray

    films = [seconds_of_gray(tmp_path / f"{shade}.mkv", shade, shade + 100) for shade in (0, 50)]
    place = tmp_path / "place"
    folder = extract(films, tmp_path / "reference", MeanColour()).folder
    whole = {video.id: video.rows.tolist() for video in folder}
    for killed in every_kill(place, lambda: extract(films, place / "out", MeanColour()), emptied(place)):
        kept = [path for path in (place / "out").glob("videos/[!.]*") if path.suffix != ".part"]
        summary = extract(films, place / "out", MeanColour())
        assert len(summary.reused) == len(kept), killed
        assert {video.id: video.rows.tolist() for video in summary.folder} == whole, killed
        left = {name for name in contents(place / "out") if not name.endswith(".part")}  # harmless
        assert left == contents(tmp_path / "reference").keys(), killed


def test_planting(tmp_path: Path) -> None:
    place = tmp_path / "place"
    settings = PlantSettings(videos=3, val_videos=2, test_videos=2, video_width=8, text_width=8)
    plant(tmp_path / "reference", settings)
    reference = contents(tmp_path / "reference")
    for killed in every_kill(place, lambda: plant(place / "world", settings), emptied(place), 24):
        if not (place / "world").exists():
            plant(place / "world", settings)
        check_store(Store.open(place / "world"))
        found = {n: c for n, c in contents(place / "world").items() if n != "journal.json"}
        assert found == reference, killed
        assert os.listdir(place) == ["world"], killed


TABLE = QueryTable({"id": ["a#1", "b#1"], "rank": [1, 7]})
POINT = {"value": 0.1, "metrics": {"SumR": {"mean": 1.0, "deviation": 0.1}}}
SWEEP = {"margin": {"default": 0.1, "points": [POINT]}}


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("queries.jsonl", lambda path: write_jsonl(TABLE, path)),
        ("queries.parquet", lambda path: write_parquet(TABLE, path)),
        ("sweep.png", lambda path: save_sweeps(SWEEP, {}, path.parent)),
    ],
)
def test_files_of_results(tmp_path: Path, name: str, write: Callable[[Path], None]) -> None:
    """What `evaluate --queries` and `sweep` write beside JSON: the old file or the new one, whole."""
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    path = tmp_path / name
    write(path)
    new = path.read_bytes()
    for killed in every_kill(tmp_path, lambda: write(path), lambda: path.write_bytes(b"old")):
        assert path.read_bytes() in (b"old", new), killed


def test_writing_a_page(tmp_path: Path) -> None:
    """What `holmes report` writes, whatever is on it."""
    path = tmp_path / "page.html"
    old, new = (page(title, "lead", [Section("one", "<p>text</p>")]) for title in ("old", "new"))
    for killed in every_kill(
        tmp_path,
        lambda: write_page(path, "new", "lead", [Section("one", "<p>text</p>")]),
        lambda: path.write_text(old),
    ):
        assert path.read_text() in (old, new), killed
