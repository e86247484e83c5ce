"""The API: what it answers, beside the same index asked directly."""

from __future__ import annotations

import io
import itertools
import json
import os
import threading
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

import holmes
from holmes import serve
from holmes.evidence.judging import Diagnosis
from holmes.index.answer.answers import Answer, Hit
from holmes.index.answer.searcher import Index
from holmes.index.storage.writer import IndexWriter
from holmes.serve.catalogue import Entry, Filter, VideoCatalogue
from holmes.serve.decoding import Decoders
from holmes.serve.examples import SENTENCES, example_questions
from holmes.serve.page import STYLES
from holmes.serve.settings import Limits
from holmes.serve.thumbnails import Thumbnails
from index_fakes import FakeJoint, known_encoders
from serve_fakes import FILMS, build, client_of, open_fake
from waiting import wait_for


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    build(folder)
    return folder


@pytest.fixture
def index(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    return open_fake(folder / "index", monkeypatch)


@pytest.fixture
def client(index: Index) -> Iterator[TestClient]:
    with client_of(index) as client:
        yield client


def id_of(client: TestClient, title: str) -> str:
    found = client.get("/api/videos", params={"q": title}).json()["videos"]
    return str(found[0]["id"])


def test_a_search_answers_as_the_index_does(client: TestClient, index: Index) -> None:
    answer = client.get("/api/search", params={"q": "dog runs beach", "top": 3}).json()
    direct = json.loads(json.dumps(index.search("dog runs beach", top=3).to_dict()))
    assert answer["query"] == "dog runs beach" and answer["diagnosis"] == direct["diagnosis"]
    for hit, same in zip(answer["hits"], direct["hits"], strict=True):
        assert {name: hit[name] for name in same} == same
        assert hit["timeline"] is None
    assert answer["hits"][0]["title"] == "coast.mp4" and answer["hits"][0]["file"] is True


def test_timelines_come_along_where_they_are_wanted(client: TestClient) -> None:
    hit = client.get("/api/search", params={"q": "dog runs beach", "timelines": True}).json()["hits"][0]
    similarity = np.array(hit["timeline"]["similarity"])
    seconds = (np.arange(len(similarity)) + 0.5) * hit["timeline"]["duration"] / len(similarity)
    inside = (seconds > 4) & (seconds < 7)
    assert hit["timeline"]["duration"] == pytest.approx(12) and similarity[inside].min() > 0.7
    assert similarity[~inside].max() < similarity[inside].min()
    alone = client.get(f"/api/videos/{hit['id']}/timeline", params={"q": "dog runs beach"}).json()
    assert alone["similarity"] == hit["timeline"]["similarity"]


def test_several_sentences_at_once_and_the_client_give_what_the_index_gives(
    client: TestClient, index: Index
) -> None:
    sentences = ["sun sets", "man eats soup", "dog"]
    answers = client.post("/api/search", json={"sentences": sentences, "top": 2}).json()["answers"]
    for answer, direct in zip(answers, index.search_many(sentences, 2), strict=True):
        assert [hit["video"] for hit in answer["hits"]] == [hit.video for hit in direct.hits]
        assert [hit["score"] for hit in answer["hits"]] == pytest.approx([hit.score for hit in direct.hits])


def test_filters_by_folder_length_and_date(client: TestClient) -> None:
    def titles(**parameters: object) -> set[str]:
        answer = client.get("/api/search", params={"q": "dog", **parameters})
        assert answer.status_code == 200, answer.text
        return {hit["title"] for hit in answer.json()["hits"]}

    (folder,) = {
        video["folder"] for video in client.get("/api/videos").json()["videos"] if "/beach" in video["folder"]
    }
    assert titles(folder=folder) == {"coast.mp4", "pier.mp4"} == titles(folder=folder + "/")
    assert titles(folder=folder[:-1]) == set()  # a folder, not the beginning of a name
    assert titles(shortest=10) == {"coast.mp4", "kitchen.mkv"} and titles(longest=10, shortest=9.5) == set()
    assert len(titles(after="2020-01-01")) == 4 and titles(before="2020-01-01") == set()
    assert client.get("/api/search", params={"q": "dog", "after": "yesterday"}).status_code == 422


def test_post_takes_every_filter_that_get_takes(client: TestClient) -> None:
    folders = [each["folder"] for each in client.get("/api/index").json()["folders"]]
    folder = next(name for name in folders if "beach" in name)
    for filters in (
        {"folder": folder},
        {"shortest": 10, "longest": 13},
        {"after": "2090-01-01"},
        {"before": "2090-01-01", "folder": folder},
        {"timelines": True},
    ):
        got = client.get("/api/search", params={"q": "dog", **filters}).json()["hits"]
        (answer,) = client.post("/api/search", json={"sentences": ["dog"], **filters}).json()["answers"]
        assert answer["hits"] == got, filters
    name = got[0]["name"]
    both = {"sentences": ["dog"], "names": [name, "absent"], "filter": "*"}
    (answer,) = client.post("/api/search", json=both).json()["answers"]
    assert [hit["name"] for hit in answer["hits"]] == [name]


def test_videos_are_listed_in_order(client: TestClient, index: Index) -> None:
    def listed(**order: str) -> list[dict[str, Any]]:
        return list(client.get("/api/videos", params=order).json()["videos"])

    names = [video["name"] for video in listed()]
    assert names == index.videos and [video["name"] for video in listed(sort="added")] == names[::-1]
    lengths = [video["duration"] for video in listed(sort="length")]
    assert lengths == sorted(lengths, reverse=True)
    assert [video["duration"] for video in listed(sort="length", order="up")] == lengths[::-1]
    titles = [video["title"] for video in listed(sort="name")]
    assert titles == sorted(titles, key=str.casefold)
    assert {video["name"] for video in listed(sort="date")} == set(names)
    assert client.get("/api/videos", params={"sort": "colour"}).status_code == 422


def test_videos_of_one_day_are_in_the_order_of_their_hours(tmp_path: Path) -> None:
    for name, hour in (("noon", 12), ("dawn", 6), ("dusk", 18)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (1_700_006_400 + 3600 * hour,) * 2)
    videos = VideoCatalogue({str(tmp_path / name): 1.0 for name in ("noon", "gone", "dawn", "dusk")})
    newest, oldest = (
        [entry.title for entry in videos.listed(Filter(), "", "date", up)] for up in (None, True)
    )
    assert newest == ["dusk", "noon", "dawn", "gone"] and oldest == ["dawn", "noon", "dusk", "gone"]
    day = date(2023, 11, 15)
    assert len(videos.matching(Filter(after=day, before=day))) == 3


def test_a_video_is_divided_into_its_scenes(client: TestClient) -> None:
    scenes = client.get(f"/api/videos/{id_of(client, 'coast.mp4')}/scenes").json()["scenes"]
    cuts = [scene["start"] for scene in scenes]
    np.testing.assert_allclose(cuts, [0, 4, 7], atol=0.5)  # waves, a dog, the sun
    assert scenes[-1]["end"] == 12 and all(
        one["end"] == next["start"] for one, next in itertools.pairwise(scenes)
    )


def test_a_video_whose_frames_are_not_kept_is_divided_evenly() -> None:
    without = Thumbnails(None, VideoCatalogue({}), Decoders(Limits()))
    assert without.scenes(Entry("id", "a.mp4", 3.0)) == [(0.0, 3.0)]
    assert without.scenes(Entry("id", "b.mp4", 4.5)) == [(0.0, 2.25), (2.25, 4.5)]
    assert len(without.scenes(Entry("id", "c.mp4", 4000.0))) == 8


class AnsweredIndex:
    """Answers the first sentences as told: the first hit's video, its probability, and how it fits."""

    def __init__(self, *told: tuple[str, float | None, str | None]) -> None:
        self.told = dict(zip(SENTENCES, told, strict=False))

    def __len__(self) -> int:
        return 5

    def search_many(self, sentences: Sequence[str], top: int) -> list[Answer]:
        def answer(sentence: str) -> Answer:
            video, probability, fit = self.told.get(sentence, ("other.mp4", 0.01, "nearest"))
            hit = Hit(video, 0.9, 0.5, probability, (), fit)
            return Answer(sentence, Diagnosis((), {}, here=None if fit is None else 0.9), (hit,))

        return [answer(sentence) for sentence in sentences]


@pytest.mark.parametrize(
    "told,expected",
    [
        (
            [
                ("a", 0.6, "fits"),
                ("b", 0.9, "fits"),
                ("b", 0.95, "fits"),
                ("c", 0.4, "fits"),
                ("d", 0.3, "fits"),
            ],
            [2, 0, 3],  # the surest first, each with another video
        ),
        ([("a", 0.35, "may fit"), ("b", 0.6, "fits"), ("c", 0.2, "nearest")], [1]),
        ([("a", 0.35, "may fit"), ("b", 0.28, "may fit")], []),
        ([("a", None, None), ("b", None, None)], []),  # nobody calibrated the model
    ],
)
def test_examples_are_sentences_whose_first_hit_fits(
    told: list[tuple[str, float | None, str | None]], expected: list[int]
) -> None:
    found = example_questions(AnsweredIndex(*told))  # type: ignore[arg-type]
    assert found == [SENTENCES[number] for number in expected]


def test_an_index_that_nobody_calibrated_offers_no_examples(client: TestClient) -> None:
    assert client.get("/api/examples").json() == {"examples": []}


def test_the_api_is_a_page(client: TestClient) -> None:
    text = client.get("/api").text
    for path in client.get("/api/openapi.json").json()["paths"]:
        assert f"<code>{path}</code>" in text, path


def test_thumbnails_show_the_moment(client: TestClient) -> None:
    id = id_of(client, "coast.mp4")
    for width in (100, 320):  # a kept one, a decoded one
        for time, colour in ((1.0, (30, 60, 160)), (5.5, (200, 170, 60)), (11.0, (220, 90, 40))):
            answer = client.get(f"/api/videos/{id}/thumbnail", params={"t": time, "width": width})
            assert answer.headers["content-type"] == "image/jpeg"
            picture = np.asarray(Image.open(io.BytesIO(answer.content)).convert("RGB"), float)
            assert np.abs(picture.mean((0, 1)) - colour).max() < 12, (time, width)


def test_more_like_a_moment(client: TestClient) -> None:
    id = id_of(client, "coast.mp4")
    hits = client.get(f"/api/videos/{id}/like", params={"t": 5.5}).json()["hits"]
    assert hits[0]["title"] == "pier.mp4" and hits[0]["probability"] is None
    assert "coast.mp4" not in {hit["title"] for hit in hits}


def test_the_index_describes_itself(client: TestClient, index: Index) -> None:
    about = client.get("/api/index").json()
    assert about["videos"] == len(FILMS) and about["manage"] is False and about["left_out"] == []
    assert sum(folder["videos"] for folder in about["folders"]) == len(FILMS)
    assert about["model"]["name"] == "fake" and about["hours"] == pytest.approx(44 / 3600, rel=0.01)
    listed = client.get("/api/videos", params={"limit": 3}).json()
    rest = client.get("/api/videos", params={"limit": 3, "offset": 3}).json()
    names = [video["name"] for video in listed["videos"] + rest["videos"]]
    assert names == index.videos and listed["total"] == len(FILMS)


def test_metrics_count_requests_and_batches(client: TestClient) -> None:
    for _ in range(3):
        client.get("/api/search", params={"q": "dog"})
    text = client.get("/metrics").text
    assert 'holmes_requests_total{route="/api/search",status="200"} 3' in text
    assert f"holmes_index_videos {len(FILMS)}" in text and "holmes_batch_sentences_sum" in text
    assert "dog" not in text  # what people ask is nobody's business


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/api/search", 422, "q: field required"),
        ("/api/search?q=", 422, "q: "),
        ("/api/search?q=%20%20", 422, "the sentence is empty"),
        ("/api/search?q=" + "x" * 501, 422, "at most 500"),
        ("/api/search?q=dog&top=0", 422, "top: "),
        ("/api/search?q=dog&top=101", 422, "top: "),
        ("/api/videos/absent-0123456789", 404, "no video with this id"),
        ("/api/videos/absent/thumbnail?t=-1", 422, "t: "),
        ("/api/nothing", 404, "not found"),
        ("/nothing", 404, "not found"),
    ],
)
def test_errors_are_json_with_a_reason(client: TestClient, path: str, status: int, words: str) -> None:
    answer = client.get(path)
    assert answer.status_code == status and words in answer.json()["error"], answer.text


@pytest.mark.parametrize(
    "order",
    [
        {"sentences": ["dog"], "not_here_below": False},
        {"sentences": ["dog"], "min_probability": False},
        {"sentences": ["dog"], "expect_missing": False},
        {"sentences": ["dog"], "abstain_below": True},
        {"sentences": ["dog"], "top": True},
        {"sentences": [""]},
        {"sentences": ["  "]},
        {"sentences": ["x" * 501]},
    ],
    ids=str,
)
def test_what_is_no_number_and_no_sentence_is_refused(client: TestClient, order: dict[str, object]) -> None:
    """F12: booleans were taken for probabilities."""
    assert client.post("/api/search", json=order).status_code == 422


def test_a_day_is_written_as_a_day(client: TestClient) -> None:
    """F12: `before=0` was taken for seconds since 1970."""
    for day in ("0", "1700000000", "2024-1-1", "2024-02-30", "20240101", "2024-01-01T00:00"):
        for name in ("before", "after"):
            answer = client.get("/api/search", params={"q": "dog", name: day})
            assert answer.status_code == 422 and name in answer.json()["error"], day


def test_the_description_says_that_sentences_are_not_empty(client: TestClient) -> None:
    described = client.get("/api/openapi.json").json()
    sentence = described["components"]["schemas"]["Questions"]["properties"]["sentences"]["items"]
    assert (sentence["minLength"], sentence["maxLength"], sentence["pattern"]) == (1, 500, r"\S")
    (q,) = (each for each in described["paths"]["/api/search"]["get"]["parameters"] if each["name"] == "q")
    assert q["schema"]["pattern"] == r"\S"


def test_post_takes_what_get_takes(client: TestClient, folder: Path) -> None:
    described = client.get("/api/openapi.json").json()
    names = {each["name"] for each in described["paths"]["/api/search"]["get"]["parameters"]} - {"q"}
    filters = {
        "folder": str(folder / "films" / "beach"),
        "after": "2000-01-01",
        "before": "2000-01-01",
        "shortest": 10,
        "longest": 10,
    }
    assert names == {*filters, "top", "timelines"}
    schemas = described["components"]["schemas"]
    assert names <= {*schemas["Questions"]["properties"]}
    assert names - {"timelines"} <= {*schemas["ComposedQuestion"]["properties"]}
    found = []
    for name, value in filters.items():
        got = client.get("/api/search", params={"q": "dog", name: value}).json()["hits"]
        posted = client.post("/api/search", json={"sentences": ["dog"], name: value}).json()
        by = client.post("/api/search/by", json={"sentence": "dog", name: value}).json()
        assert [hit["id"] for hit in posted["answers"][0]["hits"]] == [hit["id"] for hit in got]
        assert {hit["id"] for hit in by["hits"]} == {hit["id"] for hit in got}
        found.append(len(got))
    assert found == [2, 4, 0, 2, 2]


def test_every_method_that_is_allowed_is_named(client: TestClient) -> None:
    """F12: `Allow` lacked POST."""
    for path, methods in (
        ("/api/search", "GET, POST"),
        ("/api/videos", "GET, POST"),
        ("/api/videos/some-id", "DELETE, GET"),
        ("/api/videos/some-id/stream", "GET, HEAD"),
        ("/api/session", "POST"),
    ):
        answer = client.put(path)
        assert answer.status_code == 405 and answer.headers["allow"] == methods and answer.json()["error"]


def test_one_query_and_the_same_in_a_batch_get_the_same_answer(client: TestClient) -> None:
    sentences = [scene for scenes in FILMS.values() for scene, _, _ in scenes]
    together = client.post("/api/search", json={"sentences": sentences}).json()["answers"]
    for sentence, batched in zip(sentences, together, strict=True):
        alone = client.get("/api/search", params={"q": sentence}).json()
        assert alone | {"milliseconds": 0} == batched | {"milliseconds": 0}


def test_a_browser_is_shown_a_page_where_there_is_none(client: TestClient) -> None:
    browser = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    answer = client.get("/nothing", headers=browser)
    assert answer.status_code == 404 and answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "There is no such page." in answer.text and answer.headers["vary"] == "accept"
    assert client.get("/api/nothing", headers=browser).json() == {"error": "not found."}


def test_what_is_wrong_inside_is_said_without_details(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **more: object) -> None:
        raise RuntimeError("a secret of the machine")

    with client_of(index) as client:
        client._transport.raise_server_exceptions = False  # type: ignore[attr-defined]
        client.get("/api/health")
        monkeypatch.setattr(Index, "search_many", broken)
        answer = client.get("/api/search", params={"q": "dog"})
    assert answer.status_code == 500 and "secret" not in answer.text and "error" in answer.json()


def test_concurrent_queries_share_a_scan_and_keep_their_own_answers(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    entered, gate = threading.Event(), threading.Event()
    search_many = Index.search_many

    def slow(self: Index, sentences: list[str], *args: object, **more: object) -> object:
        sizes.append(len(sentences))
        if len(sizes) == 2:  # the first is the server's own warm-up
            entered.set()
            gate.wait(20)
        return search_many(self, sentences, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Index, "search_many", slow)
    asked = [scene for scenes in FILMS.values() for scene, _, _ in scenes]
    answers: dict[str, dict[str, object]] = {}
    with client_of(index) as client:

        def ask(sentence: str, top: int) -> None:
            answers[sentence] = client.get("/api/search", params={"q": sentence, "top": top}).json()

        first = threading.Thread(target=ask, args=("bus stops", 1))
        first.start()
        assert entered.wait(20)
        others = [threading.Thread(target=ask, args=(q, 1 + n % 3)) for n, q in enumerate(asked)]
        for thread in others:
            thread.start()
        turns = client.app.state.server.batcher.turns  # type: ignore[attr-defined]
        wait_for(lambda: len(turns) == len(asked))
        gate.set()
        for thread in (first, *others):
            thread.join(30)
    assert sizes == [1, 1, len(asked)]
    for n, sentence in enumerate(asked):
        answer = answers[sentence]
        direct = search_many(index, [sentence], 1 + n % 3)[0]
        assert [hit["video"] for hit in answer["hits"]] == [hit.video for hit in direct.hits]  # type: ignore[attr-defined,index]
        assert answer["query"] == sentence


def test_one_bad_query_of_a_batch_harms_no_other(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    search_many = Index.search_many

    def fussy(self: Index, sentences: list[str], *args: object, **more: object) -> object:
        if "trouble" in sentences:
            raise holmes.errors.HolmesError("I will not search for trouble.")
        return search_many(self, sentences, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Index, "search_many", fussy)
    with client_of(index) as client:
        state = client.app.state.server  # type: ignore[attr-defined]
        from holmes.serve.batching import ServedQuestion
        from holmes.serve.turns import Caller

        async def together() -> list[object]:
            import asyncio

            asked = [[ServedQuestion(q, 2)] for q in ("dog", "trouble", "sun sets")]
            asks = (state.batcher.ask(each, Caller("a client")) for each in asked)
            return await asyncio.gather(*asks, return_exceptions=True)

        (good,), bad, (also,) = client.portal.call(together)  # type: ignore[union-attr]
    assert good.answer.query == "dog" and also.answer.query == "sun sets"  # type: ignore[attr-defined]
    assert "trouble" in str(bad)


def test_a_changed_index_is_taken_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holmes.serve.state.POLL_SECONDS", 0.05)
    known_encoders(monkeypatch, FakeJoint())
    path = build(tmp_path)
    with client_of(open_fake(path, monkeypatch)) as client:
        coast = client.get("/api/search", params={"q": "dog runs beach"}).json()["hits"][0]
        assert coast["title"] == "coast.mp4"
        with IndexWriter(path) as writer:
            writer.remove([coast["name"]])
        wait_for(lambda: client.get("/api/index").json()["videos"] == len(FILMS) - 1)
        answer = client.get("/api/search", params={"q": "dog runs beach"}).json()
        assert len(answer["hits"]) == len(FILMS) - 1 and answer["hits"][0]["title"] != "coast.mp4"
        assert client.get(f"/api/videos/{coast['id']}").status_code == 404
        assert client.get(f"/api/videos/{coast['id']}/stream").status_code == 404


def test_names_that_are_no_text_survive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known_encoders(monkeypatch, FakeJoint())
    odd = "odd\udcff name.mp4"
    path = build(tmp_path, {odd: [("dog runs", 3, (1, 2, 3))]})
    with client_of(open_fake(path, monkeypatch)) as client:
        hit = client.get("/api/search", params={"q": "dog"}).json()["hits"][0]
        assert hit["title"] == odd
        for format in ("json", "csv", "edl", "otio", "fcpxml", "markers", "vtt", "youtube"):
            assert client.get("/api/export", params={"q": "dog", "format": format}).status_code == 200
        assert client.get(f"/api/videos/{hit['id']}/stream?download=true").status_code == 200


def test_every_style_sheet_is_served_in_one_file(client: TestClient) -> None:
    sheets = {file.stem: file.read_text() for file in Path(serve.__file__).parent.glob("styles/*.css")}
    sent = client.get("/static/page.css").text
    assert sorted(sheets) == sorted(STYLES)
    places = [sent.index(sheets[name]) for name in STYLES]
    assert places == sorted(places)
