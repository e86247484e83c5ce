"""From video files to a folder of features: parallel, resumable, and no bad file stops the rest.

The flow: find the files, leave out those the folder already has, give the others to worker processes that
each read, encode and write one video at a time, and gather what became of them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holmes.base.progress import listener
from holmes.errors import HolmesError
from holmes.media.backbones import BUILT_IN, DEFAULT, load_visual
from holmes.media.backbones.base import VisualBackbone, check_sees, identify
from holmes.media.backbones.own import ENCODERS as OWN_ENCODERS
from holmes.media.encode_video import Outcome, Sign, extract_video, outcome_of
from holmes.media.feature_folder import FeatureFolder, check_rate
from holmes.media.find import find_videos
from holmes.media.pool import extract_in_workers
from holmes.media.shared_encoder import is_shared


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


@dataclass(frozen=True)
class Failure:
    source: Path
    reason: str  # one line


@dataclass(frozen=True)
class ExtractionSummary:
    """What became of every file that was named or found."""

    folder: FeatureFolder
    extracted: tuple[Path, ...]
    reused: tuple[Path, ...]  # already there, from the file as it is
    failures: tuple[Failure, ...]
    partial: tuple[Failure, ...]  # extracted, though some of the file could not be read
    seconds: float


@dataclass(frozen=True)
class Work:
    """Videos to extract into a folder, and how."""

    sources: list[Path]
    folder: FeatureFolder
    backbone: str
    fast: bool


Executor = Callable[[Work], Iterator[Outcome]]  # what became of each source, in the order they finish


def extract(
    videos: Iterable[Path | str],
    out: Path | str,
    backbone: str | VisualBackbone = DEFAULT,
    *,
    rate: float | None = None,
    fast: bool = False,
    workers: int | None = None,
    device: str = "auto",
    progress: bool = False,
    finished: Callable[[Path], None] = lambda source: None,
    executor: Executor | None = None,
) -> ExtractionSummary:
    """Features of all `videos` (files and folders) in the folder `out`, which is made or continued.

    An encoder given by name is loaded by `workers` processes (default: one per core), or, if it uses a GPU,
    by this one, which then encodes what the others decode; one given as an object runs in this process.
    `device` is auto, cpu or cuda, for an encoder that can use a GPU.
    `rate` is in samples per second (default: the encoder's own); `fast` decodes only key frames if they are
    dense. `finished` is called with each video as soon as its features are there. Run it again to continue:
    progress is saved every 20 seconds. An `executor` does the work in place of processes of this machine.
    """
    began = time.monotonic()
    encoder = load_visual(backbone, device=device) if isinstance(backbone, str) else backbone
    by_name = isinstance(backbone, str)
    if by_name and backbone in OWN_ENCODERS:
        backbone = encoder  # other processes do not know the functions
    rate = encoder.rate if rate is None else rate
    check_rate(rate)
    sources = find_videos(videos)
    tried = Path(out).exists() or encoder.name in BUILT_IN  # it has made features, here or elsewhere
    if not tried and (by_name or encoder.name in OWN_ENCODERS):
        check_sees(encoder, encoder.name)
    folder = FeatureFolder.create(out, identify(encoder), rate)
    reused = {source for source in sources if folder.is_current(source)}
    waiting = [source for source in sources if source not in reused]
    extracted, failures, partial = [], [], []
    with film_bar(waiting, len(reused), progress) as shown:
        if executor is not None:
            if not isinstance(backbone, str):
                raise HolmesError("other machines load encoders by name; an encoder object works only here.")
            outcomes = executor(Work(waiting, folder, backbone, fast))
        else:
            outcomes = _outcomes(waiting, folder, encoder, backbone, workers, fast, device, shown.sign)
        for outcome in outcomes:
            if outcome.fatal:
                raise HolmesError(outcome.failure)
            if outcome.failure:
                failures.append(Failure(outcome.source, outcome.failure))
            else:
                extracted.append(outcome.source)
                finished(outcome.source)
            if outcome.note:
                partial.append(Failure(outcome.source, outcome.note))
            shown.done(outcome)
    folder.check_there()
    return ExtractionSummary(
        folder,
        extracted=tuple(extracted),
        reused=tuple(sorted(reused)),
        failures=tuple(failures),
        partial=tuple(partial),
        seconds=time.monotonic() - began,
    )


def _outcomes(
    waiting: list[Path],
    folder: FeatureFolder,
    encoder: VisualBackbone,
    backbone: str | VisualBackbone,
    workers: int | None,
    fast: bool,
    device: str,
    report: Callable[[Sign], None],
) -> Iterator[Outcome]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not isinstance(backbone, str):
        return (
            outcome_of(source, lambda it: extract_video(it, folder, encoder, cores, report, fast))
            for source in waiting
        )
    workers = min(workers or cores, len(waiting)) or 1
    threads = max(1, cores // workers)
    setup = {"folder": str(folder.path), "backbone": backbone, "threads": threads, "fast": fast}
    setup["device"] = device
    return extract_in_workers(setup, waiting, workers, report, encoder if is_shared(encoder) else None)
