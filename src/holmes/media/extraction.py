"""From video files to a folder of features: parallel, resumable, and no bad file stops the rest.

The flow: find the files, leave out those the folder already has, give the others to worker processes that
each read, encode and write one video at a time, and gather what became of them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from holmes.errors import HolmesError
from holmes.media.backbones import DEFAULT, load_visual
from holmes.media.backbones.base import VisualBackbone, identify
from holmes.media.feature_folder import FeatureFolder, check_rate
from holmes.media.film_progress import film_bar
from holmes.media.find import find_videos
from holmes.media.one_video import extract_video, outcome_of
from holmes.media.pool import Outcome, Sign, run_jobs
from holmes.media.shared_encoder import describe, is_shared


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


Crew = Callable[[Work], Iterator[Outcome]]  # what became of each source, in the order they finish


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
    crew: Crew | None = None,
) -> ExtractionSummary:
    """Features of all `videos` (files and folders) in the folder `out`, which is made or continued.

    An encoder given by name is loaded by `workers` processes (default: one per core), or, if it uses a GPU,
    by this one, which then encodes what the others decode; one given as an object runs in this process.
    `device` is auto, cpu or cuda, for an encoder that can use a GPU.
    `rate` is in samples per second (default: the encoder's own); `fast` decodes only key frames if they are
    dense. `finished` hears of each video as soon as its features are there. Running it again does what is
    left; killing it at any moment loses only the last seconds of the videos under way. A `crew` does the work
    in place of processes of this machine.
    """
    began = time.monotonic()
    encoder = load_visual(backbone, device=device) if isinstance(backbone, str) else backbone
    rate = encoder.rate if rate is None else rate
    check_rate(rate)
    sources = find_videos(videos)
    folder = FeatureFolder.create(out, identify(encoder), rate)
    reused = {source for source in sources if folder.is_current(source)}
    waiting = [source for source in sources if source not in reused]
    extracted, failures, partial = [], [], []
    with film_bar(waiting, len(reused), progress) as shown:
        if crew is not None:
            outcomes = crew(Work(waiting, folder, str(backbone), fast))
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
    if is_shared(encoder):
        setup["encoder"] = describe(encoder)
    shared = encoder if is_shared(encoder) else None
    return run_jobs("holmes.media.worker", setup, waiting, workers, report=report, encoder=shared)
