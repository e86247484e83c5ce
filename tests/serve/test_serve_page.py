"""The page in a real browser: search, watch, understand, filter; by mouse, by keys and on a phone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from browser import PATIENCE, chromium, close, launched, serving, small_targets, until, violations
from holmes.index.answer.searcher import Index
from holmes.serve.settings import ServeSettings
from holmes.worlds.rendered.film import write_film
from media_files import video
from serve_fakes import FILMS, PLENTY, FakeDiagnose, build, film, open_fake

pytestmark = pytest.mark.skipif(chromium() is None, reason="no chromium: the page is not tested")

Scenes = list[tuple[str, float, tuple[int, int, int]]]
OLD: Scenes = [("horse jumps fence", 5, (90, 140, 80)), ("crowd claps hands", 4, (60, 60, 90))]
BROKEN: Scenes = [("ship leaves harbour", 4, (20, 40, 90))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Films that browsers play, one upright, one they do not, one that nothing plays, one that is gone."""
    folder = tmp_path_factory.mktemp("page")
    twin: Scenes = [("dog runs beach", 4, (200, 170, 60)), ("night falls", 5, (10, 10, 30))]
    films = {
        **FILMS,
        "old/race.mkv": OLD,
        "old/ship.mp4": BROKEN,
        "old/gone.mp4": [("bird sings", 4, (9, 99, 9))],
    }
    build(folder, {**films, "beach/twin.mp4": twin})
    film(folder / "films" / "old" / "race.mkv", OLD, codec="mpeg4")
    upright = [np.full((64, 36, 3), (n % 50, 80, 90), np.uint8) for n in range(90)]
    video(folder / "films" / "beach" / "twin.mp4", upright, [n / 10 for n in range(90)])
    (folder / "films" / "old" / "ship.mp4").write_bytes(b"this is no film" * 100)
    (folder / "films" / "old" / "gone.mp4").unlink()
    return folder


@pytest.fixture(scope="module")
def index(folder: Path) -> Iterator[Index]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield open_fake(folder / "index", monkeypatch, FakeDiagnose())


@pytest.fixture(scope="module")
def address(index: Index) -> Iterator[str]:
    with serving(index, ServeSettings(limits=PLENTY)) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as browser:
        yield browser


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    yield from visit(browser, address)


def visit(browser: Any, address: str, **options: Any) -> Iterator[Any]:
    """A page of its own, whose errors fail the test."""
    context = browser.new_context(base_url=address, **{"viewport": {"width": 1200, "height": 900}, **options})
    context.set_default_timeout(PATIENCE)
    page, faults = context.new_page(), []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda line: faults.append(line.text) if "Content Security" in line.text else None)
    yield page
    close(context)
    assert faults == []


def ask(page: Any, sentence: str) -> None:
    page.goto("/")
    page.fill("#q", sentence)
    page.wait_for_selector(".card:not(.ghost)")


def card(page: Any, title: str) -> Any:
    return page.locator(".card", has=page.locator("h3", has_text=re.compile(f"^{re.escape(title)}$")))


def position(page: Any) -> float:
    return float(page.evaluate("document.querySelector('video').currentTime"))


def wait_for_film(page: Any) -> None:
    until(page, "document.querySelector('video')?.readyState >= 2")


def test_typing_finds_and_the_address_says_what(page: Any) -> None:
    page.goto("/")
    assert page.locator("h1").inner_text() == "Find a moment"
    page.locator("#q").press_sequentially("water boils", delay=5)
    page.wait_for_selector(".card h3 >> text=kitchen.mkv")
    assert card(page, "kitchen.mkv").locator(".rank").inner_text() == "1"
    assert page.url.endswith("/?q=water+boils") and page.title() == "water boils · Holmes"
    assert re.fullmatch(r"8 videos in \d+ ms|8 videos in .* s", page.locator("#status").inner_text())
    strip = card(page, "kitchen.mkv").locator(".strip")
    assert strip.get_attribute("role") == "slider" and "in the best moment" in strip.get_attribute(
        "aria-valuetext"
    )
    assert strip.locator("stop").count() >= 8 and strip.locator(".mark.best").count() == 1
    page.reload()
    page.wait_for_selector(".card h3 >> text=kitchen.mkv")
    assert page.input_value("#q") == "water boils"


def test_a_click_plays_from_the_moment_and_the_strip_seeks(page: Any) -> None:
    ask(page, "dog runs pier")
    hit = card(page, "pier.mp4")
    hit.locator(".poster").click()
    wait_for_film(page)
    until(page, "document.querySelector('video').currentTime >= 4.4")
    assert 4.4 <= position(page) <= 7  # the moment lasts from 5 to 9
    page.keyboard.press("Space")
    until(page, "document.querySelector('video').paused")
    box = hit.locator(".strip").bounding_box()
    page.mouse.click(box["x"] + 0.2 * box["width"], box["y"] + 10)
    until(page, "Math.abs(document.querySelector('video').currentTime - 1.8) < 1.2")
    assert "play=pier" in page.url and "t=1.8" in page.url
    assert page.locator("video").count() == 1
    card(page, "coast.mp4").locator(".poster").click()
    assert page.locator("video").count() == 1 and card(page, "coast.mp4").locator("video").count() == 1


def test_a_link_leads_back_to_the_moment(page: Any, address: str) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=address)
    ask(page, "dog runs pier")
    card(page, "pier.mp4").get_by_role("button", name="Copy link").click()
    page.wait_for_selector(".toast.shown")
    page.goto(page.evaluate("navigator.clipboard.readText()"))
    page.wait_for_selector(".card.playing video")
    wait_for_film(page)
    assert 4.4 <= position(page) <= 7 and card(page, "pier.mp4").locator("video").count() == 1


def test_what_the_browser_cannot_play_is_converted(page: Any) -> None:
    ask(page, "crowd claps hands")
    card(page, "race.mkv").locator(".poster").click()
    page.wait_for_selector(".player .note:not(:empty)")
    until(page, "document.querySelector('video').src.includes('convert=')")
    wait_for_film(page)
    until(page, "document.querySelector('video').videoWidth === 64")
    offset = float(re.search(r"t=([\d.]+)", page.evaluate("document.querySelector('video').src"))[1])  # type: ignore[index]
    assert 4.4 <= offset + position(page) <= 9 and "converted" in page.locator(".player .note").inner_text()
    shown = page.evaluate(
        """() => { const c = document.createElement('canvas'); c.width = c.height = 1;
        const d = c.getContext('2d'); d.drawImage(document.querySelector('video'), 0, 0, 1, 1);
        return [...d.getImageData(0, 0, 1, 1).data].slice(0, 3); }"""
    )
    assert max(abs(a - b) for a, b in zip(shown, (60, 60, 90), strict=True)) < 25  # no black box


@pytest.mark.parametrize(
    ("sentence", "title", "words"),
    [
        ("ship leaves harbour", "ship.mp4", "it is not a video file"),
        ("bird sings", "gone.mp4", "original file no longer exists"),
    ],
)
def test_what_cannot_be_played_is_shown_in_pictures(page: Any, sentence: str, title: str, words: str) -> None:
    ask(page, sentence)
    hit = card(page, title)
    hit.locator(".poster").click()
    page.wait_for_selector(".film img")
    assert words in hit.locator(".note").inner_text().lower() and page.locator("video").count() == 0
    assert "pictures from it." in hit.locator(".note").inner_text() and ") These" not in hit.inner_text()
    assert hit.locator(".controls button:visible").count() == 1, "nothing is left to do but to close it"
    until(page, "[...document.querySelectorAll('.film img')].every((i) => i.naturalWidth > 0)")
    action = "Download the file" if title == "ship.mp4" else "Look for it again"
    assert hit.locator(".note a").all_inner_texts() == [action]


@pytest.mark.parametrize(
    ("sentence", "name", "sentence_said", "whole"),
    [
        ("man eats soup", "Precise", "One video holds it.", "video 1 90%"),
        ("dog runs beach", "Several fit", "Two videos fit.", "video 2 40%"),
        ("dog", "Too little to go on", "No video leads.", "other videos 13%, not in your collection 20%"),
        ("chess tournament", "Not here, it seems", "Nothing comes near.", "not in your collection 80%"),
    ],
)
def test_the_kinds_of_diagnosis(page: Any, sentence: str, name: str, sentence_said: str, whole: str) -> None:
    ask(page, sentence)
    panel = page.locator(".diagnosis")
    assert panel.locator(".kind").inner_text().strip().lower() == name.lower()
    assert panel.locator(".explanation").inner_text() == sentence_said
    assert whole in panel.locator(".bar").get_attribute("aria-label")
    assert panel.locator(".advice").inner_text() == "Add a detail."
    assert panel.locator(".why").count() == 1 and not panel.locator(".reasons").is_visible()
    panel.locator(".why summary").click()
    assert panel.locator(".reasons").is_visible() and "Evidence" not in panel.inner_text()
    shares = panel.locator(".part").evaluate_all("parts => parts.map((p) => Number(p.style.flexGrow))")
    assert sum(shares) == pytest.approx(1, abs=0.02)  # one whole
    headings = page.locator("h2.group").all_inner_texts()
    nearest = ["These videos come nearest"] if name.startswith("Not here") else []
    assert headings == (["Likely one of these 2", "Less likely"] if name == "Several fit" else nearest)
    said = page.locator(".card").first.locator(".sure").inner_text().split()
    assert said[-1] == {"Precise": "90%", "Several fit": "45%"}.get(name, said[-1]) and len(said) >= 2


def test_filters_narrow_and_stay_in_the_address(page: Any) -> None:
    ask(page, "dog")
    where = page.locator(".filters summary").bounding_box()
    page.locator(".filters summary").click()
    assert page.locator(".filters summary").bounding_box() == where
    fields = page.locator(".fields").bounding_box()
    assert all(
        part["y"] + part["height"] <= fields["y"] for part in (where, page.locator(".exports").bounding_box())
    )
    option = page.locator("#folder option", has_text="/beach (3)").get_attribute("value")
    page.select_option("#folder", option)
    until(page, "document.querySelectorAll('.card').length === 3")
    page.select_option("#length", label="1 to 10 minutes")
    page.wait_for_selector(".empty >> text=No video matches these filters")
    assert "folder=" in page.url and "shortest=60" in page.url
    page.reload()
    page.wait_for_selector(".empty")
    page.get_by_role("button", name="Clear the filters").press("Enter")
    until(page, "document.querySelectorAll('.card').length === 8")
    assert page.evaluate("document.activeElement.id") == "content", "the button is gone"
    page.locator(".filters summary").click()
    page.fill("#after", "2090-01-01")
    page.wait_for_selector(".empty")
    page.go_back()
    until(page, "document.querySelectorAll('.card').length === 8")


def test_a_folder_counts_all_below_it(page: Any) -> None:
    counts = {"/films/home": 5, "/films/trips": 2, "/films/trips/2024": 3, "/films/trips/2024/may": 4}

    def nested(route: Any) -> None:
        folders = [{"folder": folder, "videos": videos} for folder, videos in counts.items()]
        route.fulfill(json={**route.fetch().json(), "folders": folders})

    page.route("**/api/index", nested)
    page.goto("/library")
    page.wait_for_selector(".tree")
    assert page.locator("#folder option").all_text_contents() == [
        "all folders",
        "/films (14)",
        "/films/home (5)",
        "/films/trips (9)",
        "/films/trips/2024 (7)",
        "/films/trips/2024/may (4)",
    ]
    assert page.locator(".folder-name b").all_text_contents()[1:] == ["5", "9", "7", "4"]


def test_the_tree_stays_as_it_is(page: Any) -> None:
    def many(route: Any) -> None:
        names = ["a/deep/one", "a/deep/two", "a/flat", *(f"b{at}" for at in range(12))]
        folders = [{"folder": f"/films/{name}", "videos": 2} for name in names]
        route.fulfill(json={**route.fetch().json(), "folders": folders})

    def shown() -> list[str]:
        return [
            name for name in page.locator(".folder-name:visible span").all_inner_texts() if name[0] != "b"
        ]

    page.route("**/api/index", many)
    page.goto("/library?folder=/films/a/deep")
    page.wait_for_selector(".folder-name[aria-current]")
    everything = ["All videos", "a", "deep", "one", "two", "flat"]
    assert shown() == everything, "the chosen folder is open, and what is around it"
    page.get_by_role("button", name="Hide the folders in deep").click()
    page.select_option("#sort", label="Name")
    page.wait_for_selector("#busy[hidden]", state="attached")
    assert shown() == ["All videos", "a", "deep", "flat"]
    page.get_by_role("button", name="flat 2").click()
    until(page, "document.querySelector('.folder-name[aria-current]').textContent === 'flat2'")
    assert page.evaluate("document.activeElement.textContent") == "flat2"
    assert shown() == ["All videos", "a", "deep", "flat"]
    page.get_by_role("button", name="Hide the folders in a").click()
    page.locator(".library .filters summary").click()
    page.select_option("#folder", "/films/a/deep/two")
    until(page, "document.querySelector('.folder-name[aria-current]').textContent === 'two2'")
    assert shown() == everything
    page.set_viewport_size({"width": 390, "height": 844})
    page.get_by_role("button", name="All videos").click()
    until(page, "!document.querySelector('.folders').open")
    assert page.evaluate("document.activeElement.textContent") == "Folders", "the tree makes room"
    page.wait_for_selector("#busy[hidden]", state="attached")  # nothing is asked for any more


def test_everything_by_keys(page: Any) -> None:
    ask(page, "dog runs pier")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "q"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    assert page.evaluate("document.activeElement.querySelector('h3').textContent") == "pier.mp4"
    page.keyboard.press("Enter")
    page.wait_for_selector(".card.playing video")
    wait_for_film(page)
    until(page, "!document.querySelector('video').paused")
    assert position(page) >= 4.4
    page.keyboard.press("Space")
    until(page, "document.querySelector('video').paused")
    page.locator(".card.playing .strip").focus()
    page.keyboard.press("Home")
    page.evaluate(
        "document.querySelector('video').dispatchEvent(new Event('timeupdate'))"
    )  # as a film that plays
    page.keyboard.press("Enter")
    until(page, "document.querySelector('video').currentTime < 2")
    page.keyboard.press("Escape")
    until(page, "document.querySelector('video') === null")
    page.keyboard.press("?")
    assert page.locator("dialog[open]").get_by_text("play its best moment").count() == 1
    page.keyboard.press("Escape")
    until(page, "document.querySelector('dialog') === null")
    card(page, "coast.mp4").get_by_role("link").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(".watch .player")
    page.keyboard.press("Escape")
    until(page, "document.activeElement.textContent === 'coast.mp4'")
    page.keyboard.press("ArrowUp")
    assert page.evaluate("document.activeElement.querySelector('h3').textContent") == "pier.mp4"
    page.get_by_role("button", name="Keys").click()
    page.locator("dialog[open]").get_by_text("play its best moment").wait_for()


def test_more_like_this_moment(page: Any) -> None:
    ask(page, "dog runs beach")
    card(page, "coast.mp4").get_by_role("button", name="More like this").click()
    page.wait_for_selector(".query-shown >> text=coast.mp4 at 0:0")
    page.wait_for_selector(".card h3 >> text=twin.mp4")
    assert page.locator(".filters").is_hidden(), "look-alikes have no filters"
    assert (
        card(page, "twin.mp4").locator(".rank").inner_text() == "1" and card(page, "coast.mp4").count() == 0
    )
    page.go_back()
    page.wait_for_selector(".diagnosis")
    assert page.input_value("#q") == "dog runs beach" and page.locator(".filters").is_visible()


def test_errors_say_why_and_can_be_tried_again(page: Any) -> None:
    reason = {"status": 503, "json": {"error": "too many searches are waiting."}}
    page.route("**/api/search?*", lambda route: route.fulfill(**reason))
    page.goto("/?q=sun+sets")
    page.wait_for_selector("[role=alert] >> text=Too many searches are waiting.")
    page.unroute("**/api/search?*")
    page.get_by_role("button", name="Try again").click()
    page.wait_for_selector(".card h3 >> text=coast.mp4")
    assert page.locator(".error").count() == 0


def test_a_server_that_is_gone_greys_what_it_said(page: Any) -> None:
    ask(page, "dog")
    page.route("**/api/**", lambda route: route.abort())
    page.fill("#q", "sun sets")
    banner = page.locator(".gone-banner")
    banner.get_by_text("The server does not answer").wait_for()
    until(page, "getComputedStyle(document.querySelector('.card img')).opacity < 0.6")
    export = page.locator(".exports summary")
    assert export.get_attribute("aria-disabled") == "true"
    export.click(force=True)
    assert page.locator(".exports[open]").count() == 0 and page.locator(".card").count() == 8
    assert violations(page) == []
    page.unroute("**/api/**")
    banner.locator("button").evaluate("(one) => one.click()")  # it may have come back by itself meanwhile
    until(page, "document.querySelector('.card h3').textContent === 'coast.mp4'")  # what was asked last
    assert not banner.is_visible() and export.get_attribute("aria-disabled") == "false"


def test_a_server_that_is_gone_is_said_once(page: Any) -> None:
    page.goto("/library")
    page.wait_for_selector(".grid .tile img")
    page.route("**/api/**", lambda route: route.abort())
    page.select_option("#sort", label="Name")
    page.locator(".gone-banner").get_by_text("These are old results").wait_for()
    assert page.locator(".error").count() == 0 and page.locator(".grid .tile").count() == 8
    page.get_by_role("link", name="Holmes", exact=True).click()
    page.wait_for_selector(".empty.error >> text=The server does not answer")
    assert page.locator(".gone-banner").is_hidden(), "nothing is there from before"
    assert page.get_by_role("button", name="Try again").count() == 1 and violations(page) == []
    page.unroute("**/api/**")
    page.wait_for_selector(".welcome")  # by itself
    page.go_back()
    until(page, "document.querySelector('.grid .title')?.textContent.startsWith('<b>party')")


def test_a_library_without_a_server_shows_nothing_empty(page: Any) -> None:
    page.route("**/api/**", lambda route: route.abort())
    page.goto("/library")
    page.wait_for_selector(".empty.error >> text=The server does not answer")
    assert page.locator("details:visible").count() == 1, "only the filters can be opened"
    page.unroute("**/api/**")
    page.wait_for_selector(".tree")  # by itself


def test_a_film_goes_on_when_the_server_is_back(page: Any) -> None:
    ask(page, "dog runs pier")
    page.route("**/api/**", lambda route: route.abort())
    card(page, "pier.mp4").locator(".poster").click()
    page.locator(".gone-banner").get_by_text("The server does not answer").wait_for()
    assert page.locator(".film").count() == 0, "it can be played, as soon as the server answers"
    page.unroute("**/api/**")
    wait_for_film(page)
    assert position(page) >= 4.4 and page.locator(".player .note").inner_text() == ""


def test_an_unknown_address_leads_back_to_the_search(page: Any) -> None:
    answer = page.goto("/no/such/page")
    assert answer.status == 404 and page.get_by_role("heading").inner_text() == "There is no such page."
    page.get_by_role("link", name="Search your videos").click()
    page.wait_for_selector("#q")
    told = page.request.get("/no/such/page", headers={"accept": "application/json"})
    assert told.status == 404 and told.json() == {"error": "not found."}
    told = page.request.get("/api/nothing", headers={"accept": "text/html"})
    assert told.status == 404 and told.json() == {"error": "not found."}, "the API always answers in JSON"


def test_it_shows_that_it_works_and_only_the_last_answer_counts(page: Any) -> None:
    ask(page, "dog")
    waiting: list[Any] = []
    page.route("**/api/search?*rain*", lambda route: waiting.append(route))
    page.fill("#q", "rain falls")
    page.wait_for_selector("#busy:not([hidden])")
    until(page, "document.querySelector('.results').getAttribute('aria-busy') === 'true'")
    page.fill("#q", "sun sets")
    page.wait_for_selector(".card h3 >> text=coast.mp4")
    for route in waiting:
        route.abort()
    until(page, "document.title === 'sun sets · Holmes' && document.getElementById('busy').hidden")
    assert page.locator(".error").count() == 0
    assert card(page, "coast.mp4").locator(".rank").inner_text() == "1"


def test_a_slow_search_says_so_and_can_be_stopped(page: Any) -> None:
    ask(page, "dog")
    page.route("**/api/search?*", lambda route: None)  # never answered
    page.fill("#q", "sun sets")
    page.get_by_text("Searching…", exact=False).locator("visible=true").wait_for()
    assert violations(page) == [], "what was found before stays readable"
    page.get_by_role("button", name="Stop").press("Enter")
    page.wait_for_selector(".empty >> text=The search was stopped.")
    assert page.evaluate("document.activeElement.textContent") == "Search again"
    assert page.locator(".card").count() == 0 and page.locator("#busy").is_hidden()
    page.unroute("**/api/search?*")
    page.get_by_role("button", name="Search again").click()
    page.wait_for_selector(".card h3 >> text=coast.mp4")
    assert page.get_by_role("button", name="Stop").is_hidden() and page.locator(".found").first.is_visible()


def test_names_are_text_never_markup(page: Any) -> None:
    ask(page, "children blow candles")
    assert page.locator(".card h3").first.inner_text() == "<b>party & games.mp4"
    assert page.locator("h3 b").count() == 0


def test_recent_searches_stay_in_the_browser(page: Any) -> None:
    ask(page, "sun sets")
    until(page, "(localStorage.getItem('holmes.recent') ?? '').includes('sun sets')")
    page.goto("/")
    page.get_by_role("link", name="sun sets").click()
    page.wait_for_selector(".card h3 >> text=coast.mp4")
    page.goto("/")
    page.get_by_role("button", name="Forget them").click()
    assert page.locator(".recent").count() == 0


def test_exports_are_offered_for_what_is_shown(page: Any) -> None:
    ask(page, "sun sets")
    page.locator(".exports summary").click()
    page.keyboard.press("Escape")
    assert page.locator(".exports[open]").count() == 0
    page.locator(".exports summary").click()
    page.locator(".diagnosis").click()
    assert page.locator(".exports[open]").count() == 0
    page.locator(".exports summary").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="The answer (JSON)").click()
    assert download.value.suggested_filename == "sun-sets.json"
    assert "coast.mp4" in Path(download.value.path()).read_text()


def test_the_library_lists_what_the_index_holds(page: Any) -> None:
    page.goto("/library")
    page.wait_for_selector(".grid .title")
    assert page.locator(".grid .tile").count() == 8
    page.locator(".index-facts summary").click()
    facts = dict(zip(page.locator("dt").all_inner_texts(), page.locator("dd").all_inner_texts(), strict=True))
    assert page.locator(".top [aria-current='page']").all_inner_texts() == ["Library"]
    assert facts["Videos"] == "8" and facts["Model"] == "fake (zero-shot)"
    assert page.get_by_text("file is gone").count() == 1 and page.get_by_text("Add videos").count() == 0
    page.fill("#part", "kitch")
    until(page, "document.querySelectorAll('.grid .tile').length === 1")
    assert page.url.endswith("name=kitch")
    page.get_by_role("link", name="Holmes", exact=True).click()
    page.wait_for_selector(".welcome")
    assert page.locator(".top [aria-current]").count() == 0


PLACEHOLDER = """(() => {
  const input = document.getElementById('q'), style = getComputedStyle(input);
  const text = document.createElement('canvas').getContext('2d');
  text.font = style.font;
  const room = input.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  return text.measureText(input.placeholder).width <= room;
})()"""


@pytest.mark.parametrize("width", [320, 390, 1600])
def test_no_width_needs_scrolling_sideways(browser: Any, address: str, width: int) -> None:
    for page in visit(browser, address, viewport={"width": width, "height": 800}):
        for path in ("/", "/?q=dog+runs+beach", "/library"):
            page.goto(path)
            page.wait_for_selector(".welcome, .card:not(.ghost), .grid .title")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
            assert page.evaluate(PLACEHOLDER), path
            assert width > 720 or small_targets(page) == [], path
        page.goto("/?q=dog+runs+pier")
        card(page, "pier.mp4").locator(".poster").click()
        wait_for_film(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert position(page) >= 4.4


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(browser: Any, address: str, scheme: str) -> None:
    rules = () if scheme == "light" else ("color-contrast",)  # the rest does not depend on colours
    for page in visit(browser, address, color_scheme=scheme, reduced_motion="reduce"):
        page.goto("/")
        page.wait_for_selector(".welcome")
        assert violations(page, *rules) == []
        for sentence in ("man eats soup", "dog runs beach", "dog", "chess tournament"):
            ask(page, sentence)
            page.locator(".filters summary").click()
            page.locator(".exports summary").click()
            assert violations(page, *rules) == [], sentence
        ask(page, "dog runs pier")
        card(page, "pier.mp4").locator(".poster").click()
        wait_for_film(page)
        assert violations(page, *rules) == []
        page.keyboard.press("?")
        assert violations(page, *rules) == []
        page.goto("/library")
        page.wait_for_selector(".grid .title")
        assert violations(page, *rules) == []
        page.locator(".grid .open", has_text="pier.mp4").click()
        page.wait_for_selector(".scenes img")
        page.wait_for_selector(".alike .tile")
        assert violations(page, *rules) == []
        page.goto("/?q=dog&shortest=3600")
        page.wait_for_selector(".empty >> text=No video matches")
        assert violations(page, *rules) == []
        page.goto("/watch?video=absent")
        page.wait_for_selector(".error >> text=This video is not in the index")
        assert violations(page, *rules) == []
        page.route("**/api/search?*", lambda route: None)  # never answered
        page.goto("/?q=dog")
        page.wait_for_selector(".card.ghost")
        assert violations(page, *rules) == []
        page.unroute("**/api/search?*")
        page.set_viewport_size({"width": 390, "height": 800})
        ask(page, "ship leaves harbour")
        card(page, "ship.mp4").locator(".poster").click()
        page.wait_for_selector(".film img")
        assert violations(page, *rules) == []


def synthetic(route: Any, request: Any) -> None:
    """A library of 10,000 videos, in place of the server's own."""
    from urllib.parse import parse_qs, urlsplit

    asked = {name: value[0] for name, value in parse_qs(urlsplit(request.url).query).items()}
    first, count = int(asked["offset"]), int(asked["limit"])
    videos = [
        {
            "id": f"v{at}",
            "name": f"/films/{at}.mp4",
            "title": f"film {at}.mp4",
            "folder": "/films",
            "duration": 60 + at,
            "date": "2024-05-01",
            "file": True,
            "note": "it ends early" if at == 1 else None,
        }
        for at in range(first, min(first + count, 10_000))
    ]
    route.fulfill(json={"total": 10_000, "videos": videos})


def test_the_start_is_never_empty(page: Any) -> None:
    page.goto("/")
    page.wait_for_selector(".questions a")
    assert page.locator(".questions a").count() == 1, "only sentences whose first hit fits"
    rows = page.locator(".row h2").all_inner_texts()
    assert rows == ["Newest files", "Newly added"] and page.locator(".tiles .tile").count() == 16
    left = [page.locator(one).first.bounding_box()["x"] for one in (".row-head h2", ".tiles .tile")]
    assert left[0] == left[1], "pictures stand below their title"
    page.locator(".questions a").first.click()
    page.wait_for_selector(".card:not(.ghost)")
    page.go_back()
    until(page, "document.activeElement.closest('.questions')")
    page.locator(".tiles .open").first.click()
    page.wait_for_selector(".watch .player")
    page.route("**/api/examples", lambda route: None)  # never answered
    page.goto("/")
    page.wait_for_selector(".row h2 >> text=Opened last")
    until(page, "document.getElementById('busy').hidden")  # what is there can be used


def test_a_library_without_videos_says_what_to_do(page: Any) -> None:
    def empty(route: Any) -> None:
        answer = route.fetch()
        route.fulfill(json={**answer.json(), "videos": 0, "folders": []})

    page.route("**/api/index", empty)
    page.route("**/api/videos?*", lambda route: route.fulfill(json={"total": 0, "videos": []}))
    for path in ("/", "/library"):
        page.goto(path)
        page.wait_for_selector(".empty >> text=There are no videos yet")
        assert "holmes index add" in page.locator(".command").inner_text() and violations(page) == []
    reason = {"status": 400, "json": {"error": "the index is empty."}}
    page.route("**/api/search?*", lambda route: route.fulfill(**reason))  # before the index is described
    page.goto("/?q=dog")
    page.locator(".empty:not(.error)").get_by_role("link", name="Open the library").click()
    page.wait_for_selector(".empty >> text=There are no videos yet")


def test_the_library_is_sorted_and_kept_by_folder(page: Any) -> None:
    page.goto("/library")
    page.wait_for_selector(".grid .title")

    def titles() -> list[str]:
        return [text for text in page.locator(".grid .title").all_inner_texts()]

    added = titles()
    page.select_option("#sort", label="Name")
    until(page, "document.querySelector('.grid .title').textContent.startsWith('<b>party')")
    assert titles() == sorted(added, key=str.casefold) and "sort=name" in page.url
    page.select_option("#sort", label="Longest")
    until(page, "document.querySelector('.grid .title').textContent === 'kitchen.mkv'")
    page.get_by_role("navigation", name="Folders").get_by_role("button", name="beach 3").click()
    until(page, "document.querySelectorAll('.grid .tile').length === 3")
    assert page.locator(".found").first.inner_text() == "3 of 8 videos" and "folder=" in page.url
    page.locator(".grid .open").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.closest('li').ariaPosInSet") == "2"
    page.keyboard.press("Enter")
    page.wait_for_selector(".watch .player")
    page.keyboard.press("Escape")
    until(page, "document.activeElement.closest('li')?.ariaPosInSet === '2'")  # where it was
    until(page, "document.querySelectorAll('.grid .tile').length === 3")
    page.locator(".library .filters summary").click()
    page.fill("#after", "2090-01-01")
    page.wait_for_selector(".empty >> text=No video matches.")
    assert "after=2090-01-01" in page.url and violations(page) == []
    page.get_by_role("button", name="Clear the filters").click()
    until(page, "document.querySelectorAll('.grid .tile').length === 8")
    page.select_option("#length", label="1 to 10 minutes")
    page.wait_for_selector(".empty")


def test_ten_thousand_videos_are_few_elements(page: Any) -> None:
    page.route("**/api/videos?*", synthetic)
    page.route("**/thumbnail?*", lambda route: route.abort())
    page.goto("/library")
    page.wait_for_selector(".grid .title >> text=film 0.mp4")
    assert page.locator(".mark-note >> text=read in part").count() == 1
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight / 2)")
    until(
        page,
        "[...document.querySelectorAll('.grid .title')].some((t) => /film [45]\\d{3}/.test(t.textContent))",
    )
    assert page.locator(".grid li").count() < 120
    numbers = page.locator(".grid li").evaluate_all("items => items.map((item) => Number(item.ariaPosInSet))")
    assert numbers == sorted(numbers), "the order of the document is that of the grid"
    chosen = page.locator(".grid .open", has_text=re.compile("film [45]\\d{3}")).first
    name = chosen.inner_text()
    chosen.press("Enter")
    page.wait_for_selector(".watch .error")  # the server has no such video
    page.go_back()
    until(page, f"document.activeElement.innerText === {name!r}")


MADE = """(step) => new Promise((done) => {
  const made = []; let count = 0, before = performance.now();
  const watcher = new MutationObserver((changes) => {
    count += changes.flatMap(({ addedNodes }) => [...addedNodes])
      .filter((one) => one.querySelector?.('.open')).length;
  });
  watcher.observe(document.querySelector('.grid'), { childList: true });
  const frame = (now) => {
    if (now - before < 100) made.push(count);  // after a longer pause, scrolling has ended
    count = 0; before = now;
    scrollBy(0, step);
    if (made.length < 120) requestAnimationFrame(frame); else { watcher.disconnect(); done(made); }
  };
  requestAnimationFrame(frame);
})"""


def test_scrolling_makes_few_tiles_in_a_frame(page: Any) -> None:
    page.route("**/api/videos?*", synthetic)
    page.route("**/thumbnail?*", lambda route: route.abort())
    page.goto("/library")
    page.wait_for_selector(".grid .title >> text=film 0.mp4")
    page.wait_for_timeout(300)
    for step in (18, -18):
        made = page.evaluate(MADE, step)
        assert sum(made) >= 4 and max(made) <= 2, step
    until(page, "[...document.querySelectorAll('.grid .title')].some((t) => t.textContent === 'film 0.mp4')")


def test_pictures_leave_the_connections_to_what_is_asked_for(page: Any) -> None:
    """A browser has six: pictures that are still decoded would keep everything else waiting."""
    asked: list[Any] = []
    dropped: list[Any] = []
    page.on("request", lambda request: asked.append(request) if "/thumbnail?" in request.url else None)
    page.on("requestfailed", lambda request: dropped.append(request))
    page.route("**/thumbnail?*", lambda route: None)  # never answered

    def drops(before: list[Any]) -> None:
        for _ in range(PATIENCE // 20):
            if before and set(before) <= set(dropped):
                return
            page.wait_for_timeout(20)
        raise AssertionError(f"{len(before)} were asked for, {len(dropped)} dropped")

    page.goto("/library")
    page.wait_for_selector(".grid .tile")
    former_order = asked.copy()
    page.select_option("#sort", label="Name")
    until(page, "document.querySelector('.grid .title').textContent.startsWith('<b>party')")
    drops(former_order)
    former_view = asked.copy()
    page.fill("#q", "dog runs pier")
    page.wait_for_selector(".card h3 >> text=pier.mp4")
    drops(former_view)
    former_answer = asked.copy()
    page.fill("#q", "sun sets")
    until(page, "document.querySelector('.card h3').textContent === 'coast.mp4'")
    drops(former_answer)
    page.unroute("**/thumbnail?*")
    page.go_back()
    page.wait_for_selector(".grid .tile")
    seen = "[...document.querySelectorAll('.grid img')].filter((one) => one.naturalWidth).length === 8"
    until(page, seen)


def test_a_video_has_a_view_of_its_own(page: Any) -> None:
    page.goto("/library")
    page.locator(".grid .open", has_text="kitchen.mkv").click()
    page.wait_for_selector(".scenes li:nth-child(3)")
    assert page.locator(".scenes li").count() == 3 and page.title() == "kitchen.mkv · Holmes"
    assert page.locator(".panel dd").first.inner_text() == "0:14"
    wait_for_film(page)
    page.get_by_role("button", name="Scene at 0:08").click()
    until(page, "document.querySelector('.stage video').currentTime >= 7.9")
    page.wait_for_selector(".scenes li[data-now]:nth-child(3)")
    page.wait_for_selector(".alike .tile")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("Space")
    until(page, "document.querySelector('.stage video').paused")
    page.keyboard.press(".")
    page.wait_for_timeout(500)
    for key, moved in ((".", 0.1), (".", 0.1), (",", -0.1)):  # ten frames a second
        before = position(page)
        page.keyboard.press(key)
        page.wait_for_timeout(250)
        assert position(page) - before == pytest.approx(moved, abs=0.05), key
    page.keyboard.press(">")
    assert page.evaluate("document.querySelector('.stage video').playbackRate") == 1.25
    page.get_by_label("Volume").fill("0.5")
    assert page.evaluate("document.querySelector('.stage video').volume") == 0.5
    page.get_by_role("link", name="More like the moment shown now").click()
    page.wait_for_selector(".query-shown >> text=More like kitchen.mkv at 0:0")


def test_steps_are_one_frame_each(page: Any) -> None:
    """Keys come faster than frames are shown, and nothing was played that says how long frames last."""
    page.goto("/library")
    page.evaluate("HTMLMediaElement.prototype.play = async () => {}")
    page.locator(".grid .open", has_text="kitchen.mkv").click()
    wait_for_film(page)
    page.wait_for_timeout(600)
    page.evaluate("document.activeElement.blur()")

    for keys, frame in ((".", 1), (".", 2), ("...", 5), (",", 4)):
        for key in keys:
            page.keyboard.press(key)
        until(page, f"Math.floor(document.querySelector('.stage video').currentTime * 10) === {frame}")
        page.wait_for_timeout(1000)
        assert int(position(page) * 10) == frame, "ten frames a second"


@pytest.fixture(scope="module")
def odd_films(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of a film with three frames a second, and one of which the second half is missing."""
    folder = tmp_path_factory.mktemp("odd")
    seen: dict[str, Scenes] = {
        "slow.mp4": [("rain falls", 5, (90, 100, 110))],
        "cut.mp4": [("ship sinks", 4, (20, 40, 90))],
    }
    build(folder, seen)
    noise = np.random.default_rng(0).integers(0, 255, (80, 48, 64, 3), np.uint8)
    write_film(folder / "films" / "slow.mp4", noise[:15], 3)
    cut = folder / "films" / "cut.mp4"
    write_film(cut, noise, 10)
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    with (
        pytest.MonkeyPatch.context() as monkeypatch,
        serving(open_fake(folder / "index", monkeypatch), ServeSettings(limits=PLENTY)) as address,
    ):
        yield address


def test_a_file_that_was_cut_off_plays_as_far_as_it_goes(browser: Any, odd_films: str) -> None:
    for page in visit(browser, odd_films):
        page.goto("/library")
        page.locator(".grid .open", has_text="cut.mp4").click()
        page.wait_for_selector(".note >> text=The rest of this file cannot be read.")
        assert page.locator(".film").count() == 0 and position(page) > 3
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("Space")
        until(page, "!document.querySelector('video').paused")
        until(page, "0 < document.querySelector('video').currentTime")
        assert position(page) < 3, "from its beginning"
        page.locator(".strip").press("End")
        page.locator(".strip").press("Enter")
        until(page, "document.querySelector('video').error && document.querySelector('video').paused")
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("l")
        page.keyboard.press("Space")
        until(page, "document.querySelector('video').currentTime < 2")
        until(page, "document.querySelector('video').currentTime > 2.5")
        until(page, "document.querySelector('video').currentTime < 2")
        page.keyboard.press("l")


SHOWN = """() => {
  const film = document.querySelector('video');
  const look = (now, { mediaTime }) => { window.shown = mediaTime; film.requestVideoFrameCallback(look); };
  film.requestVideoFrameCallback(look);
  film.addEventListener('seeking', () => { window.seeks += 1; });
}"""


def test_a_slow_film_is_stepped_by_its_own_frames(browser: Any, odd_films: str) -> None:
    for page in visit(browser, odd_films):
        page.goto("/library")
        page.locator(".grid .open", has_text="slow.mp4").click()
        page.wait_for_selector(".stage video")
        page.evaluate(SHOWN)
        until(page, "document.querySelector('video').currentTime > 1.2")
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("Space")
        until(page, "document.querySelector('video').paused")
        page.wait_for_timeout(400)
        frame = round(3 * page.evaluate("window.seeks = 0; window.shown"))
        for step in (1, 2):
            page.keyboard.press(".")
            page.wait_for_timeout(250)
            assert round(3 * page.evaluate("window.shown")) == frame + step
        assert page.evaluate("window.seeks") == 2, "how long frames last was learnt while it played"


def test_only_the_moment_is_played_and_looped(page: Any) -> None:
    ask(page, "dog runs beach")
    hit = card(page, "coast.mp4")
    hit.locator(".poster").click()
    wait_for_film(page)
    times = hit.locator(".moment").inner_text()
    start, end = (int(part.split(":")[1]) for part in times.split("–"))
    assert (start, end) == (4, 7)
    hit.get_by_role("button", name="Play only the moment").click()
    page.evaluate("document.querySelector('.stage video').currentTime = 6.6")
    until(page, "document.querySelector('.stage video').paused")
    assert end - 0.3 <= position(page) <= end + 0.6
    page.keyboard.press("l")
    assert hit.get_by_role("button", name="Loop").get_attribute("aria-pressed") == "true"
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("Space")
    until(page, "!document.querySelector('.stage video').paused")
    page.evaluate("document.querySelector('.stage video').currentTime = 6.6")
    until(page, "document.querySelector('.stage video').currentTime < 6")
    assert not page.evaluate("document.querySelector('.stage video').paused")


def test_hits_of_one_film_are_one_card(page: Any) -> None:
    def twice(route: Any) -> None:
        answer = route.fetch().json()
        first = answer["hits"][0]
        again = {**first, "moments": [{"start": 1.0, "end": 3.0, "score": 0.1}]}
        route.fulfill(json={**answer, "hits": [first, again, *answer["hits"][1:]]})

    page.route("**/api/search?*", twice)
    ask(page, "dog runs pier")
    assert page.locator(".card").count() == 8
    hit = card(page, "pier.mp4")
    assert hit.locator(".poster .span").inner_text() == "0:05–0:09" and hit.locator(".other").count() == 1
    hit.get_by_role("button", name="0:01–0:03").click()
    wait_for_film(page)
    assert hit.locator(".moment").inner_text() == "0:01–0:03" and 0.9 <= position(page) <= 4


def test_moments_play_in_place_under_the_mouse(page: Any) -> None:
    ask(page, "dog runs pier")
    card(page, "pier.mp4").locator(".poster").hover()
    page.wait_for_selector(".poster.alive .preview-film")
    assert page.evaluate("document.querySelector('.preview-film').currentTime >= 4.4")
    page.mouse.move(0, 0)
    until(page, "document.querySelector('.preview-film') === null")
    page.goto("/library")
    page.wait_for_selector(".grid .tile img")
    tile = page.locator(".grid .tile", has_text="coast.mp4")
    before = tile.locator("img").get_attribute("src")
    tile.locator(".picture").hover()
    page.wait_for_selector(".picture.alive")
    assert tile.locator("img").get_attribute("src") != before


def test_nothing_moves_by_itself_for_people_who_asked_for_that(browser: Any, address: str) -> None:
    for page in visit(browser, address, reduced_motion="reduce"):
        ask(page, "dog runs pier")
        poster = card(page, "pier.mp4").locator(".poster")
        poster.hover()
        page.wait_for_timeout(600)
        assert page.locator(".preview-film, .alive").count() == 0
        assert poster.evaluate("(one) => getComputedStyle(one, '::after').transitionDuration") == "0s"
        page.goto("/library")
        page.wait_for_selector(".grid .tile img")
        page.locator(".grid .picture").first.hover()
        page.wait_for_timeout(600)
        assert page.locator(".alive").count() == 0


def test_look_alikes_have_strips_and_exports(page: Any) -> None:
    ask(page, "dog runs beach")
    page.locator(".card").first.get_by_role("button", name="More like this").click()
    page.wait_for_selector(".query-shown")
    assert page.locator(".card").first.locator(".strip stop").count() >= 8
    page.locator(".exports summary").click()
    page.get_by_role("button", name="Reel, timeline, table").click()
    page.get_by_label("Save as").select_option("csv")
    with page.expect_download() as download:
        page.get_by_role("button", name="Save", exact=True).click()
    assert "twin.mp4" in Path(download.value.path()).read_text()


def test_a_phone_shows_the_first_hit_beside_a_long_diagnosis(browser: Any, address: str) -> None:
    """Files have long names, and a phone's browser takes a part of its screen."""

    def long(route: Any) -> None:
        answer = route.fetch().json()
        names = ", ".join(f"the_long_name_of_a_video_{at}.mp4" for at in range(4))
        answer["diagnosis"]["advice"] = f"Is it {names}? Add a detail that tells them apart."
        route.fulfill(json=answer)

    for page in visit(browser, address, viewport={"width": 390, "height": 664}):
        page.route("**/api/search?*", long)
        ask(page, "dog runs beach")
        advice = page.locator(".diagnosis .advice")
        short = advice.bounding_box()["height"]
        assert page.locator(".card .poster").first.bounding_box()["y"] < 664 - 100
        page.locator(".why summary").click()
        assert advice.bounding_box()["height"] > 1.9 * short, "all of it is there"


@pytest.mark.parametrize("size", [(1400, 900), (390, 844)], ids=["wide", "phone"])
def test_the_first_hit_is_seen_without_scrolling(browser: Any, address: str, size: tuple[int, int]) -> None:
    for page in visit(browser, address, viewport={"width": size[0], "height": size[1]}):
        ask(page, "dog runs beach")
        box = page.locator(".card").first.locator(".poster").bounding_box()
        assert box["y"] + box["height"] <= size[1]
        assert page.locator(".tools .found").first.bounding_box()["height"] < 25, "one line"


def test_a_thumb_hits_what_it_means(browser: Any, address: str) -> None:
    for page in visit(browser, address, viewport={"width": 390, "height": 844}, has_touch=True):
        page.goto("/")
        page.wait_for_selector(".questions a")
        assert small_targets(page) == []
        ask(page, "dog runs pier")
        page.locator(".filters summary").click()
        page.locator(".poster").first.click()
        wait_for_film(page)
        assert small_targets(page) == []
        page.goto("/library")
        page.wait_for_selector(".grid .tile")
        page.locator(".folders summary").click()
        assert small_targets(page) == []
        page.locator(".library-head .found").evaluate(
            "(one) => { one.textContent = '1,234 of 10,000 videos '.repeat(3); }"
        )
        assert page.locator(".library-head h1").bounding_box()["height"] < 40, "a name is not broken"
        page.locator(".grid .open").first.click()
        page.wait_for_selector(".alike .tile")
        assert small_targets(page) == []
        page.get_by_role("button", name="Saved searches").click()
        page.wait_for_selector("dialog >> text=No searches are saved yet")
        assert small_targets(page) == []
        page.route("**/api/search?*", lambda route: None)  # never answered
        page.goto("/?q=dog")
        page.get_by_role("button", name="Stop").wait_for()
        assert small_targets(page) == []


ROWS = """[...new Set([...document.querySelectorAll('.controls > :not(.space, .close)')]
  .filter((one) => one.checkVisibility())
  .map((one) => one.getBoundingClientRect()).map((box) => Math.round((box.top + box.bottom) / 2)))].length"""


def test_a_phone_has_two_rows_of_controls(browser: Any, address: str) -> None:
    def long(route: Any) -> None:
        answer = route.fetch().json()
        moments = [{"start": start, "end": start + 61, "score": 0.5} for start in (36_610.0, 4.0)]
        answer["hits"][0].update(duration=40_000, moments=moments)
        route.fulfill(json=answer)

    for page in visit(browser, address, viewport={"width": 390, "height": 844}, has_touch=True):
        for length in ("short", "long"):
            if length == "long":
                page.route("**/api/search?*", long)
            ask(page, "dog runs pier")
            page.locator(".poster").first.click()
            page.wait_for_selector(".controls .moment")
            time = "document.querySelector('.controls .time > span').textContent = '10:10:10'"
            rows = page.evaluate(f"{time if length == 'long' else ''}; {ROWS}")
            assert rows <= 2 and small_targets(page) == [], length


def test_an_upright_film_has_its_shape_and_is_seen_whole(browser: Any, address: str) -> None:
    for page in visit(browser, address, viewport={"width": 390, "height": 844}, has_touch=True):
        ask(page, "night falls")
        card(page, "twin.mp4").locator(".poster").click()
        wait_for_film(page)
        for place in (".card.playing", ".watch"):
            until(page, "document.querySelector('video').style.getPropertyValue('--ratio') === '0.5625'")
            box = page.locator("video").bounding_box()
            assert box["width"] / box["height"] == pytest.approx(36 / 64, rel=0.01), (
                f"bars beside it: {place}"
            )
            assert page.locator(".top").bounding_box()["height"] < box["y"], "the header lies over it"
            controls = page.locator(".controls").bounding_box()
            assert controls["y"] + controls["height"] < 844, place
            if place == ".card.playing":
                card(page, "twin.mp4").get_by_role("link").click()
                page.wait_for_selector(".watch video")


def test_light_and_dark_are_switched_and_kept(browser: Any, address: str) -> None:
    for page in visit(browser, address, color_scheme="light"):
        paper = "getComputedStyle(document.body).backgroundColor"
        page.goto("/library")
        light = page.evaluate(paper)
        page.get_by_role("button", name="Light or dark").click()
        dark = page.evaluate(paper)
        assert dark != light
        page.goto("/api")
        assert page.evaluate(paper) == dark
        assert violations(page) == []
        page.set_viewport_size({"width": 390, "height": 844})
        assert violations(page) == []
    described = page_manifest(address)
    assert described["display"] == "standalone" and len(described["icons"]) == 3


def page_manifest(address: str) -> dict[str, Any]:
    import json
    from urllib.request import urlopen

    with urlopen(f"{address}/static/app.webmanifest") as answer:
        described: dict[str, Any] = json.load(answer)
    for icon in described["icons"]:
        with urlopen(f"{address}/static/{icon['src']}") as answer:
            assert answer.headers["content-type"] == icon["type"]
    return described


def test_a_slow_line_and_a_lost_one(page: Any) -> None:
    page.goto("/")
    page.wait_for_selector(".tiles .tile")
    line = page.context.new_cdp_session(page)
    slow = {"offline": False, "latency": 700, "downloadThroughput": 50_000, "uploadThroughput": 20_000}
    line.send("Network.enable")
    line.send("Network.emulateNetworkConditions", slow)
    page.fill("#q", "dog runs pier")
    page.wait_for_selector(".card.ghost")
    assert page.locator("#status").inner_text() == "Searching…"
    page.wait_for_selector(".card h3 >> text=pier.mp4")
    page.get_by_role("link", name="Library").click()
    page.wait_for_selector("#busy:not([hidden])")
    page.wait_for_selector(".grid .title")
    until(page, "document.getElementById('busy').hidden")
    page.select_option("#sort", label="Name")
    page.wait_for_selector("#busy:not([hidden])")
    until(page, "document.querySelector('.grid .title').textContent.startsWith('<b>party')")
    until(page, "document.getElementById('busy').hidden")
    page.go_back()
    page.go_back()
    page.wait_for_selector(".card h3 >> text=pier.mp4")
    line.send("Network.emulateNetworkConditions", {**slow, "offline": True})
    page.fill("#q", "sun sets")
    page.wait_for_selector(".gone-banner:not([hidden])")
    line.send("Network.emulateNetworkConditions", {**slow, "latency": 0, "downloadThroughput": -1})
    until(page, "document.querySelector('.card h3').textContent === 'coast.mp4'")  # by itself
    assert not page.locator(".gone-banner").is_visible()


ADDS = """async () => {
  const extensions = await import('/static/extensions.js');
  const made = (name) => Object.assign(document.createElement('button'), { textContent: name });
  extensions.addCardAction((hit, { time }) => made(`cut ${hit.title} ${time().toFixed(0)}`));
  extensions.addPlayerPanel(async ({ player }) =>
    ({ title: 'Spoken', element: made(`at ${typeof player.play}`) }));
  extensions.addExport(({ hits, parameters }) => made(`list ${hits.length} ${parameters.q}`));
}"""


def test_modules_add_to_the_page(page: Any) -> None:
    page.goto("/library")
    page.evaluate(ADDS)
    page.fill("#q", "dog runs pier")
    page.get_by_role("button", name="cut pier.mp4 7").wait_for()
    page.locator(".exports summary").click()
    page.get_by_role("button", name="list 8 dog runs pier").wait_for()
    card(page, "pier.mp4").locator(".poster").click()
    page.get_by_role("region", name="Spoken").get_by_role("button", name="at function").wait_for()
    places = [".screen", ".card.playing .strip", ".panels"]
    page.set_viewport_size({"width": 390, "height": 844})
    tops = [page.locator(place).bounding_box()["y"] for place in places]
    assert tops == sorted(tops), "what is added comes below the film's own"
