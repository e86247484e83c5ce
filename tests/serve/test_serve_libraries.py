"""Several libraries in one server: searched as one with one distribution, or separately, and said why."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from starlette.testclient import TestClient

import holmes
from browser import chromium, launched, serving, until, violations
from holmes.cli.serve import libraries_of
from holmes.cluster.joined import JoinedIndex, join_indexes, why_separate
from holmes.errors import HolmesError
from holmes.serve.app import Libraries, create_libraries
from holmes.serve.settings import ServeSettings
from index_fakes import FakeJoint, known_encoders
from serve_fakes import FILMS, PLENTY, FakeDiagnose, build

BEACH = {name: scenes for name, scenes in FILMS.items() if name.startswith("beach")}
AT_HOME = {name: scenes for name, scenes in FILMS.items() if name.startswith("home")}
TOKEN = "sixteen characters or more"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One index of all films, and two of some."""
    folder = tmp_path_factory.mktemp("libraries")
    with pytest.MonkeyPatch.context() as monkeypatch:
        known_encoders(monkeypatch, FakeJoint())
        for name, films in (("all", FILMS), ("one", BEACH), ("two", AT_HOME)):
            build(folder / name, films)
        yield folder


def opened(folder: Path, **folders: str) -> dict[str, Any]:
    return {
        name: holmes.open_index(folder / path / "index", device="cpu", diagnose=FakeDiagnose())
        for name, path in folders.items()
    }


def joined(folder: Path, **folders: str) -> JoinedIndex:
    index = join_indexes({n: folder / path / "index" for n, path in folders.items()}, device="cpu")
    index.current.diagnose = FakeDiagnose()
    return index


def app_of(folder: Path, settings: ServeSettings | None = None, separate: str | None = None) -> Libraries:
    both = opened(folder, FILMS="one", FAMILY="two")
    whole = None if separate else joined(folder, FILMS="one", FAMILY="two")
    return create_libraries(
        both, settings or ServeSettings(limits=PLENTY), joined=whole, why_separate=separate
    )


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[TestClient]:
    with TestClient(app_of(folder), base_url="http://127.0.0.1:8000") as client:  # type: ignore[arg-type]
        yield client


def test_the_joined_answer_is_that_of_one_index(folder: Path) -> None:
    """Bit for bit: hits, scores, probabilities, moments. Only the folders of the files differ."""
    whole = opened(folder, ALL="all")["ALL"]
    both = joined(folder, FILMS="one", FAMILY="two")
    assert len(both) == len(whole) == len(FILMS)
    for sentence in ("dog runs beach", "man eats soup", "dog", "chess"):
        one, other = whole.search(sentence, top=4), both.search(sentence, top=4)
        assert one.diagnosis.probabilities == other.diagnosis.probabilities
        assert one.diagnosis.kind == other.diagnosis.kind
        for mine, its in zip(one.hits, other.hits, strict=True):
            assert Path(mine.video).name == Path(its.video).name
            assert (mine.score, mine.probability, mine.moments) == (its.score, its.probability, its.moments)
        assert sum(hit.probability or 0 for hit in other.hits) <= 1
    with pytest.raises(HolmesError, match="run 'holmes index add' on one of them"):
        both.add(folder)


def test_libraries_that_cannot_be_one_say_why(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert why_separate(opened(folder, A="one", B="two")) is None
    same = opened(folder, A="one", B="one")
    assert "both hold" in (why_separate(same) or "") and "count twice" in (why_separate(same) or "")
    other = opened(folder, A="one", B="two")
    manifest = other["B"].store.manifest
    other["B"].store.manifest = replace(manifest, model={**manifest.model, "digest": "another"})
    assert why_separate(other) == "A and B have different models, so each is searched by itself."
    with pytest.raises(HolmesError, match="count twice"):
        joined(folder, A="one", B="one")


def test_each_library_has_its_own_address(client: TestClient) -> None:
    listed = client.get("/api/libraries").json()
    assert listed == {
        "libraries": [{"name": "FILMS", "videos": 2}, {"name": "FAMILY", "videos": 2}],
        "joined": True,
        "why_separate": None,
    }
    for path, videos, library in (("", 4, None), ("/FILMS", 2, "FILMS"), ("/FAMILY", 2, "FAMILY")):
        about = client.get(f"{path}/api/index").json()
        assert (about["videos"], about["library"]) == (videos, library)
        assert about["libraries"] == ["FILMS", "FAMILY"]
        assert client.get(f"{path}/").status_code == client.get(f"{path}/static/main.js").status_code == 200
    moved = client.get("/FILMS", follow_redirects=False)
    assert (moved.status_code, moved.headers["location"]) == (308, "FILMS/")
    assert client.get("/films/api/index").status_code == client.get("/OTHER/api/index").status_code == 404
    hit = client.get("/api/search", params={"q": "man eats soup"}).json()["hits"][0]
    assert hit["library"] == "FAMILY"
    assert client.get(f"/FAMILY/api/videos/{hit['id']}").json()["title"] == "kitchen.mkv"
    assert client.get(f"/FILMS/api/videos/{hit['id']}").status_code == 404
    assert client.get(f"/api/videos/{hit['id']}/thumbnail").headers["content-type"] == "image/jpeg"


def test_one_search_over_all(client: TestClient, folder: Path) -> None:
    both = client.get("/FILMS/api/libraries/search", params={"q": "dog runs beach"}).json()
    ((only,), together) = both["answers"], client.get("/api/search", params={"q": "dog runs beach"}).json()
    assert both["joined"] and only["library"] is None
    assert [hit["id"] for hit in only["answer"]["hits"]] == [hit["id"] for hit in together["hits"]]
    why = "FILMS and FAMILY have different models, so each is searched by itself."
    separate = TestClient(app_of(folder, separate=why), base_url="http://127.0.0.1:8000")  # type: ignore[arg-type]
    with separate:
        answers = separate.get("/api/libraries/search", params={"q": "dog runs beach"}).json()
        assert not answers["joined"] and answers["why_separate"] == why
        assert [each["library"] for each in answers["answers"]] == ["FILMS", "FAMILY"]
        assert all(len(each["answer"]["hits"]) == 2 for each in answers["answers"])
        assert separate.get("/api/index").json()["library"] == "FILMS"  # the first has the address of all


def test_the_guard_stands_before_every_library(folder: Path) -> None:
    limits = replace(PLENTY, burst=20, rate=0.001)
    settings = ServeSettings(token=TOKEN, limits=limits)
    with TestClient(app_of(folder, settings), base_url="http://127.0.0.1:8000") as client:  # type: ignore[arg-type]
        for path in ("/api/index", "/FILMS/api/index", "/FAMILY/metrics", "/FAMILY/api/libraries"):
            assert client.get(path).status_code == 401
            assert client.get(path, headers={"host": "elsewhere.example"}).status_code == 421
        codes = [client.get("/FILMS/api/index").status_code for _ in range(30)]
        assert 429 in codes and client.get("/FAMILY/api/index").status_code == 429  # one limit for all


@pytest.mark.parametrize(
    "target", ["*", "?q=1", "FILMS", "http://127.0.0.1:8000/", "//FILMS//", "/FILMS?q=1"]
)
def test_no_target_brings_a_server_error(folder: Path, target: str) -> None:
    with serving(app_of(folder), ServeSettings(limits=PLENTY)) as address:
        parts = urlsplit(address)
        with socket.create_connection((parts.hostname, parts.port), timeout=30) as connection:
            connection.sendall(f"OPTIONS {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            answer = connection.recv(1000)
    assert answer.startswith(b"HTTP/1.1 ") and answer.split()[1] in (b"308", b"400", b"404", b"405"), answer


def test_a_remote_server_lists_its_libraries(folder: Path) -> None:
    with serving(app_of(folder), ServeSettings(limits=PLENTY)) as address:
        remote = holmes.connect(address)
        assert {name: len(each) for name, each in remote.libraries.items()} == {"FILMS": 2, "FAMILY": 2}
        home = holmes.connect(f"{address}/FAMILY")
        assert home.search("man eats soup").hits[0].video.endswith("kitchen.mkv")
        assert list(home.libraries) == ["FILMS", "FAMILY"] and len(home.libraries["FILMS"]) == 2
        (answer,) = home.search_libraries("man eats soup").values()
        assert len(answer) == 4


def test_names_of_libraries_are_checked() -> None:
    assert libraries_of(["INDEX"]) == {"": "INDEX"} and libraries_of(["s3://x/y"]) == {"": "s3://x/y"}
    assert libraries_of(["A=x", "B=y=z"]) == {"A": "x", "B": "y=z"} and libraries_of(["A=x"]) == {"A": "x"}
    for words, reason in (
        (["x", "y"], "write NAME=INDEX"),
        (["A=x", "A=y"], "two libraries"),
        (["api=x", "B=y"], "a page"),
        (["../a=x", "B=y"], "write NAME=INDEX"),
    ):
        with pytest.raises(HolmesError, match=reason):
            libraries_of(words)


@pytest.mark.skipif(chromium() is None, reason="no chromium: the page is not tested")
def test_the_page_switches_between_libraries(folder: Path) -> None:
    with serving(app_of(folder), ServeSettings(limits=PLENTY)) as address, launched() as browser:
        page = browser.new_page(base_url=address, viewport={"width": 390, "height": 844})
        faults: list[str] = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.goto("/?q=man+eats+soup")
        page.wait_for_selector(".card h3 >> text=kitchen.mkv")
        choice = page.get_by_label("Library", exact=True)
        choice.wait_for()
        assert "FAMILY" in page.locator(".card .folder").first.inner_text(), "a hit names its library"
        assert page.locator(".top").bounding_box()["height"] < 130, "two rows on a phone"
        assert choice.locator("option").all_inner_texts() == ["All libraries", "FILMS", "FAMILY"]
        assert violations(page) == []
        choice.select_option("FAMILY")
        page.wait_for_url("**/FAMILY/?q=man+eats+soup")
        until(page, "document.querySelectorAll('.card h3').length === 2")
        until(page, "document.querySelector('.card img')?.complete")
        page.get_by_role("link", name="Library", exact=True).click()
        page.wait_for_url("**/FAMILY/library")
        page.wait_for_selector("text=kitchen.mkv")
        page.get_by_label("Library", exact=True).select_option("FILMS")
        page.wait_for_url("**/FILMS/library*")
        page.wait_for_selector("text=pier.mp4")
        assert faults == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    why = "FILMS and FAMILY have different models, so each is searched by itself."
    with (
        serving(app_of(folder, separate=why), ServeSettings(limits=PLENTY)) as address,
        launched() as browser,
    ):
        page = browser.new_page(base_url=address)
        late: list[Any] = []  # the answer is shown before the server says which libraries it has
        page.route("**/api/index", lambda route: late.append(route))
        page.goto("/?q=man+eats+soup")
        page.wait_for_selector(".card h3")
        for route in late:
            route.continue_()
        page.wait_for_selector(".other-libraries a >> text=FAMILY")
        assert why in page.locator(".other-libraries").inner_text()
        page.unroute("**/api/index")
        nothing = {"status": 409, "json": {"error": "the index contains no videos."}}
        page.route("**/api/search?*", lambda route: route.fulfill(**nothing))
        page.route("**/api/index", lambda route: route.fulfill(json={**route.fetch().json(), "videos": 0}))
        page.reload()
        page.wait_for_selector(".empty:not(.error) >> text=There are no videos yet.")
        page.wait_for_selector(".other-libraries a >> text=FAMILY")
