"""A browser for the tests of the page: chromium, driven by Playwright, and a server for it to visit."""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# The shell comes first: it is the same engine without windows, and takes two thirds of the time.
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
AXE = Path(__file__).parents[1] / "vendor" / "axe.min.js"
SMALL = """() => [...document.querySelectorAll('button, summary, select, input, a, .strip')].filter((one) => {
  const box = one.getBoundingClientRect();
  const text = one.matches('h3 a, p a, .skip') || one.closest('.hidden');  // links in running text
  return !text && box.width && box.height && one.checkVisibility() && (box.height < 43.5 || box.width < 43.5);
}).map((one) => one.outerHTML.slice(0, 90))"""
PATIENCE = 20_000  # milliseconds, on a machine with other work to do


def chromium() -> str | None:
    """Where the browser is; None where there is none."""
    given = os.environ.get("HOLMES_CHROMIUM")
    return given or next((path for name in NAMES if (path := shutil.which(name))), None)


@contextmanager
def launched() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            for context in browser.contexts:
                close(context)
            browser.close()


def close(context: Any) -> None:
    """Close its pages. Requests may be under way there, whose handlers would fail in whatever comes next."""
    for page in context.pages:
        page.unroute_all(behavior="ignoreErrors")
    context.close()


@contextmanager
def serving(index: Any, settings: Any) -> Iterator[str]:
    """The address of a real server, in a thread of this process."""
    import uvicorn

    from holmes.serve.app import Libraries, create_app
    from holmes.serve.server import configured

    listening = socket.create_server(("127.0.0.1", 0))
    address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    app = index if isinstance(index, Libraries) else create_app(index, settings)
    server = uvicorn.Server(configured(app, settings.limits, settings.proxies, timeout_graceful_shutdown=2))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        time.sleep(0.01)
    try:
        yield address
    finally:
        server.should_exit = True
        thread.join(20)
        listening.close()


def until(page: Any, condition: str) -> None:
    """Wait until a JavaScript expression is true. Asked from outside: the page's own rules forbid eval."""
    end = time.monotonic() + PATIENCE / 1000
    while not page.evaluate(condition):
        assert time.monotonic() < end, f"never came true: {condition}"
        page.wait_for_timeout(20)


def violations(page: Any, *rules: str) -> list[str]:
    """What axe-core finds wrong with the page as it stands; by some rules only, if they are named."""
    if not page.evaluate("typeof axe === 'object'"):
        page.evaluate(AXE.read_text())
    options = {"resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})}
    found = page.evaluate("(options) => axe.run(document, options)", options)["violations"]
    return [f"{each['id']}: {each['help']} ({each['nodes'][0]['html'][:120]})" for each in found]


def small_targets(page: Any) -> list[str]:
    """What is shown and smaller than 44 pixels, so that a thumb misses it."""
    found: list[str] = page.evaluate(SMALL)
    return found
