"""The commands that `test_killed` does not know, each as a whole, killed before every single file operation.

With those there, and `index split` and `seal` in `test_killed_shards`, these are all that write:
`data plant`, `pack`, `caption` and `export`, `extract`, `index build`, `add`, `sync`, `remove`, `compact` and
`calibrate`, adding and removing in `serve --manage`, `train`, `evaluate`, `compare`, `report`, `ablate`,
`sweep` and `demo`, which renders videos and writes a collection.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_killed import emptied, restored, videos_in
from typer.main import get_command

from holmes.cli import main
from holmes.data.check import check_store
from holmes.data.pack import Source, pack
from holmes.data.store import Store
from holmes.evaluation import intervals
from holmes.evaluation.intervals import over_seeds, save_ranks
from holmes.index.embedders.zero_shot import ZeroShot
from holmes.index.ingest.builder import build_index
from holmes.index.ingest.sync import sync_index
from holmes.index.storage.maintenance import compact_index
from holmes.index.storage.writer import IndexWriter
from holmes.media.collection import SPLITS, VideoCaption, write_collection
from holmes.media.feature_folder import FeatureFolder
from holmes.media.own_captions import caption_videos
from holmes.report import run as gathering
from holmes.report.figures import page as pages
from holmes.report.figures import style
from holmes.report.figures import sweep_curves as sweeps
from holmes.results import METRICS, TrainingResult
from holmes.serve.jobs import add_to_index, remove_video
from holmes.training import run as training
from holmes.training.protocol import Protocol
from holmes.training.resume import RANKS, RESULT, read_result, write_result
from holmes.worlds.rendered import RenderSettings, render_world
from index_fakes import FILMS, FakeJoint, known_encoders, write_features
from killing import contents, every_kill
from tiny_runs import QUIET, set_options, tiny_settings, tiny_world

pytest.importorskip("av")
from colour_films import Library, library

__all__ = ["library"]


COMMAND = get_command(main.app)  # once: it takes longer than what is tested


def holmes(*words: object) -> None:
    COMMAND([str(word) for word in words], standalone_mode=False)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return tiny_world(tmp_path_factory.mktemp("killed") / "world", videos=6)


class NoRun:
    """A run that only ends: its own files are killed at in `test_killed`."""

    def __init__(self, store: Store, splits: Any, config: Any, out: Path, seed: int, *_: Any) -> None:
        self.out, self.seed, self.split = out, seed, splits.report

    def go(self, on_epoch: Any) -> None:
        pass

    def finish(self, protocol: Protocol) -> TrainingResult:
        save_ranks(self.out / RANKS, np.arange(len(self.split.queries)) + 1, self.split.owner)
        metrics = dict.fromkeys(METRICS, 1.0)
        write_result(self.out, TrainingResult(protocol.value, self.seed, 1, 1, "test", metrics, True))
        return read_result(self.out / RESULT)


@pytest.fixture
def no_learning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "Run", NoRun)
    monkeypatch.setattr(intervals, "over_seeds", lambda metrics, *_: over_seeds(metrics))
    monkeypatch.setattr(sweeps, "sweep_figure", lambda *_: Drawn())
    monkeypatch.setattr(style, "svg", lambda figure: b"<svg/>")


class Drawn:
    """A figure that takes no time."""

    def __init__(self, *_: Any) -> None:
        pass

    def savefig(self, file: io.BytesIO, **_: Any) -> None:
        file.write(b"picture")


def visible(folder: Path) -> dict[str, bytes]:
    """All but what was being written, which stays where several processes may write at a time."""
    return {name: content for name, content in contents(folder).items() if not name.endswith(".part")}


STUDIES = {
    "train": (["train"], ["--seeds", "0,1"], {"summary.json"}),
    "ablate": (["ablate"], ["--table", "intra"], {"table.json", "table.md", "table.tex"}),
    "sweep": (["sweep"], ["--set", "margin=.1,.2"], {"sweep.json", "sweep.png", "sweep.svg", "sweep.tex"}),
}


@pytest.mark.parametrize("name", STUDIES)
def test_studies(name: str, world: Store, tmp_path: Path, no_learning: None) -> None:
    """After a kill the same command goes on, and ends with the runs and tables of one that never stopped."""
    command, words, results = STUDIES[name]
    words = [world.path, "--preset", "tvr", "--device", "cpu", *words]
    words += set_options(epochs=2, warm_up_epochs=1, batch_videos=4)

    def work(out: Path) -> None:
        holmes(*command, *words, "--out", out)

    work(tmp_path / "reference")
    reference = contents(tmp_path / "reference")
    assert results <= reference.keys()
    place = tmp_path / "place"
    for killed in every_kill(place, lambda: work(place / "out"), emptied(place)):
        work(place / "out")
        assert visible(place / "out") == reference, killed


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    known_encoders(monkeypatch, FakeJoint())


def test_building_an_index_by_command(tmp_path: Path, fakes: None) -> None:
    features, place = write_features(tmp_path / "features", FILMS).path, tmp_path / "place"
    words = ["index", "build", place / "index", features, "--model", "fake"]
    for killed in every_kill(place, lambda: holmes(*words), emptied(place), 12):
        holmes(*words)
        assert len(videos_in(place / "index")) == 3, killed
        names = {path.name for path in (place / "index").glob("[!.]*")}
        assert names == {"lock", "manifest.json", "segments"}, killed


def test_compacting_by_command(tmp_path: Path, fakes: None) -> None:
    """With the features of removed videos, which go too; those of the others stay."""
    before, place = tmp_path / "before", tmp_path / "place"
    build_index(before / "index", [write_features(tmp_path / "features", FILMS).path], ZeroShot(FakeJoint()))
    kept = write_features(before / "index" / "features", FILMS)
    with IndexWriter(before / "index") as writer:
        writer.remove(["/films/coast.mp4"])
    shutil.copytree(before, place)
    wanted = {"/films/kitchen.mp4", "/films/street.mp4"}
    for killed in every_kill(
        place, lambda: holmes("index", "compact", place / "index"), restored(place, before)
    ):
        assert videos_in(place / "index") == wanted, killed
        holmes("index", "compact", place / "index")
        assert videos_in(place / "index") == wanted, killed
        assert len(list((place / "index" / "features" / "videos").iterdir())) == len(kept) - 1, killed


def test_calibrating(tmp_path: Path, fakes: None) -> None:
    """The old calibration or the new one, whole."""
    scenes = {f"film{n}": [(f"word{n} seen{n}", 8)] for n in range(24)}
    features, place = write_features(tmp_path / "features", scenes).path, tmp_path / "place"
    index = tmp_path / "before" / "index"
    holmes("index", "build", index, features, "--model", "fake")
    rows = [{"sentence": f"word{n}", "video": f"film{n}.mp4"} for n in range(24)]
    captions, fewer = tmp_path / "captions.jsonl", tmp_path / "fewer.jsonl"
    captions.write_text("".join(json.dumps(row) + "\n" for row in rows))
    fewer.write_text("".join(json.dumps(row) + "\n" for row in rows[:22]))
    holmes("index", "calibrate", index, fewer)
    shutil.copytree(index.parent, place)
    old = (index / "calibration.json").read_bytes()
    holmes("index", "calibrate", index, captions)
    new = (index / "calibration.json").read_bytes()
    (index / "calibration.json").write_bytes(old)
    assert old != new
    work = lambda: holmes("index", "calibrate", place / "index", captions)  # noqa: E731
    for killed in every_kill(place, work, restored(place, index.parent)):
        assert (place / "index" / "calibration.json").read_bytes() in (old, new), killed
        assert len(videos_in(place / "index")) == 24, killed


def test_managing_through_a_server(tmp_path: Path, fakes: None) -> None:
    """The process that adds for `serve --manage`, and the removal of a video."""
    before, place = tmp_path / "before", tmp_path / "place"
    some = write_features(tmp_path / "some", {name: FILMS[name] for name in ("coast", "kitchen")}).path
    more = write_features(tmp_path / "more", {"street": FILMS["street"]}).path
    build_index(before / "index", [some], ZeroShot(FakeJoint()))
    shutil.copytree(before, place)
    index, old = place / "index", {"/films/coast.mp4", "/films/kitchen.mp4"}

    def add() -> None:
        add_to_index(str(index), None, [str(more)])

    for killed in every_kill(place, add, restored(place, before)):
        assert videos_in(index) in (old, old | {"/films/street.mp4"}), killed
        add()
        assert videos_in(index) == old | {"/films/street.mp4"}, killed
    for killed in every_kill(place, lambda: remove_video(index, "/films/coast.mp4"), restored(place, before)):
        assert videos_in(index) in (old, old - {"/films/coast.mp4"}), killed


def test_syncing(library: Library) -> None:
    """One film new, one moved, one deleted, one changed, one as it was."""
    library.film("d.mp4", 200, 220)
    library.build()
    library.film("new.mp4", 130)
    library.film("d.mp4", 10, 210)
    (library.films / "b.mp4").rename(library.films / "moved.mp4")
    (library.films / "c.mp4").unlink()
    place, before = library.root, library.root.with_name("before")
    shutil.copytree(place, before)
    wanted = {str(library.films / f"{name}.mp4") for name in ("a", "d", "new", "moved")}
    for killed in every_kill(
        place, lambda: sync_index(library.index, [library.films]), restored(place, before)
    ):
        found = videos_in(library.index)
        assert {str(library.films / "a.mp4"), str(library.films / "d.mp4")} <= found, killed
        assert found & {str(library.films / "b.mp4"), str(library.films / "moved.mp4")}, killed
        sync_index(library.index, [library.films])
        assert videos_in(library.index) == wanted, killed
        assert sync_index(library.index, [library.films]).changes == 0, killed
        compact_index(library.index)  # frees what was extracted of films that are gone
        assert len(FeatureFolder.open(library.index / "features")) == 4, killed


@pytest.fixture(scope="module")
def runs(world: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for name in ("one", "two"):
        settings = tiny_settings(epochs=1, warm_up_epochs=0, batch_videos=4)
        training.train(world, settings, folder / name, int(name == "two"), options=QUIET)
    return folder


RESULTS: dict[str, Callable[[Path, Path], list[object]]] = {
    "evaluate": lambda runs, out: [runs / "one", "--queries", out / "rows.jsonl", "--json", out / "all.json"],
    "compare": lambda runs, out: [
        runs / "one",
        runs / "two",
        "--out",
        out / "page.html",
        "--json",
        out / "j",
    ],
    "report": lambda runs, out: [runs / "one", "--out", out / "page.html", "--figures", out / "figures"],
}


@pytest.fixture
def no_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages without their pictures, and without computing the same figures again for every kill."""
    monkeypatch.setattr(
        pages.Picture, "draw", property(lambda self: Drawn, lambda self, draw: None), raising=False
    )
    for name in ("svg", "pdf"):
        monkeypatch.setattr(pages, name, lambda figure: b"picture")
    for name in ("report_data", "confidence_of_run"):
        monkeypatch.setattr(gathering, name, remembered(getattr(gathering, name)))


def remembered(function: Callable[..., Any]) -> Callable[..., Any]:
    """What it gave the first time, in this process and those forked from it later."""
    given: list[Any] = []

    def first(*arguments: Any) -> Any:
        if not given:
            given.append(function(*arguments))
        return given[0]

    return first


@pytest.mark.parametrize("command", RESULTS)
def test_results(command: str, runs: Path, tmp_path: Path, no_drawing: None) -> None:
    """Every file is the old one or the new one, and the runs are left alone."""
    place, before = tmp_path / "place", tmp_path / "before"
    place.mkdir()
    words, trained = RESULTS[command](runs, place), contents(runs)
    holmes(command, *words, "--device", "cpu")
    new = contents(place)
    for name in new:
        (before / name).parent.mkdir(parents=True, exist_ok=True)
        (before / name).write_bytes(b"old")
    for killed in every_kill(
        place, lambda: holmes(command, *words, "--device", "cpu"), restored(place, before)
    ):
        found = visible(place)
        assert found.keys() == new.keys(), killed
        assert all(found[name] in (b"old", new[name]) for name in new), killed
    assert contents(runs) == trained


def test_rendering(tmp_path: Path) -> None:
    """What the demo begins with."""
    settings = RenderSettings(2, 2, scenes=(1, 1), seconds=(1.0, 1.0), size=(16, 16))
    place = tmp_path / "place"
    render_world(tmp_path / "reference", settings)
    reference = contents(tmp_path / "reference")
    for killed in every_kill(place, lambda: render_world(place / "world", settings), emptied(place)):
        render_world(place / "world", settings)
        assert contents(place / "world") == reference, killed
        assert [path.name for path in place.iterdir()] == ["world"], killed


def test_writing_a_collection(tmp_path: Path) -> None:
    features, place = write_features(tmp_path / "features", FILMS), tmp_path / "place"
    videos = zip(features.ids(), SPLITS, strict=True)
    sentences = [VideoCaption(id, "dog runs", split, (0.0, 4.0)) for id, split in videos]
    work = lambda out: write_collection(out, "films", features, sentences, FakeJoint())  # noqa: E731
    work(tmp_path / "reference")
    reference = contents(tmp_path / "reference").keys()
    for killed in every_kill(place, lambda: work(place / "out"), emptied(place)):
        if not (place / "out").exists():
            work(place / "out")
        assert contents(place / "out").keys() == reference, killed
        pack(Source(place / "out"), tmp_path / "store", overwrite=True)
        assert [path.name for path in place.iterdir()] == ["out"], killed


def test_captioning(tmp_path: Path) -> None:
    features, place = write_features(tmp_path / "features", FILMS), tmp_path / "place"
    rows = [{"video": id, "sentence": f"dog runs {number}"} for number, id in enumerate(features.ids())]
    table = tmp_path / "captions.jsonl"
    table.write_text("\n".join(map(json.dumps, rows)))

    def work(store: Path, overwrite: bool = False) -> None:
        caption_videos(table, features, store, FakeJoint(), overwrite=overwrite)

    work(tmp_path / "reference" / "store")
    reference = contents(tmp_path / "reference" / "store").keys()
    # Kills while the collection is written, and at the beginning of packing, have tests of their own.
    for killed in every_kill(place, lambda: work(place / "store"), emptied(place), last=40):
        if (place / "store").exists():
            check_store(Store.open(place / "store"))
        work(place / "store", overwrite=(place / "store").exists())
        assert contents(place / "store").keys() == reference, killed
        assert [path.name for path in place.iterdir()] == ["store"], killed
