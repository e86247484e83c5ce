"""The site: it builds without a network, needs nothing from one, and shows what it promises."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

import holmes
from browser import chromium

ROOT = Path(__file__).parents[2]
PAGES = (
    "index",
    "api",
    "commands",
    "modules",
    "log",
    "equations",
    "first_steps",
    "changelog",
    "contributing",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `make docs` builds it; a broken link between pages ends it."""
    folder = tmp_path_factory.mktemp("site")
    nowhere = {"HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | nowhere | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def html(site: Path, page: str) -> str:
    return (site / f"{page}.html").read_text()


def test_every_page_of_the_project_is_there(site: Path) -> None:
    pages = {path.stem for path in site.glob("*.html")}
    assert set(PAGES) | {path.stem for path in (ROOT / "docs").glob("*.md")} <= pages


def test_nothing_is_fetched_and_nothing_is_missing(site: Path) -> None:
    """Pictures, scripts and styles come with the site."""
    for page in site.glob("*.html"):
        text = page.read_text()
        wanted = re.findall(r'<(?:img|script|iframe|source)[^>]*\ssrc="([^"]+)"', text)
        wanted += re.findall(r'<link[^>]*rel="(?:stylesheet|icon|preload)"[^>]*href="([^"]+)"', text)
        wanted += re.findall(r'<link[^>]*href="([^"]+)"[^>]*rel="(?:stylesheet|icon)"', text)
        for url in wanted:
            if url.startswith("data:"):
                continue
            assert not re.match(r"(?:https?:)?//", url), f"{page.name} fetches {url}"
            assert (site / url.partition("?")[0].lstrip("/")).exists(), f"{page.name} lacks {url}"
        assert "@import url(http" not in text
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(\s*['\"]?https?:", style.read_text()), style.name


def test_the_start_page_shows_pictures(site: Path) -> None:
    assert len(re.findall(r'<img[^>]*src="figures/', html(site, "index"))) >= 4


def test_the_equations_are_rendered(site: Path) -> None:
    text = html(site, "equations")
    assert text.count("<math") > 60 and "𝔼" in text and "ℒ" in text and "<mfrac>" in text
    for page in site.glob("*.html"):
        shown = re.sub(r"<(pre|code)\b.*?</\1>", "", page.read_text(), flags=re.DOTALL)
        assert "arithmatex" not in shown, page.name
        assert not re.search(r"\\(?:frac|alpha|mathcal|sum)\b", shown), f"{page.name} shows raw LaTeX"


def test_the_reference_comes_from_the_docstrings(site: Path) -> None:
    text = unescape(re.sub(r"<[^>]+>", "", html(site, "api")))
    for name in holmes.__all__:
        if name not in ("RemoteIndex", "ShardedIndex", "Store"):  # what `connect` and others return
            assert name in text, name
    for function in (holmes.train, holmes.evaluate, holmes.build_index, holmes.load_checkpoint):
        assert function.__doc__ is not None and function.__doc__.splitlines()[0].replace("`", "") in text


def test_every_module_is_listed(site: Path) -> None:
    text = html(site, "modules")
    for file in (ROOT / "src" / "holmes" / "evidence").glob("[a-z]*.py"):
        assert f"<code>{file.name}</code>" in text


@pytest.mark.skipif(chromium() is None, reason="no chromium")
def test_search_works_from_a_disk(site: Path) -> None:
    from browser import launched

    with launched() as browser:
        page = browser.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto((site / "index.html").as_uri())
        page.locator("input.md-search__input").fill("dustbin")
        page.locator(".md-search-result__item").first.wait_for(timeout=20_000)
        assert "equations.html" in page.locator(".md-search-result__list").inner_html()
        assert not [url for url in asked if url.startswith("http")]
