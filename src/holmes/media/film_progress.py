"""Progress over films, in bytes and seconds, shown in one line."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holmes.base.progress import listener
from holmes.media.encode_video import Outcome, Sign


class FilmProgress:
    """Counts what workers report; `words` puts it into a line."""

    def __init__(self, waiting: Iterable[Path]) -> None:
        self._sizes = {source: _size(source) for source in waiting}
        self.total = max(1, sum(self._sizes.values()))  # bytes
        self.videos, self._bytes_done, self._seconds_done = 0, 0.0, 0.0
        self._under_way: dict[Path, Sign] = {}
        self._began = time.monotonic()
        self.follow: Callable[[], None] = lambda: None  # called with every report

    def sign(self, sign: Sign) -> None:
        self._under_way[sign.source] = sign
        self.follow()

    def done(self, outcome: Outcome) -> None:
        last = self._under_way.pop(outcome.source, None)
        self.videos += 1
        self._bytes_done += self._sizes.get(outcome.source, 0)
        self._seconds_done += outcome.seconds or (last.seconds if last else 0.0)
        self.follow()

    @property
    def bytes_done(self) -> float:
        return self._bytes_done + sum(
            self._sizes.get(s.source, 0) * s.share for s in self._under_way.values()
        )

    @property
    def seconds_done(self) -> float:
        """Seconds of video done."""
        return self._seconds_done + sum(sign.seconds for sign in self._under_way.values())

    @property
    def share(self) -> float:
        """The share of all the work that is done, 0 to 1."""
        return min(1.0, self.bytes_done / self.total)

    def words(self) -> str:
        """Such as "1.20 of about 3.40 h, 25× real time, 0:08:30 left"."""
        elapsed, share = time.monotonic() - self._began, self.share
        if not share or not self.seconds_done:
            return ""
        hours = self.seconds_done / 3600
        left = round(elapsed / share - elapsed)
        clock = f"{left // 3600}:{left // 60 % 60:02}:{left % 60:02}"
        speed = self.seconds_done / max(elapsed, 1e-9)
        return f"{hours:.2f} of about {hours / share:.2f} h, {speed:.0f}× real time, {clock} left"


def _size(source: Path) -> int:
    try:
        return os.stat(source).st_size
    except OSError:
        return 0


@contextmanager
def film_bar(
    waiting: list[Path], reused: int, progress: bool, what: str = "extracting"
) -> Iterator[FilmProgress]:
    """Progress that is shown, if asked for, on standard error."""
    counted = FilmProgress(waiting)
    if not progress or not waiting:
        yield counted
        return
    if (report := listener()) is not None:
        total, doing = reused + len(waiting), "" if what == "extracting" else f"{what}: "
        counted.follow = lambda: report(
            f"{doing}{reused + counted.videos} of {total} videos", round(100 * counted.share), 100
        )
        yield counted
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
    from rich.text import Text

    class Words(ProgressColumn):
        def render(self, task: Task) -> Text:
            videos = f"{reused + counted.videos}/{reused + len(waiting)} videos"
            return Text(", ".join(filter(None, (videos, counted.words()))))

    columns: tuple[Any, ...] = (TextColumn("{task.description}"), BarColumn(bar_width=10), Words())
    with Progress(*columns, console=Console(stderr=True)) as display:
        task = display.add_task(what, total=counted.total)
        counted.follow = lambda: display.update(task, completed=counted.bytes_done)
        yield counted
