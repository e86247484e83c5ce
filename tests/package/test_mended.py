"""Mistakes that once went unnoticed, each refused or reported in one line; lengths that were once fixed."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest

from data_layouts import Miniature
from holmes.cli import main
from holmes.data.check import check_store
from holmes.data.export import export_store
from holmes.data.pack import Source, pack
from holmes.data.pooling import query_tokens, video_clips, video_frames
from holmes.data.store import Store
from holmes.errors import HolmesError
from holmes.evaluation.confidence.tables import interval
from holmes.index.answer.answers import Answer, Hit
from holmes.moments import Moment
from holmes.training.experiments import Study
from holmes.training.protocol import Protocol
from holmes.training.run import train
from tiny_runs import QUIET, set_options, tiny_settings, tiny_world
from undrawn import no_rendering


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return tiny_world(tmp_path_factory.mktemp("mended") / "world", frames=128, clips=32)


def holmes(*words: object) -> None:
    main.app([str(word) for word in words], standalone_mode=False)


# Lengths


@pytest.mark.parametrize("name, value, has", [("clips", 16, 32), ("frames", 64, 128), ("frames", 256, 128),
                                              ("tokens", 10, 30), ("tokens", 64, 30)])  # fmt: skip
def test_lengths_that_the_store_does_not_have_are_refused(name, value, has, store, tmp_path):
    reason = rf"packed with {has} {name}, the settings ask for {value}.*holmes data pack … --{name} {value}"
    with pytest.raises(HolmesError, match=reason) as told:
        train(store, tiny_settings(**{name: value}), tmp_path / "run", options=QUIET)
    assert "\n" not in str(told.value) and not (tmp_path / "run").exists()


def spliced(folder: Path) -> Path:
    """Twelve videos of 200 frames with captions of 40 tokens, as a feature folder."""
    rng = np.random.default_rng(0)
    (folder / "TextData").mkdir(parents=True)
    (folder / "FeatureData" / "noise").mkdir(parents=True)
    ids = {name: [f"{name}{i}" for i in range(count)] for name, count in (("train", 8), ("test", 4))}
    for name, videos in ids.items():
        lines = [f"{video}#enc#{k} caption {k} of {video}\n" for video in videos for k in range(2)]
        (folder / "TextData" / f"long{name}.caption.txt").write_text("".join(lines))
    with h5py.File(folder / "TextData" / "words.hdf5", "w") as file:
        for video in (*ids["train"], *ids["test"]):
            for k in range(2):
                file[f"{video}#enc#{k}"] = rng.normal(size=(40, 5)).astype(np.float32)
    with h5py.File(folder / "FeatureData" / "noise" / "feature.hdf5", "w") as file:
        for video in (*ids["train"], *ids["test"]):
            file[video] = rng.normal(size=(200, 6)).astype(np.float32)
    return folder


def test_a_store_packed_with_other_lengths_is_trained_and_evaluated(tmp_path, store):
    """Longer queries and videos keep their rows, and any preset follows the store."""
    source = spliced(tmp_path / "source")
    lengths = ["--frames", 150, "--clips", 16, "--tokens", 64]
    holmes("data", "pack", source, tmp_path / "store", *lengths)
    holmes("data", "check", tmp_path / "store")
    packed = Store.open(tmp_path / "store")
    assert packed.clips.shape[1] == 16 and np.diff(packed.frame_offsets).max() == 150
    assert np.diff(packed.token_offsets).tolist() == [40] * 24
    with h5py.File(source / "FeatureData" / "noise" / "feature.hdf5") as file:
        rows = file[packed.video_ids[0]][()]
    assert np.abs(packed.clips[0] - video_clips(rows, 16)).max() < 1e-3
    assert np.abs(packed.frames[:150] - video_frames(rows, 150)).max() < 1e-3
    assert len(query_tokens(np.ones((40, 5)), 64)) == 40
    words = ["--preset", "tvr", "--out", tmp_path / "run", "--device", "cpu"]
    holmes("train", packed.path, *words, *set_options(epochs=1, warm_up_epochs=0))
    holmes("evaluate", tmp_path / "run", "--device", "cpu")
    model = json.loads((tmp_path / "run" / "run.json").read_text())["config"]["model"]
    assert (model["frames"], model["clips"], model["tokens"]) == (150, 16, 64)
    other = pack(Source(source), tmp_path / "usual")
    with pytest.raises(
        HolmesError, match=r"takes 150 frames, .* was packed with 128; pack it again with --fr"
    ):
        holmes("evaluate", tmp_path / "run", "--store", other.path, "--device", "cpu")
    assert packed.info.digest != other.info.digest


# Folders


def test_a_folder_of_other_things_is_not_written_into(store, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(HolmesError, match=r"is not empty and contains no run \(it has 'thesis.tex'\)"):
        train(store, tiny_settings(epochs=1), tmp_path, options=QUIET)
    with pytest.raises(HolmesError, match="is not empty and contains no runs"):
        Study(store, tiny_settings(epochs=1), tmp_path, options=QUIET).train(
            {"full": (tiny_settings(epochs=1), Protocol.HONEST)}
        )
    assert [path.name for path in tmp_path.iterdir() if path.name != "lock"] == ["thesis.tex"]
    (tmp_path / "empty").mkdir()
    train(store, tiny_settings(epochs=1), tmp_path / "empty", options=QUIET)


# Leaks and strangers


def test_a_test_caption_of_a_training_video_is_refused(tmp_path):
    world = Miniature.make(tmp_path / "source").write()
    trained = world.captions["train"][0].split("#")[0]
    path = next((tmp_path / "source" / "TextData").glob("*test.caption.txt"))
    path.write_text(path.read_text() + f"{trained}#enc#77 something else of it\n")
    with pytest.raises(HolmesError, match=rf"video '{trained}' and 0 others are also in train") as told:
        pack(Source(tmp_path / "source"), tmp_path / "store")
    assert "\n" not in str(told.value) and not (tmp_path / "store").exists()


def test_a_packed_store_that_leaks_is_not_called_whole(store, tmp_path, monkeypatch):
    shared = store.make_split("test", store.split("train").videos[:3], [])
    whole = Store.split
    monkeypatch.setattr(Store, "split", lambda self, name: shared if name == "test" else whole(self, name))
    name = store.video_ids[store.split("train").videos[0]]
    monkeypatch.setitem(store.info.splits, "test", {"videos": 3, "queries": 0})
    with pytest.raises(HolmesError, match=rf"3 videos of split 'test' are also in train, such as '{name}'"):
        check_store(store)


@pytest.mark.parametrize("name", ["moments", "also_fits", "kinds"])
def test_what_is_known_of_another_collection_is_refused(name, tmp_path):
    Miniature.make(tmp_path / "source").write()
    value = {"moments": [0, 1, 9], "also_fits": [], "kinds": "precise"}[name]
    (tmp_path / "source" / f"{name}.json").write_text(json.dumps({"stranger#enc#0": value}))
    with pytest.raises(HolmesError, match=rf"{name}\.json (matches|names) none of the"):
        pack(Source(tmp_path / "source"), tmp_path / "store")


def test_annotations_of_another_collection_are_refused(tmp_path):
    Miniature.make(tmp_path / "source").write()
    other = tmp_path / "captions.json"
    said = {"v_elsewhere": {"duration": 9.0, "timestamps": [[0, 3]], "sentences": ["Someone waves."]}}
    other.write_text(json.dumps(said))
    with pytest.raises(HolmesError, match=r"captions\.json matches none of the"):
        pack(Source(tmp_path / "source", annotations=[other]), tmp_path / "store")


# One run, one figure; two runs, both recalls


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of a world that is large enough for a calibration."""
    folder = tmp_path_factory.mktemp("pair")
    world = tiny_world(folder / "world", videos=32)
    for name, margin in (("one", 0.1), ("two", 0.3)):
        settings = tiny_settings(epochs=1, warm_up_epochs=1, held_out=0.3, margin=margin)
        assert train(world, settings, folder / name, options=QUIET).calibrated
    return folder


@pytest.fixture(scope="module")
def page(pair: Path) -> str:
    with no_rendering():
        holmes("report", pair / "one", "--compare", pair / "two", "--device", "cpu")
    return (pair / "one" / "report.html").read_text()


def test_report_and_evaluate_measure_the_same_confidence(pair, page):
    holmes("evaluate", pair / "one", "--uncertainty", "--json", pair / "found.json", "--device", "cpu")
    measured = json.loads((pair / "found.json").read_text())["reports"][0]["uncertainty"]
    for name in ("dropout_agreement", "confidence", "margin"):
        for figure in ("aurc", "auroc_top1", "ece"):
            assert interval(measured[name][figure]).replace(" [", "<br>[") in page, (name, figure)


def test_a_report_of_two_runs_has_both_recalls_and_their_difference(pair, page):
    for name in ("one", "two"):
        metrics = json.loads((pair / name / "result.json").read_text())["metrics"]
        assert f"<td>{metrics['SumR']:.1f}</td>" in page
    assert "Difference to two, honest (paired)" in page
    assert "The dotted line is the beginning of stage 2" not in page, "stage 2 was never reached"


# Names and words


def test_an_export_is_called_as_its_features_are(store, tmp_path):
    export_store(store, tmp_path / "out")
    assert (tmp_path / "out" / "TextData" / f"{store.info.text}.hdf5").exists()
    assert not list((tmp_path / "out" / "TextData").glob("roberta*"))


def test_an_answer_prints_as_a_person_would_read_it():
    class Told:
        kind, words, explanation, group = "precise", "precise", "One video stands out.", 1
        probabilities = tuple(np.linspace(0, 1, 180))

    hit = Hit("films/coast.mp4", 0.61, 0.5, 0.8, (Moment(2.0, 4.5, 0.6),))
    answer = Answer("a dog runs", Told(), (hit,))
    assert str(answer) == (
        "“a dog runs”: precise. One video stands out.\n"
        "  1  films/coast.mp4  score 0.610  probability 0.80  2.0-4.5 s"
    )
    assert repr(answer) == "Answer('a dog runs', precise, 1 hits)"


def test_the_version_and_a_hint_for_words_without_quotes(capsys):
    from holmes import __version__

    holmes("--version")
    assert capsys.readouterr().out == f"holmes {__version__}\n"
