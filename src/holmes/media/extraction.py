"""Extract a folder of features from video files: parallel and resumable. Bad files are skipped.

The flow: find the files, leave out those the folder already has, give the others to worker processes that
each read, encode and write one video at a time, and gather what became of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from holmes.base.processes import available_cores
from holmes.errors import HolmesError
from holmes.media.backbones import DEFAULT, check_named, load_visual
from holmes.media.backbones.base import VisualBackbone, identify
from holmes.media.backbones.own import ENCODERS as OWN_ENCODERS
from holmes.media.encode_video import Outcome, Sign, extract_video, outcome_of
from holmes.media.feature_folder import FeatureFolder, check_rate
from holmes.media.film_progress import film_bar
from holmes.media.find import find_videos, refuse_missing
from holmes.media.pool import extract_in_workers, is_shared


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

    Run it again to continue: progress is saved every 20 seconds.

    Args:
        videos: Files, and folders that contain some.
        out: The feature folder.
        backbone: An encoder. A name is loaded by every worker; on a GPU this process encodes what the workers
            decode. An object does everything in this process.
        rate: Samples per second; by default the encoder's own.
        fast: Decode only key frames where they are dense enough.
        workers: Processes; by default one per core.
        device: auto, cpu or cuda, for an encoder that can use a GPU.
        progress: Draw a progress bar.
        finished: Is called with each video as soon as its features are there.
        executor: Does the work in place of processes of this machine.
    """
    began = time.monotonic()
    encoder = load_visual(backbone, device=device) if isinstance(backbone, str) else backbone
    by_name = isinstance(backbone, str)
    if by_name and backbone in OWN_ENCODERS:
        backbone = encoder  # other processes do not know the functions
    rate = encoder.rate if rate is None else rate
    check_rate(rate)
    sources = find_videos(videos)
    if not Path(out).exists():  # else it has made features before
        if executor is None:  # other machines may have other files
            refuse_missing(sources)
        check_named(encoder, by_name)
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
    cores = available_cores()
    if not isinstance(backbone, str):
        return (
            outcome_of(source, lambda it: extract_video(it, folder, encoder, cores, report=report, fast=fast))
            for source in waiting
        )
    workers = min(workers or cores, len(waiting)) or 1
    threads = max(1, cores // workers)
    setup = {"folder": str(folder.path), "backbone": backbone, "threads": threads, "fast": fast}
    setup["device"] = device
    return extract_in_workers(setup, waiting, workers, report, encoder if is_shared(encoder) else None)
