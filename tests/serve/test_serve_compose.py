"""Pictures, moments, what to leave out and what comes next: over HTTP, through the client, on the page."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("fastapi")
from PIL import Image
from starlette.testclient import TestClient

import holmes
from browser import PATIENCE, chromium, launched, serving
from holmes.index.answer.searcher import Index
from holmes.serve.settings import ServeSettings
from serve_fakes import PLENTY, build, client_of, open_fake


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    folder = tmp_path_factory.mktemp("compose")
    build(folder)
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield open_fake(folder / "index", monkeypatch)


@pytest.fixture(scope="module")
def client(index: Index) -> Iterator[TestClient]:
    with client_of(index) as client:
        yield client


def picture(colour: tuple[int, int, int]) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.full((60, 80, 3), colour, np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def scored(plain: list[dict[str, object]]) -> list[tuple[object, object]]:
    return [(hit["video"], hit["moments"]) for hit in plain]


def test_a_composed_query_answers_as_the_index_does(client: TestClient, index: Index) -> None:
    image = np.full((60, 80, 3), (200, 170, 60), np.uint8)
    asked = {"image": base64.b64encode(picture((200, 170, 60))).decode(), "sentence": "dog runs", "top": 3}
    answer = client.post("/api/search/by", json=asked).json()
    direct = index.search_by("dog runs", 3, image=image)
    assert scored(answer["hits"]) == scored(json.loads(json.dumps(direct.to_dict()))["hits"])
    assert answer["diagnosis"]["probability"] is None and "milliseconds" in answer
    asked = {"sentence": "waves hit rocks", "then": "sun sets", "leave_out": ["rain falls"], "top": 1}
    (hit,) = client.post("/api/search/by", json=asked).json()["hits"]
    assert hit["title"] == "coast.mp4"
    assert hit["moments"][0]["start"] < 2 and hit["moments"][0]["end"] > 9
    (kitchen,) = client.get("/api/videos", params={"q": "kitchen"}).json()["videos"]
    asked = {"like": {"video": kitchen["id"], "start": 1, "end": 3}, "folder": kitchen["folder"]}
    titles = {hit["title"] for hit in client.post("/api/search/by", json=asked).json()["hits"]}
    assert titles == {"<b>party & games.mp4"}


@pytest.mark.parametrize(
    "asked,status",
    [
        ({}, 422),
        ({"then": "sun sets"}, 422),
        ({"sentence": "dog", "image": "no base64!"}, 422),
        ({"image": base64.b64encode(b"not a picture").decode()}, 422),
        ({"image": "A" * 70_000}, 413),
        ({"sentence": "dog", "leave_out": ["cat"] * 9}, 422),
        ({"sentence": "dog", "more": 1}, 422),
        ({"sentence": "dog", "shortest": True}, 422),
        ({"like": {"video": "coast.mp4", "start": "0", "end": 1}}, 422),
        ({"like": {"video": "nothing.mp4", "start": 0, "end": 1}}, 409),
        ({"like": {"video": "coast.mp4", "start": -1, "end": 1}}, 422),
    ],
)
def test_what_cannot_be_asked_is_refused_in_a_line(
    client: TestClient, asked: dict[str, object], status: int
) -> None:
    response = client.post("/api/search/by", json=asked)
    assert response.status_code == status, response.text
    assert len(response.json()["error"].splitlines()) == 1


def test_a_picture_that_unpacks_to_millions_of_pixels_is_refused(client: TestClient) -> None:
    """A hundred million in a body of 16 KB would keep one of two decoders busy for seconds."""
    bomb = io.BytesIO()
    Image.new("1", (5000, 5000)).save(bomb, "PNG")
    for content, reason in ((bomb.getvalue(), "5000 × 5000 pixels"), (b"GIF89a?", "format is none of JPEG")):
        asked = {"image": base64.b64encode(content).decode()}
        response = client.post("/api/search/by", json=asked)
        assert response.status_code == 422 and reason in response.json()["error"]
        assert "object at 0x" not in response.text


def test_through_the_client_and_on_the_page(index: Index, tmp_path: Path) -> None:
    (tmp_path / "sunset.png").write_bytes(picture((220, 90, 40)))
    with serving(index, ServeSettings(limits=PLENTY)) as address:
        remote = holmes.connect(address)
        found = remote.search_by("sun sets", 2, image=tmp_path / "sunset.png", leave_out="rain falls")
        direct = index.search_by("sun sets", 2, image=tmp_path / "sunset.png", leave_out="rain falls")
        assert [hit.video for hit in found] == [hit.video for hit in direct]
        like = remote.search_by(like="coast.mp4@0:05-0:06", filter="*pier.mp4")
        assert [Path(hit.video).name for hit in like] == ["pier.mp4"]
        if chromium() is None:
            pytest.skip("no chromium: the page is not tested")
        with launched() as browser:
            page = browser.new_page(base_url=address)
            page.set_default_timeout(PATIENCE)
            faults: list[str] = []
            page.on("console", lambda line: faults.append(line.text) if line.type == "error" else None)
            page.goto("/")
            with page.expect_response("**/api/search/by") as sent:
                page.set_input_files(".picture-field input", str(tmp_path / "sunset.png"))
            assert sent.value.ok and len(sent.value.json()["hits"]) == 4
            page.get_by_text("Videos that look like sunset.png").first.wait_for()
            with page.expect_response("**/api/search/by") as sent:
                page.fill("#q", "dog runs")
            assert sent.value.request.post_data_json["sentence"] == "dog runs"
            page.wait_for_selector(".results[aria-busy=false]")
            assert page.locator(".exports").is_hidden(), "an address would ask with the sentence alone"
            drop = """(text) => { const data = new DataTransfer();
              const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
              data.items.add(new File([bytes], "dropped.png", { type: "image/png" }));
              const how = { dataTransfer: data, bubbles: true, cancelable: true };
              document.body.dispatchEvent(new DragEvent("drop", how)); }"""
            with page.expect_response("**/api/search/by"):
                page.evaluate(drop, base64.b64encode(picture((9, 9, 99))).decode())
            page.get_by_text("Videos that look like dropped.png").first.wait_for()
            assert faults == []
