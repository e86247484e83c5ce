"""One set of tests for everything that answers: an index, a sharded one, and one behind a server."""

from __future__ import annotations

import inspect
import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import holmes
from browser import serving
from holmes.cluster.write import split_index
from holmes.errors import HolmesError
from holmes.index.answer.base import SearchIndex
from holmes.index.answer.searcher import Index
from holmes.media.backbones.base import Identity, Image, Matrix
from holmes.media.feature_folder import FeatureFolder
from holmes.serve.settings import ServeSettings
from index_fakes import WIDTH, FakeJoint, meaning
from serve_fakes import FILMS, PLENTY, RATE, add_features, build, film

KINDS = ("single", "sharded", "served")
NEW = {"new/balloon.mp4": [("balloon rises slowly", 4.0, (250, 20, 20))]}


class SeeingJoint(FakeJoint):
    """An encoder object that knows the colours of the films."""

    def frames(self, images: Sequence[Image]) -> Matrix:
        scenes = [scene for film in (FILMS | NEW).values() for scene in film]
        known = np.asarray([colour for *_, colour in scenes], np.float32)
        seen = np.asarray([image.reshape(-1, 3).mean(0) for image in images], np.float32)
        nearest = np.square(seen[:, None] - known).sum(-1).argmin(1)
        return np.stack([meaning(scenes[at][0]) for at in nearest])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index, the same in three shards, and features of one more film."""
    place = tmp_path_factory.mktemp("every") / "place"
    index = build(place)
    split_index(index, place / "shards", 3)
    features = FeatureFolder.create(place / "more", Identity("fake", FakeJoint.digest, WIDTH, True), RATE)
    for name, scenes in NEW.items():
        add_features(features, film(place / "films" / name, scenes), scenes)
    place.rename(place.with_name("made"))
    return place.with_name("made")


@pytest.fixture
def folder(made: Path) -> Path:
    """As it was before the last test, under the path that its index names."""
    place = made.with_name("place")
    shutil.rmtree(place, ignore_errors=True)
    return Path(shutil.copytree(made, place))


@pytest.fixture
def whole(folder: Path) -> SearchIndex:
    """What all three must agree with."""
    return holmes.open_index(folder / "index", device="cpu", model=SeeingJoint())


@pytest.fixture(params=KINDS)
def index(request: pytest.FixtureRequest, folder: Path) -> Iterator[SearchIndex]:
    if request.param == "served":
        settings = ServeSettings(manage=True, add_from=(folder / "more",), limits=PLENTY)
        with serving(
            holmes.open_index(folder / "index", device="cpu", model=SeeingJoint()), settings
        ) as address:
            yield holmes.connect(address)
        return
    path = folder / ("shards" if request.param == "sharded" else "index")
    with holmes.open_index(path, device="cpu", model=SeeingJoint()) as opened:
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


def test_names_filter_as_a_pattern_does(index: SearchIndex, whole: SearchIndex) -> None:
    some = [name for name in whole.videos if "/beach/" in name]
    assert {hit.video for hit in index.search("dog", filter=some)} == set(some)
    assert plain(index.search("dog", filter=some)) == plain(index.search("dog", filter="*/beach/*"))


def test_a_moment_has_timelines(index: SearchIndex, whole: SearchIndex) -> None:
    video, others = whole.videos[0], whole.videos[1:3]
    for found, expected in zip(
        index.timelines_like(video, 1.5, others), whole.timelines_like(video, 1.5, others), strict=True
    ):
        assert found.spans_F2.shape == (len(found.similarity_F), 2)
        np.testing.assert_allclose(found.similarity_F.max(), expected.similarity_F.max(), atol=1e-3)


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


def test_videos_are_added_and_removed(index: SearchIndex, folder: Path) -> None:
    if isinstance(index, holmes.RemoteIndex):
        return  # the server's process cannot load the fake encoder; the next test uses a real one
    summary = index.add(folder / "more")
    assert (summary.added, summary.unchanged, summary.failures) == (1, 0, ())
    balloon = str(folder / "films" / "new" / "balloon.mp4")
    assert len(index) == len(FILMS) + 1 and index.search("balloon rises slowly")[0].video == balloon
    assert index.add([str(folder / "more")]).unchanged == 1
    assert index.remove(balloon) == (balloon,)
    names = [str(folder / "films" / name) for name in ("beach/coast.mp4", "beach/pier.mp4")]
    assert index.remove(names) == tuple(names) and len(index) == len(FILMS) - 2
    assert index.search("balloon rises slowly")[0].video != balloon
    with pytest.raises(HolmesError, match="absent"):
        index.remove("absent.mp4")


def test_videos_are_added_and_removed_through_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holmes.serve.client.POLL_SECONDS", 0.05)
    films = [film(tmp_path / "films" / name, FILMS[name]) for name in ("beach/coast.mp4", "beach/pier.mp4")]
    holmes.build_index(tmp_path / "index", films, "pocket", workers=1, device="cpu")
    settings = ServeSettings(manage=True, add_from=(tmp_path / "films",), limits=PLENTY)
    with serving(holmes.open_index(tmp_path / "index", device="cpu"), settings) as address:
        remote = holmes.connect(address)
        new = film(tmp_path / "films" / "new.mp4", NEW["new/balloon.mp4"])
        summary = remote.add(new)
        assert (summary.added, summary.unchanged, summary.failures) == (1, 0, ())
        assert set(remote.videos) == {str(path) for path in (*films, new)}
        assert remote.sync(tmp_path / "films", workers=1).changes == 0
        words = "1\n00:00:01,000 --> 00:00:03,000\nUp and away it goes.\n"
        new.with_suffix(".srt").write_text(words)
        assert remote.hear(workers=1).passages == 1 and remote.transcript(str(new)) is not None
        new.rename(tmp_path / "films" / "renamed.mp4")
        followed = remote.sync(tmp_path / "films", fast=True)
        assert [move.before for move in followed.moved] == [new] and followed.removed == ()
        assert remote.remove(["renamed.mp4", films[0]]) == tuple(
            sorted([str(new.with_name("renamed.mp4")), str(films[0])])
        )
        assert remote.videos == [str(films[1])]
        with pytest.raises(HolmesError, match=r"no video of .* matches"):
            remote.remove("absent.mp4")
        with pytest.raises(HolmesError, match="no such file"):
            remote.add(tmp_path / "films" / "absent.mp4")
    with (
        serving(holmes.open_index(tmp_path / "index", device="cpu"), ServeSettings(limits=PLENTY)) as address,
        pytest.raises(HolmesError, match="only for searching"),
    ):
        holmes.connect(address).remove(films[1])


def test_a_server_gives_everything_that_an_open_index_gives() -> None:
    done = {name for name in vars(SearchIndex) if not name.startswith("_") and name in vars(Index)}
    assert done - set(vars(holmes.RemoteIndex)) == {"close", "refresh"}  # a server looks by itself
    for name in done & {name for name in vars(SearchIndex) if callable(getattr(Index, name))}:
        here, there = (inspect.signature(getattr(kind, name)) for kind in (Index, holmes.RemoteIndex))
        assert list(here.parameters.values()) == list(there.parameters.values()), name


def test_an_index_follows_a_folder(index: SearchIndex, folder: Path) -> None:
    if isinstance(index, holmes.RemoteIndex):
        return  # as above: the test of a server below follows a folder with a real encoder
    (folder / "films" / "beach" / "pier.mp4").unlink()
    summary = index.sync(folder / "films")
    assert summary.removed == (str(folder / "films" / "beach" / "pier.mp4"),)
    assert len(index) == len(FILMS) and index.sync([folder / "films"]).changes == 0
    assert Path(index.search("balloon rises slowly")[0].video).name == "balloon.mp4"


def test_an_index_learns_how_sure_to_be(index: SearchIndex, folder: Path) -> None:
    rows = [(scene, name.split("/")[-1]) for name, scenes in FILMS.items() for scene, *_ in scenes] * 3
    taught = index.calibrate(rows)
    assert (taught.sentences, taught.videos, taught.found_first) == (len(rows), len(FILMS), 1.0)
    learned = index.search("dog runs beach").diagnosis
    file = folder / "captions.csv"
    file.write_text("\n".join(["sentence,video", *(f"{sentence},{video}" for sentence, video in rows)]))
    again = index.calibrate(file)
    assert again.before is not None and replace(again, before=None) == taught
    assert index.calibrate([{"sentence": sentence, "video": video} for sentence, video in rows]) == again
    assert index.search("dog runs beach").diagnosis == learned
    with pytest.raises(HolmesError, match="each row must be a sentence and its video"):
        index.calibrate([("only a sentence",)])  # type: ignore[list-item]


def test_sentences_become_unit_vectors(index: SearchIndex) -> None:
    assert index.readable("dog runs beach") == "dog runs beach"
    vectors_QD = index.encode(["dog runs beach", "a dog"])
    assert vectors_QD.shape == (2, WIDTH) and vectors_QD.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors_QD, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(vectors_QD[0], meaning("dog runs beach"), atol=1e-6)
    with pytest.raises(HolmesError, match="takes a list"):
        index.encode("a dog")


def test_with_closes_it(folder: Path) -> None:
    for path in (folder / "index", folder / "shards"):
        with holmes.open_index(path, device="cpu", model=SeeingJoint()) as index:
            assert [hit.video for hit in index.search("dog runs beach")]
    assert "gallery" not in index.__dict__
