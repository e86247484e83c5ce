"""Sending files in a real browser: chosen by keyboard, dropped, continued after a lost connection."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from browser import chromium, close, launched, serving, small_targets, until, violations
from holmes.serve import jobs
from holmes.serve.settings import ServeSettings
from serve_fakes import FILMS, PLENTY, build, open_fake

pytestmark = pytest.mark.skipif(chromium() is None, reason="no chromium: the page is not tested")
MOUNT = """async () => {
  const dialog = document.createElement("dialog");
  dialog.setAttribute("aria-label", "Add videos");
  document.body.append(dialog);
  dialog.showModal();
  const { mountUploads } = await import("/static/uploads.js");
  window.done = [];
  await mountUploads(dialog, { onDone: (counts) => window.done.push(counts) });
}"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sending")
    build(folder, {"beach/coast.mp4": FILMS["beach/coast.mp4"]})
    mine = folder / "mine"
    (mine / "2024").mkdir(parents=True)
    (mine / "first.mp4").write_bytes(b"first" * 300_000)
    (mine / "2024" / "copy.mp4").write_bytes(b"copy" * 50_000)
    (mine / "broken.mov").write_bytes(b"broken")
    (mine / "notes.txt").write_text("not a video")
    return folder


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(jobs, "TARGET", "quick_child:start")
        settings = ServeSettings(uploads=folder / "in", limits=replace(PLENTY, spare=0))
        with serving(open_fake(folder / "index", monkeypatch), settings) as address:
            yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as browser:
        yield browser


def mounted(browser: Any, address: str, **how: Any) -> Any:
    page = browser.new_context(base_url=address, **how).new_page()
    page.goto("/library")
    page.evaluate(MOUNT)
    return page


def chosen(page: Any, button: str, files: Any) -> None:
    """Choose files as a person without a mouse does."""
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name=button).press("Space")
    chooser.value.set_files(files)


def test_a_folder_is_sent_and_every_file_is_accounted_for(browser: Any, address: str, folder: Path) -> None:
    page = mounted(browser, address, color_scheme="dark", viewport={"width": 390, "height": 844})
    page.locator("input[webkitdirectory]").set_input_files(folder / "mine")
    until(page, "window.done.length === 1")
    assert (
        page.locator(".upload-words").inner_text()
        == "4 files gave 1 added, 0 already there, 1 copy, 2 left out."
    )
    assert page.evaluate("window.done[0]") == {
        "files": 4, "added": 1, "there": 0, "same": 1, "left": 2, "cancelled": 0
    }  # fmt: skip
    rows = page.locator(".upload-list").inner_text()
    page.set_viewport_size({"width": 1000, "height": 800})
    long = page.locator(".upload-list li", has_text="it is broken")
    long.locator(".upload-state").evaluate("(one) => { one.textContent = 'it is broken '.repeat(30); }")
    assert long.locator(".upload-name").bounding_box()["width"] > 100, "the name stays readable"
    page.set_viewport_size({"width": 390, "height": 844})
    assert "the same as /films/first.mp4" in rows and "left out: it is broken" in rows
    assert "not named like a video" in rows
    assert (folder / "in" / "mine" / "first.mp4").read_bytes() == b"first" * 300_000
    assert violations(page) == [] and small_targets(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    close(page.context)


def test_sending_continues_after_a_lost_connection(browser: Any, address: str, folder: Path) -> None:
    page = mounted(browser, address)
    sent: list[str] = []

    def some(route: Any) -> None:
        """The second and third piece are lost."""
        sent.append(route.request.url)
        route.abort() if len(sent) in (2, 3) else route.continue_()

    page.route("**/api/uploads/*?offset=*", some)
    content = bytes(range(256)) * 20_000
    chosen(page, "Choose files", {"name": "long.mp4", "mimeType": "video/mp4", "buffer": content})
    until(page, "document.querySelector('.upload-words').textContent.includes('connection is lost')")
    until(page, "window.done.length === 1")
    assert page.locator(".upload-words").inner_text() == "1 file gave 1 added, 0 already there, 0 left out."
    assert (folder / "in" / "long.mp4").read_bytes() == content and len(sent) >= 5
    close(page.context)


def test_an_unfinished_file_is_named_until_it_has_arrived(browser: Any, address: str, folder: Path) -> None:
    content = b"half" * 100_000
    order = {"name": "half.mp4", "size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    with browser.new_context(base_url=address) as context:
        upload = context.request.post("/api/uploads", data=order).json()
        context.request.patch(f"/api/uploads/{upload['id']}?offset=0", data=content[:1000])
    page = mounted(browser, address)
    page.wait_for_selector(".upload-hint >> text=1 file unfinished: half.mp4. Choose it again to continue.")
    chosen(page, "Choose files", {"name": "half.mp4", "mimeType": "video/mp4", "buffer": content})
    page.wait_for_selector(".upload-hint >> text=Space for")
    assert page.locator(".upload-words").inner_text() == "1 file gave 1 added, 0 already there, 0 left out."
    close(page.context)


def test_files_chosen_without_a_connection_are_sent_later(browser: Any, address: str, folder: Path) -> None:
    page = mounted(browser, address)
    page.context.set_offline(True)
    files = [{"name": name, "mimeType": "video/mp4", "buffer": name.encode()} for name in ("a.mp4", "b.mp4")]
    chosen(page, "Choose files", [*files, {"name": "c.mp4", "mimeType": "video/mp4", "buffer": b"c"}])
    until(page, "document.querySelector('.upload-words').textContent.includes('connection is lost')")
    page.context.set_offline(False)
    until(page, "window.done.length === 1")
    assert page.evaluate("window.done[0].added") == 3 and (folder / "in" / "b.mp4").read_bytes() == b"b.mp4"
    close(page.context)


def test_a_dropped_file_can_be_cancelled_and_sent_again(browser: Any, address: str, folder: Path) -> None:
    page = mounted(browser, address)
    page.route("**/api/uploads/*?offset=*", lambda route: None)  # never answered
    drop = """(size) => {
      const data = new DataTransfer();
      data.items.add(new File([new Uint8Array(size)], "dropped.mp4"));
      const how = { dataTransfer: data, bubbles: true, cancelable: true };
      document.querySelector(".upload-drop").dispatchEvent(new DragEvent("drop", how));
    }"""
    page.evaluate(drop, 5000)
    until(page, "document.querySelector('.upload-list progress')")
    page.get_by_role("button", name="Cancel: dropped.mp4").press("Enter")
    until(page, "window.done.length === 1")
    words = "1 file gave 0 added, 0 already there, 0 left out, 1 cancelled."
    assert page.locator(".upload-words").inner_text() == words
    page.unroute("**/api/uploads/*?offset=*")
    page.evaluate(drop, 5000)
    until(page, "window.done.length === 2")
    assert (folder / "in" / "dropped.mp4").stat().st_size == 5000
    close(page.context)


def test_the_hash_in_the_browser_is_sha256(browser: Any, address: str) -> None:
    page = browser.new_context(base_url=address).new_page()
    page.goto("/library")
    for size in (0, 1, 55, 56, 63, 64, 65, 119, 120, 1000, 5_000_000):
        found = page.evaluate(
            """async (size) => {
              const { sha256, Sha256 } = await import("/static/sha256.js");
              const bytes = Uint8Array.from({ length: size }, (_, at) => (at * 7) % 251);
              const parts = new Sha256();
              for (let at = 0; at < Math.min(size, 4000); at += 37) parts.update(bytes.subarray(at, at + 37));
              return [await sha256(new File([bytes], "x")), size < 4000 ? parts.hex() : null];
            }""",
            size,
        )
        digest = hashlib.sha256(bytes(at * 7 % 251 for at in range(size))).hexdigest()
        assert found == [digest, digest if size < 4000 else None], size
    close(page.context)


def test_what_was_not_sent_does_not_lengthen_the_time_left(browser: Any, address: str) -> None:
    """100 MB sent in 10 s, 100 to go; a file that the server has was not sent."""
    page = browser.new_context(base_url=address).new_page()
    page.goto("/library")
    seconds = page.evaluate(
        """async () => {
          const { secondsLeft } = await import("/static/uploads.js");
          const of = (size, state, sent) => ({ file: { size }, offset: 0, state, sent });
          const begun = [of(50, "same", true), of(50, "skipped", true), of(100, "waits", false)];
          const had = of(1, "there", true);
          return [begun, [...begun, had], [of(9, "waits")]].map((items) => secondsLeft(items, 10));
        }"""
    )
    assert seconds == [10, 10, 0]
    close(page.context)


def test_the_server_says_how_long_adding_takes(browser: Any, address: str) -> None:
    page, found = mounted(browser, address), False

    def adding(route: Any) -> None:
        told = route.fetch().json()
        unfinished = [{**each, "state": "adding", "found": found} for each in told["uploads"]]
        route.fulfill(json={**told, "uploads": unfinished, "seconds_left": 240})

    page.route(
        "**/api/uploads", lambda route: adding(route) if route.request.method == "GET" else route.continue_()
    )
    slow = {"name": "slow.mp4", "mimeType": "video/mp4", "buffer": b"slow"}
    page.locator("input[accept^=video]").set_input_files(slow)
    page.wait_for_selector(".upload-words >> text=0 of 1 video, about 4 minutes left.")
    found = True
    page.wait_for_selector(".upload-words >> text=1 of 1 video, about 4 minutes left.")
    assert "added; its words follow" in page.locator(".upload-list").inner_text()
    close(page.context)


def test_a_file_that_was_sent_before_is_already_there(browser: Any, address: str) -> None:
    page = mounted(browser, address)
    known = {"id": "0" * 32, "name": "old.mp4", "size": 3, "offset": 3, "state": "added"}
    page.route("**/api/uploads", lambda route: route.fulfill(json={**known, "uploads": [known], "free": 0}))
    page.locator("input[accept^=video]").set_input_files(
        {"name": "old.mp4", "mimeType": "video/mp4", "buffer": b"old"}
    )
    page.wait_for_selector(".upload-words >> text=1 file gave 0 added, 1 already there, 0 left out.")
    close(page.context)


def test_many_files_fill_a_list_that_keys_scroll(browser: Any, address: str) -> None:
    page = browser.new_context(base_url=address, viewport={"width": 1200, "height": 600}).new_page()
    page.goto("/library")
    page.get_by_role("button", name="Add videos").click()
    page.wait_for_selector(".upload-hint >> text=Space for")
    long = "broken by a name that is as long as the names of files are " * 3
    files = [{"name": f"{at}.{long}", "mimeType": "text/plain", "buffer": b"x"} for at in range(20)]
    page.locator("input[accept^=video]").set_input_files(files)
    page.wait_for_selector(".upload-words >> text=20 files gave 0 added, 0 already there, 20 left out.")
    page.evaluate(
        "document.querySelectorAll('.upload-state').forEach((e) => { e.textContent += ' so'.repeat(80); })"
    )
    within = """[...document.querySelectorAll('.upload-list li')].every((row) => [...row.children].every(
      (one) => one.getBoundingClientRect().bottom <= row.getBoundingClientRect().bottom + 1))"""
    assert page.evaluate(within), "no row lies over the next"
    assert violations(page) == []
    page.get_by_label("Files", exact=True).press("End")
    until(page, "document.querySelector('.upload-list').scrollTop > 100")
    close(page.context)


def test_the_library_has_the_dialog(browser: Any, address: str) -> None:
    page = browser.new_context(base_url=address).new_page()
    page.goto("/library")
    page.get_by_role("button", name="Add videos").first.press("Enter")
    page.wait_for_selector("dialog >> text=Drop videos or a folder here")
    page.keyboard.press("Escape")
    until(page, "!document.querySelector('dialog[open]')")
    close(page.context)


def test_files_are_dropped_anywhere(browser: Any, address: str, folder: Path) -> None:
    """Files held over any view open the dialog, and may be let go beside its frame."""
    page = browser.new_context(base_url=address).new_page()
    page.goto("/")
    page.wait_for_selector(".tiles")
    drag = """([name, type]) => {
      const data = new DataTransfer();
      data.items.add(new File([new Uint8Array(7000)], "anywhere.mp4", { type: "video/mp4" }));
      const event = new DragEvent(name, { dataTransfer: data, bubbles: true, cancelable: true });
      document.querySelector(type).dispatchEvent(event);
      return event.defaultPrevented;
    }"""
    page.evaluate(drag, ["dragenter", "main"])
    page.wait_for_selector("dialog[open] .upload")
    assert page.evaluate(drag, ["dragover", "dialog"]), "the browser must not open the file itself"
    assert page.locator(".upload-drop.over").count() == 1
    assert page.evaluate(drag, ["drop", "dialog h2"])
    page.wait_for_selector(".upload-words >> text=1 file gave 1 added, 0 already there, 0 left out.")
    assert (folder / "in" / "anywhere.mp4").stat().st_size == 7000
    assert page.locator(".upload-drop.over").count() == 0
    close(page.context)


def test_a_folder_is_dropped_with_all_below_it(
    browser: Any, address: str, folder: Path, tmp_path: Path
) -> None:
    trip = tmp_path / "trip"
    (trip / "deep").mkdir(parents=True)
    for name, content in {"deep/inner.mp4": b"inner", ".hidden.mp4": b"hidden", "list.txt": b"text"}.items():
        (trip / name).write_bytes(content)
    (trip / "large.mp4").write_bytes(b"large" * 1000)
    page = browser.new_context(base_url=address).new_page()

    def small(route: Any) -> None:
        route.fulfill(json={**route.fetch().json(), "largest": 3000})

    page.route(
        "**/api/uploads", lambda route: small(route) if route.request.method == "GET" else route.continue_()
    )
    page.goto("/library")
    page.get_by_role("button", name="Add videos").click()
    page.wait_for_selector(".upload-hint >> text=Space for")
    mouse = page.context.new_cdp_session(page)
    held = {"items": [], "files": [str(trip)], "dragOperationsMask": 1}
    for step in ("dragEnter", "dragOver", "drop"):
        mouse.send("Input.dispatchDragEvent", {"type": step, "x": 500, "y": 300, "data": held})
    page.wait_for_selector(".upload-words >> text=3 files gave 1 added, 0 already there, 2 left out.")
    rows = page.locator(".upload-list").inner_text()
    assert "left out: it has 5 kB; this server takes up to 3 kB" in rows and "hidden" not in rows
    assert (folder / "in" / "trip" / "deep" / "inner.mp4").read_bytes() == b"inner"
    close(page.context)
