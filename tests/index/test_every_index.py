"""One set of tests for everything that answers: an index, a sharded one, and one behind a server."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import holmes
from browser import serving
from holmes.cluster.write import split_index
from holmes.errors import HolmesError
from holmes.index.answer.base import SearchIndex
from holmes.index.embedders import loading
from holmes.media.backbones.base import Identity
from holmes.media.feature_folder import FeatureFolder
from holmes.serve import jobs
from holmes.serve.settings import ServeSettings
from index_fakes import WIDTH, FakeJoint
from serve_fakes import FILMS, PLENTY, RATE, add_features, build, film

KINDS = ("single", "sharded", "served")
NEW = {"new/balloon.mp4": [("balloon rises slowly", 4.0, (250, 20, 20))]}
# The real process of the server, with the fake encoder in place of one that has weights.
WORKER = """
import sys; sys.path[:0] = {paths!r}
from holmes.index.embedders import loading
from index_fakes import FakeJoint
loading.load_visual = lambda name, **how: FakeJoint()
from holmes.serve.adding import main
main()
"""


@pytest.fixture(autouse=True)
def fake_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "load_visual", lambda name, **how: FakeJoint())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index, the same in three shards, and features of one more film."""
    index = build(tmp_path)
    split_index(index, tmp_path / "shards", 3)
    features = FeatureFolder.create(tmp_path / "more", Identity("fake", FakeJoint.digest, WIDTH, True), RATE)
    for name, scenes in NEW.items():
        add_features(features, film(tmp_path / "films" / name, scenes), scenes)
    worker = tmp_path / "worker.py"
    worker.write_text(WORKER.format(paths=sys.path))
    monkeypatch.setattr(jobs, "COMMAND", (sys.executable, str(worker)))
    return tmp_path


@pytest.fixture
def whole(folder: Path) -> SearchIndex:
    """What all three must agree with."""
    return holmes.open_index(folder / "index", device="cpu")


@pytest.fixture(params=KINDS)
def index(request: pytest.FixtureRequest, folder: Path) -> Iterator[SearchIndex]:
    if request.param == "served":
        settings = ServeSettings(manage=True, add_from=(folder / "more",), limits=PLENTY)
        with serving(holmes.open_index(folder / "index", device="cpu"), settings) as address:
            yield holmes.connect(address)
        return
    path = folder / ("shards" if request.param == "sharded" else "index")
    with holmes.open_index(path, device="cpu") as opened:
        yield opened


def plain(answer: holmes.Answer) -> str:
    return json.dumps(answer.to_dict(), sort_keys=True)


def test_all_answer_alike(index: SearchIndex, whole: SearchIndex) -> None:
    sentences = ["dog runs beach", "man eats soup", "dog"]
    assert [plain(answer) for answer in index.search_many(sentences, top=2)] == [
        plain(answer) for answer in whole.search_many(sentences, top=2)
    ]
    answer = index.search("dog runs beach", filter="*kitchen*")
    assert plain(answer) == plain(whole.search("dog runs beach", filter="*kitchen*"))


def test_an_answer_is_a_sequence_of_hits(index: SearchIndex) -> None:
    answer = index.search("dog runs beach", top=3)
    assert len(answer) == 3 and list(answer) == list(answer.hits)
    assert answer[0] == answer.hits[0] and answer[-1] == answer.hits[2]


def test_a_picture_is_answered_as_a_sentence_is(index: SearchIndex, whole: SearchIndex, folder: Path) -> None:
    coast = str(folder / "films" / "beach" / "coast.mp4")
    answer = index.like(coast, 5.0, top=2)
    assert isinstance(answer, holmes.Answer) and plain(answer) == plain(whole.like(coast, 5.0, top=2))
    assert answer.query == "like coast.mp4 at 5 s" and coast not in {hit.video for hit in answer}
    assert answer.diagnosis.kind == "unknown" and answer[0].probability is None
    with pytest.raises(HolmesError, match="contains no video named 'absent'"):
        index.like("absent", 1.0)
    with pytest.raises(HolmesError, match="top must be a whole number"):
        index.like(coast, 1.0, top=0)


def test_timelines_cover_the_video(index: SearchIndex, whole: SearchIndex, folder: Path) -> None:
    names = [str(folder / "films" / name) for name in ("home/kitchen.mkv", "beach/coast.mp4")]
    for name, found, expected in zip(
        names,
        index.timelines("woman cuts onions", names),
        whole.timelines("woman cuts onions", names),
        strict=True,
    ):
        assert found.spans_F2[0, 0] == 0
        assert found.spans_F2[-1, 1] == pytest.approx(index.duration(name), abs=0.1)
        at = (expected.spans_F2.mean(1)[:, None] >= found.spans_F2[:, 0]).sum(1) - 1
        np.testing.assert_allclose(found.similarity_F[at], expected.similarity_F, atol=1e-3)
    with pytest.raises(HolmesError, match="contains no video named 'absent'"):
        index.timelines("a dog", ["absent"])


def test_what_it_holds(index: SearchIndex, whole: SearchIndex) -> None:
    assert len(index) == len(FILMS) and set(index.videos) == set(whole.videos)
    assert index.durations == whole.durations
    assert index.duration(whole.videos[0]) == whole.duration(whole.videos[0])
    about, expected = index.describe(), whole.describe()
    assert (about.videos, about.width, about.model) == (expected.videos, expected.width, expected.model)
    with pytest.raises(HolmesError, match="contains no video named 'absent'"):
        index.duration("absent")


def test_mistakes_are_one_line(index: SearchIndex) -> None:
    for ask, words in (
        (lambda: index.search(""), "the sentence is empty"),
        (lambda: index.search("dog", top=0), "top must be a whole number"),
        (lambda: index.search("dog", filter="*/nowhere/*"), "no video .*matches"),
        (lambda: index.search_many("dog"), "takes a list of sentences"),
        (lambda: index.search("dog", abstain_below=2.0), "abstain_below must be a probability"),
    ):
        with pytest.raises(HolmesError, match=words) as error:
            ask()
        assert "\n" not in str(error.value)
