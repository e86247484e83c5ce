"""From video files to a folder of features: parallel, resumable, and no bad file stops the rest.

The flow: find the files, leave out those the folder already has, give the others to worker processes that
each read, encode and write one video at a time, and gather what became of them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from holmes.errors import HolmesError
from holmes.media.backbones import DEFAULT, load_visual
from holmes.media.backbones.base import VisualBackbone, identify
from holmes.media.features import (
    FeatureFolder,
    Fingerprint,
    Thumbnail,
    VideoFeatures,
    check_rate,
    video_id,
)
from holmes.media.find import find_videos
from holmes.media.pictures import ThumbnailStrip
from holmes.media.pool import Outcome, run_jobs
from holmes.media.reader import VideoReader
from holmes.progress import progress_bar

ROWS_AT_ONCE = 16  # rows encoded together; with the encoder's window, the decoded frames held at a time


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


def extract(
    videos: Iterable[Path | str],
    out: Path | str,
    backbone: str | VisualBackbone = DEFAULT,
    *,
    rate: float | None = None,
    workers: int | None = None,
    progress: bool = False,
) -> ExtractionSummary:
    """Features of all `videos` (files and folders) in the folder `out`, which is made or continued.

    An encoder given by name is loaded by `workers` processes (default: one a core); one given as an object
    runs in this process. `rate` is samples a second (default: the encoder's own). Running it again does what
    is left; killing it at any moment loses only the videos under way.
    """
    began = time.monotonic()
    encoder = load_visual(backbone) if isinstance(backbone, str) else backbone
    rate = encoder.rate if rate is None else rate
    check_rate(rate)
    sources = find_videos(videos)
    folder = FeatureFolder.create(out, identify(encoder), rate)
    reused = {source for source in sources if folder.is_current(source)}
    waiting = [source for source in sources if source not in reused]

    if isinstance(backbone, str):
        outcomes = _in_processes(waiting, folder, backbone, workers)
    else:
        outcomes = (outcome_of(source, lambda it: extract_video(it, folder, encoder)) for source in waiting)
    extracted, failures, partial = [], [], []
    with progress_bar("extracting videos", len(sources), len(reused), progress) as advance:
        for outcome in outcomes:
            if outcome.failure:
                failures.append(Failure(outcome.source, outcome.failure))
            else:
                extracted.append(outcome.source)
            if outcome.note:
                partial.append(Failure(outcome.source, outcome.note))
            advance(1)
    return ExtractionSummary(
        folder,
        extracted=tuple(extracted),
        reused=tuple(sorted(reused)),
        failures=tuple(failures),
        partial=tuple(partial),
        seconds=time.monotonic() - began,
    )


def extract_video(
    source: Path,
    folder: FeatureFolder,
    backbone: VisualBackbone,
    threads: int = 1,
    alive: Callable[[], None] = lambda: None,
) -> VideoFeatures:
    """Read, encode and keep one video; memory does not grow with its length but for the rows themselves.

    `alive` is called after each piece of work, so that an onlooker can tell slow from stuck.
    """
    fingerprint = Fingerprint.of(source) if source.exists() else Fingerprint(0, 0)
    reader = VideoReader(source, folder.rate, largest_side=2 * backbone.side, threads=threads)
    samples, strip = iter(reader), ThumbnailStrip()
    rows, times = [], []
    while block := list(islice(samples, ROWS_AT_ONCE * backbone.window)):
        for sample in block:
            strip.offer(sample.time, sample.image)
        block += [block[-1]] * (-len(block) % backbone.window)  # the last window may lack a few frames
        rows.append(backbone.frames([sample.image for sample in block]))
        times.append(np.array([sample.time for sample in block]).reshape(-1, backbone.window).mean(axis=1))
        alive()
    features = VideoFeatures(
        id=video_id(source),
        source=source,
        start=reader.start,
        duration=reader.duration,
        rows=np.concatenate(rows),
        times=np.concatenate(times).astype(np.float32),
        thumbnails=tuple(Thumbnail(*kept) for kept in strip.thumbnails()),
        note=reader.note,
    )
    folder.write(features, fingerprint)
    return features


def outcome_of(source: Path, work: Callable[[Path], VideoFeatures]) -> Outcome:
    """What became of `source`: the features' note, or in one line why there are none."""
    try:
        return Outcome(source, note=work(source).note)
    except HolmesError as error:
        reason = str(error)
    except OSError as error:
        reason = f"reading or writing failed ({error.strerror or error})"
    except MemoryError:
        reason = "there is not enough memory for its frames"
    except Exception as error:  # the decoder and the encoders are others' code
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    return Outcome(source, failure=reason)


def _in_processes(
    sources: list[Path], folder: FeatureFolder, backbone: str, workers: int | None
) -> Iterator[Outcome]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = min(workers or cores, len(sources)) or 1
    setup = {"folder": str(folder.path), "backbone": backbone, "threads": max(1, cores // workers)}
    return run_jobs("holmes.media.worker", setup, sources, workers)
