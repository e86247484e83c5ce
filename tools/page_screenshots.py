"""Pictures of the page for the documentation, taken in a real browser over films that a script draws.

python tools/illustrated_films.py FILMS
holmes index build INDEX FILMS
python tools/page_screenshots.py INDEX docs/figures
"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from PIL import Image

import holmes
from holmes.serve.settings import Limits, ServeSettings

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))
from browser import chromium, launched, serving, until

WIDE, PHONE = {"width": 1180, "height": 860}, {"width": 390, "height": 844}
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
    settings = ServeSettings(limits=Limits(rate=1e6, burst=10**6))
    with serving(holmes.open_index(index, device="cpu"), settings) as address, launched() as browser:
        with visit(browser, address, WIDE) as page:
            ask(page, vague)  # the first answer waits for the model to load
            ask(page, precise)
            save(page, out / "answer.png")
            page.locator(".card .poster").first.click()
            until(page, "document.querySelector('video')?.readyState >= 2")
            start = page.evaluate("document.querySelector('video').currentTime")
            until(page, f"document.querySelector('video').currentTime > {start + 2.5}")
            page.keyboard.press("Space")
            page.evaluate("scrollTo(0, document.querySelector('.card').offsetTop - 90)")
            save(page, out / "serve-play.png")
        with visit(browser, address, WIDE, color_scheme="dark") as page:
            ask(page, several)
            save(page, out / "serve-several.png")
        with visit(browser, address, PHONE, device_scale_factor=2) as page:
            ask(page, vague)
            save(page, out / "serve-phone.png")
        with visit(browser, address, WIDE) as page:
            page.goto("/library")
            page.wait_for_selector(".shelf li .title")
            settle(page)
            save(page, out / "serve-library.png")


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


def save(page: Any, path: Path) -> None:
    Image.open(io.BytesIO(page.screenshot())).convert("RGB").save(path, optimize=True)
    print(f"{path}  {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    typer.run(main)
