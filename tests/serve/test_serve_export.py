"""Files of hits over HTTP: the same as from Python, made where hostile films do no harm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import holmes
from holmes.index.answer.searcher import Index
from serve_fakes import FakeDiagnose, build, client_of, open_fake


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
        ({"format": "edl", "at_least": 0.99}, 404, "is at least 99% probable"),
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
