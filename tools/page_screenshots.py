"""Pictures of the page for the documentation, taken in a real browser over films that a script draws.

python tools/illustrated_films.py FILMS
holmes index build INDEX FILMS
python tools/page_screenshots.py INDEX docs/figures
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import av
import numpy as np
import typer
from PIL import Image

import holmes
from holmes.serve.settings import Limits, ServeSettings
from holmes.worlds.rendered.film import write_film

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))
from browser import chromium, launched, serving, until

WIDE, PHONE = {"width": 1200, "height": 800}, {"width": 390, "height": 844}
PRECISE = "someone blows out candles on a cake"
SEVERAL = "a hot air balloon"


def main(
    index: Annotated[Path, typer.Argument(help="An index of the drawn films.")],
    out: Annotated[Path, typer.Argument(help="Where the pictures go.")],
    precise: Annotated[str, typer.Option(help="A sentence that fits one video.")] = PRECISE,
    several: Annotated[str, typer.Option(help="A sentence that fits several.")] = SEVERAL,
    vague: Annotated[str, typer.Option(help="A sentence that says too little.")] = "a cartoon fish",
) -> None:
    if chromium() is None:
        raise SystemExit("there is no chromium here: apt-get install chromium")
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as kept, launched() as browser:
        mine = Path(shutil.copytree(index, Path(kept) / "index"))  # videos are added to it
        settings = ServeSettings(uploads=Path(kept) / "videos", limits=Limits(rate=1e6, burst=10**6))
        opened = holmes.open_index(mine, device="cpu")
        with serving(opened, settings) as address:
            take(browser, address, out, precise, several, vague)
            with visit(browser, address, WIDE) as page:
                page.goto("/library")
                page.get_by_role("button", name="Add videos").click()
                page.wait_for_selector(".upload-hint:not(:empty)")
                page.locator("input[webkitdirectory]").set_input_files(
                    sent(Path(kept) / "trip", opened.videos)
                )
                page.locator(".upload-words", has_text=" gave ").wait_for()
                settle(page)
                save(page.locator("dialog"), out / "serve-add.webp")


def sent(folder: Path, films: list[str]) -> Path:
    """A folder with two new films, a copy, and a file that is no video."""
    folder.mkdir()
    for film in films[:2]:
        with av.open(film) as container:
            frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
        write_film(folder / f"{Path(film).stem}, backwards.mp4", np.stack(frames[::-1]), 8)
    shutil.copy(films[2], folder / "a copy.mp4")
    (folder / "route.txt").write_text("north, then east")
    return folder


def take(browser: Any, address: str, out: Path, precise: str, several: str, vague: str) -> None:
    with visit(browser, address, WIDE) as page:
        page.goto("/")
        page.wait_for_selector(".questions a")  # the first answer waits for the model to load
        page.evaluate("document.activeElement.blur()")
        settle(page)
        save(page, out / "serve-start.webp")
        ask(page, precise)
        save(page, out / "answer.webp")
        page.locator(".card .strip").first.click()  # in the middle of the film
        paused(page)
        save(page, out / "serve-play.webp")
    with visit(browser, address, WIDE, color_scheme="dark") as page:
        ask(page, several)
        save(page, out / "serve-several.webp")
    with visit(browser, address, WIDE) as page:
        page.goto("/library")
        page.wait_for_selector(".grid .tile img")
        settle(page)
        save(page, out / "serve-library.webp")
        page.locator(".grid .open").nth(1).click()
        page.wait_for_selector(".alike .tile")
        paused(page)
        save(page, out / "serve-watch.webp")
    with visit(browser, address, WIDE, color_scheme="dark") as page:
        ask(page, precise)
        page.route("**/api/**", lambda route: route.abort())
        page.fill("#q", vague)
        page.wait_for_selector(".gone-banner:not([hidden])")
        page.evaluate("document.activeElement.blur()")
        save(page, out / "serve-gone.webp")
    with visit(browser, address, PHONE, device_scale_factor=1.5) as page:
        ask(page, precise)
        save(page, out / "serve-phone.webp")
    with visit(browser, address, PHONE, device_scale_factor=1.5, color_scheme="dark") as page:
        page.goto("/library")
        page.wait_for_selector(".grid .tile img")
        settle(page)
        save(page, out / "serve-phone-library.webp")


def paused(page: Any) -> None:
    """A film that has played for a moment."""
    until(page, "document.querySelector('.stage video')?.readyState >= 2")
    start = page.evaluate("document.querySelector('.stage video').currentTime")
    until(page, f"document.querySelector('.stage video').currentTime > {start + 2.5}")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("Space")
    settle(page)


def visit(browser: Any, address: str, size: dict[str, int], **options: Any) -> Any:
    context = browser.new_context(base_url=address, viewport=size, reduced_motion="reduce", **options)
    context.set_default_timeout(60_000)
    return context.new_page()


def ask(page: Any, sentence: str) -> None:
    page.goto("/")
    page.fill("#q", sentence)
    page.wait_for_selector(".card:not(.ghost)")
    page.evaluate("document.activeElement.blur()")
    settle(page)


def settle(page: Any) -> None:
    wanted = "[...document.images].filter((image) => image.src && image.loading !== 'lazy')"
    until(page, f"{wanted}.every((image) => image.complete && image.naturalWidth)")
    page.wait_for_timeout(400)


def save(shown: Any, path: Path) -> None:
    Image.open(io.BytesIO(shown.screenshot())).convert("RGB").save(path, quality=82, method=6)
    print(f"{path}  {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    typer.run(main)
