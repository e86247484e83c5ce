"""How smoothly the library scrolls through 10,000 videos, in a real browser.

python tools/illustrated_films.py FILMS
python benchmarks/library_scroll.py FILMS

The films are linked 10,000 times. The page is scrolled at three speeds, from slow reading to a fling; a frame
is late if it comes more than 25 ms after the one before.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from holmes.index.answer.answers import Answer, Hit, Timeline
from holmes.index.answer.base import SearchIndex
from holmes.index.answer.request import SearchRequest
from holmes.index.storage.store import IndexDescription
from holmes.serve.settings import Limits, ServeSettings

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))
from browser import launched, serving

SPEEDS = (600, 2400, 12_000)  # pixels a second
SCROLL = """([speed, seconds]) => new Promise((done) => {
    const times = []; let most = 0; const began = performance.now(); const from = scrollY;
    const frame = (now) => {
        times.push(now); most = Math.max(most, document.querySelectorAll('.grid li').length);
        scrollTo(0, from + speed * (now - began) / 1000);
        if (now - began < 1000 * seconds) requestAnimationFrame(frame); else done([times, most]);
    };
    requestAnimationFrame(frame);
})"""


class Listed(SearchIndex):
    """An index that only lists its videos."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self.folder, self._durations = folder, {name: 30.0 + at % 500 for at, name in enumerate(names)}

    def __len__(self) -> int:
        return len(self._durations)

    @property
    def videos(self) -> list[str]:
        return list(self._durations)

    @property
    def durations(self) -> dict[str, float]:
        return self._durations

    def describe(self) -> IndexDescription:
        return IndexDescription(
            path=str(self.folder),
            generation=1,
            videos=len(self),
            hours=sum(self._durations.values()) / 3600,
            removed=0,
            bytes=0,
            width=0,
            model={},
            extraction={},
            segments=1,
        )

    def _answer(self, request: SearchRequest) -> list[Answer]:
        return []

    def _look_alikes(self, video: str, time: float, top: int) -> Sequence[Hit]:
        return ()

    def timelines(self, sentence: str, videos: Sequence[str]) -> list[Timeline]:
        return []

    def timelines_like(self, video: str, time: float, videos: Sequence[str]) -> list[Timeline]:
        return []

    @property
    def _where(self) -> str:
        return str(self.folder)


def main(
    films: Annotated[Path, typer.Argument(help="A folder of films.")],
    videos: Annotated[int, typer.Option(help="How many videos the library lists.")] = 10_000,
    seconds: Annotated[float, typer.Option(help="Of scrolling at each speed.")] = 5.0,
) -> None:
    originals = sorted(path.absolute() for path in films.rglob("*.mp4"))
    with tempfile.TemporaryDirectory(dir=films.parent) as folder:
        names = []
        for at in range(videos):
            link = Path(folder) / f"{at // 100:03d}" / f"{originals[at % len(originals)].stem} {at}.mp4"
            link.parent.mkdir(exist_ok=True)
            os.link(originals[at % len(originals)], link)
            names.append(str(link))
        settings = ServeSettings(limits=Limits(rate=1e6, burst=10**6))
        with serving(Listed(Path(folder), names), settings) as address, launched() as browser:
            print(f"{videos} videos\npixels/s  frames/s  median ms  99% ms  late  tiles in the document")
            for speed in SPEEDS:
                page = browser.new_page(base_url=address, viewport={"width": 1400, "height": 900})
                report(page, speed, seconds)
                page.close()


def report(page: Any, speed: int, seconds: float) -> None:
    page.goto("/library")
    page.wait_for_selector(".grid .tile img")
    page.wait_for_timeout(1000)
    times, most = page.evaluate(SCROLL, [speed, seconds])
    gaps = np.diff(np.asarray(times))
    late = (gaps > 25).mean()
    rate, middle, high = 1000 / gaps.mean(), np.median(gaps), np.quantile(gaps, 0.99)
    print(f"{speed:8d}  {rate:8.1f}  {middle:9.1f}  {high:6.1f}  {late:4.1%}  {most}")


if __name__ == "__main__":
    typer.run(main)
