"""How smoothly the library scrolls through 10,000 videos, in a real browser.

python tools/illustrated_films.py FILMS
python benchmarks/library_scroll.py FILMS

The films are linked 10,000 times. The page is scrolled at three speeds, from slow reading to a fling; a frame
is late if it comes more than 25 ms after the one before. Beside it stand the same way scrolled again, when
its pictures are known, and a page of as many empty tiles: what the browser reaches on this machine.

Another pass at each speed is traced: the processor time that the page's main thread needs for a frame, and
that of the thread that draws it (in software, where there is no graphics card). Other work on the machine
delays frames but hardly changes these times; 60 frames a second leave 16.7 ms.
"""

from __future__ import annotations

import json
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

WINDOW = {"width": 1400, "height": 900}
SPEEDS = (600, 2400, 12_000)  # pixels a second
HEADER = "pixels/s  scrolled     frames/s  of empty  median ms  99% ms   late"
EMPTY = """<style>ul { display: grid; grid-template-columns: repeat(5, 1fr); gap: 16px; margin-left: 270px }
li { height: 180px; background: #ddd; list-style: none }</style><ul>"""
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
            print(f"{videos} videos\n{HEADER}")
            for speed in SPEEDS:
                page = browser.new_page(viewport=WINDOW)
                page.set_content(EMPTY + "<li></li>" * videos)
                page.wait_for_timeout(1000)
                gaps = {"empty tiles": scroll(page, speed, seconds)[0]}
                page.close()
                page = library(browser, address)
                gaps["first"], most = scroll(page, speed, seconds)
                page.evaluate("scrollTo(0, 0)")
                page.wait_for_timeout(1000)
                gaps["again"] = scroll(page, speed, seconds)[0]
                page.close()
                for way, gap in gaps.items():
                    share, middle, high = (
                        gaps["empty tiles"].mean() / gap.mean(),
                        np.median(gap),
                        np.quantile(gap, 0.99),
                    )
                    print(
                        f"{speed:8d}  {way:11s}  {1000 / gap.mean():8.1f}  {share:8.3f}  {middle:9.1f}"
                        f"  {high:6.1f}  {(gap > 25).mean():5.1%}"
                    )
                page, trace = library(browser, address), Path(folder) / "trace.json"
                browser.start_tracing(page=page, path=trace, categories=["toplevel", "devtools.timeline"])
                scroll(page, speed, seconds)
                browser.stop_tracing()
                page.close()
                spent, drawing = work(trace)
                print(
                    f"{speed:8d}  page {spent.mean():.1f} ms a frame, 99% below "
                    f"{np.quantile(spent, 0.99):.1f}; drawing {drawing:.1f} ms; "
                    f"at most {most} tiles in the document",
                    flush=True,
                )


def library(browser: Any, address: str) -> Any:
    """The page of the library, with its first pictures."""
    page = browser.new_page(base_url=address, viewport=WINDOW)
    page.goto("/library")
    page.wait_for_selector(".grid .tile img")
    page.wait_for_timeout(1000)
    return page


def scroll(page: Any, speed: int, seconds: float) -> tuple[np.ndarray, int]:
    """Milliseconds between frames, and the most tiles that were in the document."""
    times, most = page.evaluate(SCROLL, [speed, seconds])
    return np.diff(np.asarray(times)), most


def work(trace: Path) -> tuple[np.ndarray, float]:
    """Milliseconds of processor time: the page's main thread in each frame, drawing in an average one."""
    events = json.loads(trace.read_text())["traceEvents"]
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    frames = [e for e in events if e["name"] == "FireAnimationFrame" and e["ph"] == "X"]
    begins = np.array(sorted({e["ts"] for e in frames}))
    page = (frames[0]["pid"], frames[0]["tid"])
    spent, drawing = np.zeros(len(begins)), 0.0
    for event in events:
        if event["name"] != "ThreadControllerImpl::RunTask" or "tdur" not in event:
            continue
        thread = (event["pid"], event["tid"])
        if thread == page:
            at = np.searchsorted(begins, event["ts"] + event["dur"], "right") - 1  # the frame that it ends in
            if at >= 0:
                spent[at] += event["tdur"] / 1000
        elif threads.get(thread) == "VizCompositorThread":
            drawing += event["tdur"] / 1000
    return spent, drawing / len(begins)


if __name__ == "__main__":
    typer.run(main)
