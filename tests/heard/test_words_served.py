"""Words over HTTP and on the page: transcripts, quotes, captions; whatever they contain, they are text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import holmes
from browser import chromium, launched, serving, small_targets, violations
from holmes.heard.hearing import Hearing
from holmes.index.ingest.hearing import hear_index
from holmes.serve.settings import Limits, ServeSettings
from serve_fakes import client_of
from spoken_films import film

TEXT = "<img src=x onerror=alert(1)> The captain & his crew painted the boat"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    for name, words in (("boat", TEXT.replace("<", "&lt;")), ("clock", "My grandfather repaired clocks")):
        film(folder / f"{name}.mp4", 4.0)
        (folder / f"{name}.srt").write_text(f"1\n00:00:01,000 --> 00:00:03,000\n{words}\n")
    holmes.build_index(folder / "index", sorted(folder.glob("*.mp4")), hear=False)
    hear_index(folder / "index", Hearing(speech="", screen=False))
    return folder / "index"


@pytest.fixture(scope="module")
def client(index: Path) -> Iterator[TestClient]:
    with client_of(holmes.open_index(index, device="cpu")) as client:
        yield client


def test_hits_and_transcripts_over_http(client: TestClient, index: Path) -> None:
    (hit, *_) = client.get("/api/search", params={"q": "the captain painted a boat"}).json()["hits"]
    assert hit["title"] == "boat.mp4" and hit["because"][0] == "said"
    (quote,) = hit["quotes"]
    marked = {quote["text"][start:end] for start, end in quote["marks"]}
    assert {"captain", "painted", "boat"} <= marked
    heard = client.get(f"/api/videos/{hit['id']}/transcript").json()
    assert heard["heard"] and heard["sources"] == {"subtitles": "boat.srt"}
    assert [passage["start"] for passage in heard["passages"]] == [1.0]
    vtt = client.get(f"/api/videos/{hit['id']}/transcript", params={"format": "vtt"})
    assert vtt.headers["content-type"].startswith("text/vtt") and "<img" not in vtt.text
    assert client.get(f"/api/videos/{hit['id']}/transcript", params={"format": "exe"}).status_code == 422
    assert client.get("/api/videos/unknown/transcript").status_code == 404


@pytest.mark.skipif(chromium() is None, reason="there is no chromium: apt-get install chromium")
def test_the_page_shows_quotes_and_a_transcript_that_follows(index: Path) -> None:
    settings = ServeSettings(limits=Limits(rate=1e6, burst=10**6))
    opened = holmes.open_index(index, device="cpu")
    with serving(opened, settings) as address, launched() as browser:
        page = browser.new_context(base_url=address, viewport={"width": 1200, "height": 900}).new_page()
        errors: list[object] = []
        page.on("pageerror", lambda error: errors.append(error))
        page.on("dialog", lambda dialog: errors.append(dialog))
        page.goto("/?q=the captain painted a boat")
        quote = page.locator(".card .quote").first
        quote.wait_for()
        assert "captain" in quote.locator("mark").all_inner_texts()
        assert page.locator(".card .because [aria-label='found by what is said']").count() >= 1
        assert page.locator(".quotes img").count() == 0
        quote.click()
        page.wait_for_selector(".transcript li[data-now]", timeout=20_000)
        assert "onerror" in page.locator(".transcript li").first.inner_text()
        assert page.evaluate("document.querySelector('video').textTracks[0].cues.length") == 1
        page.get_by_role("button", name="Captions").click()
        assert page.evaluate("document.querySelector('video').textTracks[0].mode") == "showing"
        page.get_by_label("Find in the transcript").fill("nothing like it")
        page.get_by_text("No line has these words.").wait_for()
        page.get_by_label("Find in the transcript").fill("CREW")
        assert page.locator(".transcript li:visible").count() == 1
        page.locator(".transcript li button").first.click()
        assert violations(page) == []
        page.set_viewport_size({"width": 1024, "height": 768})
        tops = page.locator(".controls > button:visible").evaluate_all(
            "all => all.map((one) => one.offsetTop)"
        )
        assert len({round(top / 20) for top in tops}) <= 2, "the buttons are two rows beside a transcript"
        page.set_viewport_size({"width": 390, "height": 844})
        assert small_targets(page) == [] and page.evaluate("document.documentElement.scrollWidth") <= 390
        assert not errors


def test_a_served_index_gives_transcripts_to_python(index: Path) -> None:
    settings = ServeSettings(limits=Limits(rate=1e6, burst=10**6))
    opened = holmes.open_index(index, device="cpu")
    with serving(opened, settings) as address:
        remote = holmes.connect(address)
        video = next(name for name in remote.videos if name.endswith("boat.mp4"))
        there, here = remote.transcript(video), opened.transcript(video)
        assert there is not None and here is not None and there.passages == here.passages
        hit, same = (each.search("the captain painted a boat")[0] for each in (remote, opened))
        assert hit.quotes == same.quotes and hit.because == same.because
