"""Files of hits over HTTP: the same as from Python, made where hostile films do no harm."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import pytest
from starlette.testclient import TestClient

import holmes
from holmes.index.answer.searcher import Index
from holmes.serve.settings import ServeSettings
from serve_fakes import PLENTY, FakeDiagnose, build, client_of, open_fake


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Index, TestClient]]:
    folder = tmp_path_factory.mktemp("served")
    build(folder)
    with pytest.MonkeyPatch.context() as monkeypatch:
        index = open_fake(folder / "index", monkeypatch, FakeDiagnose())
        with client_of(index) as client:
            yield index, client


@pytest.mark.parametrize(
    "format", ["otio", "fcpxml", "edl", "csv", "markers", "markers-edl", "vtt", "youtube"]
)
def test_a_file_is_what_python_writes(served, format: str, tmp_path: Path) -> None:
    index, client = served
    asked = {"q": "dog runs beach", "format": format, "rate": "29.97", "at_least": 0.01, "pad": 0.5}
    found = client.get("/api/export", params=asked)
    answer = index.search("dog runs beach")
    summary = holmes.export(answer, tmp_path / "file", format=format, at_least=0.01, pad=0.5, rate=29.97)
    assert found.content == (tmp_path / "file").read_bytes() and summary.clips > 1
    assert 'filename="dog-runs-beach.' in found.headers["content-disposition"]


def test_what_cannot_be_written_is_said(served) -> None:
    _, client = served
    for asked, status, reason in (
        ({"format": "edl", "rate": "26"}, 422, "has no timecodes"),
        ({"format": "edl", "at_least": 0.99}, 404, "has a probability of at least 99%"),
        ({"format": "doc"}, 422, "format"),
        ({"format": "edl", "pad": 1e6}, 422, "pad"),
    ):
        answer = client.get("/api/export", params={"q": "dog runs beach", **asked})
        assert answer.status_code == status and reason in answer.json()["error"]
    improbable = client.get("/api/export", params={"q": "dog runs beach", "format": "csv"}).text
    assert len(improbable.splitlines()) == 3, "only the two hits that are probable enough"


def test_a_film_that_is_no_film_is_not_linked(served, tmp_path: Path) -> None:
    index, client = served
    film = next(Path(name) for name in index.videos if name.endswith("coast.mp4"))
    content = film.read_bytes()
    film.write_bytes(b"\0" * 4096)
    try:
        found = client.get("/api/export", params={"q": "dog runs beach", "format": "otio"})
        assert found.status_code == 200 and "MissingReference" in found.text
    finally:
        film.write_bytes(content)


def coast(client: TestClient) -> dict[str, Any]:
    return client.get("/api/search", params={"q": "dog runs beach"}).json()["hits"][0]


def test_a_clip_and_a_reel_come_as_videos(served) -> None:
    _, client = served
    hit = coast(client)
    moment = {"id": hit["id"], "start": 4.0, "end": 6.0}
    for order, name, seconds in (
        ({"moments": [moment]}, "coast-0m04.mp4", None),
        ({"moments": [moment], "exact": True}, "coast-0m04.mp4", 2.0),
        (
            {"moments": [moment, moment | {"start": 1.0, "end": 2.0}], "reel": True, "title": "a dog"},
            "a-dog-reel.mp4",
            7.0,
        ),
    ):
        found = client.post("/api/cut", json=order)
        assert found.status_code == 200 and found.headers["content-type"] == "video/mp4"
        assert f'filename="{name}"' in found.headers["content-disposition"]
        with av.open(io.BytesIO(found.content)) as container:
            pictures = [frame.time for frame in container.decode(video=0)]
        assert len(pictures) > 10 and (
            seconds is None or pictures[-1] == pytest.approx(seconds - 0.1, abs=0.06)
        )


def test_orders_that_cannot_be_cut_are_refused(served) -> None:
    _, client = served
    moment = {"id": coast(client)["id"], "start": 4.0, "end": 6.0}
    for order, status, reason in (
        ({"moments": [moment | {"id": "none"}]}, 404, "no video with this id"),
        ({"moments": [moment | {"end": 4.0}]}, 422, "must end after its start"),
        ({"moments": [moment | {"end": 9000}]}, 422, "600 are allowed"),
        ({"moments": [moment | {"start": 99_990.0, "end": 99_999.0}]}, 422, "ends at 12 s, before 99990 s"),
        ({"moments": [moment | {"start": True}]}, 422, "valid number"),
        ({"moments": [moment | {"start": "4"}]}, 422, "valid number"),
        ({"moments": [moment], "exact": 1}, 422, "exact"),
        ({"moments": [moment, moment]}, 422, "ask for one at a time"),
        ({"moments": []}, 422, "moments"),
        ({"moments": [moment], "out": "/tmp/x"}, 422, "out"),
    ):
        found = client.post("/api/cut", json=order)
        assert found.status_code == status and reason in found.json()["error"]
    with client_of(served[0], ServeSettings(token="t" * 20, limits=PLENTY)) as locked:
        assert locked.post("/api/cut", json={"moments": [moment]}).status_code == 401
    foreign = client.post("/api/cut", json={"moments": [moment]}, headers={"origin": "http://evil.example"})
    assert foreign.status_code == 403


def test_a_damaged_film_is_an_error_not_an_empty_video(served) -> None:
    index, client = served
    moment = {"id": coast(client)["id"], "start": 4.0, "end": 6.0}
    film = next(Path(name) for name in index.videos if name.endswith("coast.mp4"))
    content = film.read_bytes()
    film.write_bytes(content[:200])
    try:
        found = client.post("/api/cut", json={"moments": [moment]})
        assert found.status_code == 409 and "damaged" in found.json()["error"]
    finally:
        film.write_bytes(content)
