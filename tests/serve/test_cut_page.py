"""Saving from the page in a real browser: clips, reels, files for editors; by mouse and by keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import pytest

from browser import chromium, launched, serving, small_targets, until, violations
from holmes.serve.settings import ServeSettings
from serve_fakes import PLENTY, FakeDiagnose, build, open_fake

pytestmark = pytest.mark.skipif(chromium() is None, reason="no chromium: the page is not tested")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("saving")
    build(folder)
    with pytest.MonkeyPatch.context() as monkeypatch:
        index = open_fake(folder / "index", monkeypatch, FakeDiagnose())
        with serving(index, ServeSettings(limits=PLENTY)) as address:
            yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as browser:
        yield browser


def answered(browser: Any, address: str, width: int, scheme: str) -> Any:
    context = browser.new_context(
        base_url=address,
        viewport={"width": width, "height": 844},
        color_scheme=scheme,
        reduced_motion="reduce",
    )
    page = context.new_page()
    page.goto("/?q=dog+runs+beach")
    page.wait_for_selector(".card .sure")
    return page


def pictures_in(download: Any) -> int:
    with av.open(str(download.value.path())) as container:
        return sum(1 for _ in container.decode(video=0))


def test_a_clip_is_saved(browser: Any, address: str) -> None:
    page = answered(browser, address, 1400, "light")
    with page.expect_download() as download:
        page.get_by_role("button", name="Save clip of coast.mp4").click()
    assert download.value.suggested_filename == "coast-0m04.mp4" and pictures_in(download) >= 30
    until(page, "document.getElementById('status').textContent.includes('coast-0m04.mp4')")
    page.route("**/api/cut", lambda route: None)  # never answered
    page.get_by_role("button", name="Save clip of coast.mp4").click()
    page.get_by_role("button", name="Saving…: coast.mp4").wait_for()
    assert violations(page) == []


def test_a_reel_and_a_timeline_by_keyboard_alone(browser: Any, address: str) -> None:
    page = answered(browser, address, 390, "dark")
    page.locator(".exports summary").focus()
    page.keyboard.press("Enter")
    while page.evaluate("document.activeElement.textContent") != "Reel, timeline, table…":
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog.cut[open]")
    assert page.locator(".cut-count").text_content().startswith("2 moments of 2 videos")
    assert violations(page) == [] and small_targets(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing is cut off"
    assert page.evaluate("document.activeElement.name") == "kind"
    with page.expect_download() as download:
        page.get_by_role("button", name="Save", exact=True).focus()
        page.keyboard.press("Enter")
    assert download.value.suggested_filename == "dog-runs-beach-reel.mp4" and pictures_in(download) > 150
    page.wait_for_selector("dialog.cut", state="detached")
    assert page.locator(".exports[open]").count() == 0, "a menu is over when something was chosen"
    page.locator(".exports summary").click()
    page.locator(".exports button", has_text="Reel, timeline").click()
    page.get_by_label("Save as").select_option("fcpxml")
    page.get_by_label("Minimum probability (%)").fill("1")
    page.get_by_label("Frames a second").select_option("29.97")
    with page.expect_download() as download:
        page.keyboard.press("Enter")
    assert download.value.suggested_filename == "dog-runs-beach.fcpxml"
    text = Path(download.value.path()).read_text()
    assert text.count("<asset-clip") >= 2 and 'frameDuration="1001/30000s"' in text


def test_what_cannot_be_saved_is_said(browser: Any, address: str) -> None:
    page = answered(browser, address, 1400, "dark")
    page.locator(".exports summary").click()
    page.locator(".exports button", has_text="Reel, timeline").click()
    page.get_by_label("Save as").select_option("edl")
    page.get_by_label("Minimum probability (%)").fill("90")
    assert page.get_by_role("button", name="Save", exact=True).is_disabled()
    assert page.locator(".cut-count").text_content().startswith("0 moments of 0 videos")
    assert page.locator("dialog .error").text_content() == (
        "No video is at least 90% probable; lower the minimum probability."
    )
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog.cut", state="detached")
