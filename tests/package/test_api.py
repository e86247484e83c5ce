"""The public functions beyond their examples: encoder objects, one file, comparisons, and what is refused."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest

import holmes
from holmes.base.files import read_json
from holmes.cli import main
from holmes.errors import HolmesError
from index_fakes import FILMS, FakeJoint, meaning, write_features
from serve_fakes import film
from tiny_runs import QUIET, tiny_settings, tiny_world


class Colours(FakeJoint):
    """An encoder object: a dark picture shows a dog, a bright one a boat."""

    def frames(self, images):
        return np.stack([meaning("dog runs" if image.mean() < 128 else "boat leaves") for image in images])


class Other(Colours):
    name, digest = "other", "e2" * 32


def test_an_index_is_built_and_opened_with_an_encoder_object(tmp_path: Path) -> None:
    film(tmp_path / "films" / "dark.mp4", [("", 4.0, (10, 10, 10))])
    film(tmp_path / "films" / "bright.mp4", [("", 4.0, (240, 240, 240))])
    summary = holmes.build_index(tmp_path / "index", tmp_path / "films", Colours(), device="cpu")
    assert summary.added == 2 and summary.failures == ()
    with holmes.open_index(tmp_path / "index", model=Colours(), device="cpu") as index:
        assert Path(index.search("boat leaves")[0].video).name == "bright.mp4"
        assert repr(index) == f"Index({str(tmp_path / 'index')!r}, 2 videos)"
        film(tmp_path / "films" / "third.mp4", [("", 2.0, (10, 10, 10)), ("", 4.0, (240, 240, 240))])
        assert index.sync(tmp_path / "films").added == 1
    with pytest.raises(HolmesError, match="was made with 'fake'"):
        holmes.open_index(tmp_path / "index", model=Other(), device="cpu").search("boat leaves")
    with pytest.raises(HolmesError, match="cannot be compared with sentences"):
        holmes.build_index(tmp_path / "none", tmp_path / "films", object())  # type: ignore[arg-type]


def test_a_moment_is_found_in_one_file(tmp_path: Path) -> None:
    video = film(tmp_path / "film.mp4", [("", 5.0, (240, 240, 240)), ("", 5.0, (10, 10, 10))])
    moments = holmes.find("dog runs", video, Colours(), device="cpu")
    assert 4 < moments[0].start < 6 and 9 < moments[0].end <= 10.1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["film.mp4"], "nothing is left behind"


def test_one_file_and_a_sentence_are_needed(tmp_path: Path) -> None:
    (tmp_path / "text.mp4").write_text("not a video")
    for sentence, video, words in (
        ("a dog", tmp_path, "is a folder; make an index of it"),
        ("a dog", tmp_path / "none.mp4", "does not exist"),
        ("", tmp_path / "text.mp4", "the sentence is empty"),
        ("a dog", tmp_path / "text.mp4", "text.mp4: "),
    ):
        with pytest.raises(HolmesError, match=words) as error:
            holmes.find(sentence, video, Colours(), device="cpu")
        assert "\n" not in str(error.value)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    store = tiny_world(folder / "store")
    for seed, name in enumerate(("base", "ours")):
        holmes.train(store, tiny_settings(epochs=1, warm_up_epochs=1), folder / name, seed, options=QUIET)
    return folder


def test_runs_are_compared_as_the_command_does(runs: Path, tmp_path: Path) -> None:
    found = holmes.compare(runs / "base", str(runs / "ours"), device="cpu")
    words = ["compare", runs / "base", runs / "ours", "--device", "cpu", "--json", tmp_path / "found.json"]
    main.app([str(word) for word in words], standalone_mode=False)
    assert found.to_dict() == read_json(tmp_path / "found.json")
    base, ours = found.systems
    assert (base.name, ours.name, base.difference) == ("base", "ours", None)
    results = [read_json(runs / name / "result.json")["metrics"]["SumR"] for name in ("base", "ours")]
    assert base.metrics["SumR"].value == pytest.approx(results[0])
    assert ours.difference is not None
    assert ours.difference["SumR"].value == pytest.approx(results[1] - results[0])
    assert f"SumR {results[1]:.1f}" in str(found)


def test_a_comparison_needs_two_systems(runs: Path) -> None:
    with pytest.raises(HolmesError, match="at least two"):
        holmes.compare()
    with pytest.raises(HolmesError, match="only one system"):
        holmes.compare(runs / "base")


def test_a_setting_is_read_by_the_name_that_changes_it() -> None:
    config = holmes.preset("tvr").with_changes(epochs=2, loss__intra=0.5, kind="plain")
    assert (config.epochs, config.intra, config.loss__intra, config.kind) == (2, 0.5, 0.5, "plain")
    with pytest.raises(AttributeError, match="unknown setting 'epoch'; did you mean 'epochs'"):
        _ = config.epoch
    assert not hasattr(config, "trainig") and copy.deepcopy(config) == config
    assert pickle.loads(pickle.dumps(config)) == config


def test_a_feature_folder_is_added_by_its_path(tmp_path: Path) -> None:
    first, second = dict(list(FILMS.items())[:2]), dict(list(FILMS.items())[2:])
    holmes.build_index(tmp_path / "index", write_features(tmp_path / "a", first).path, FakeJoint())
    with holmes.open_index(tmp_path / "index", model=FakeJoint(), device="cpu") as index:
        assert index.add(write_features(tmp_path / "b", second).path).added == 1
        assert len(index) == 3 and Path(index.search("bus stops")[0].video).stem == "street"
