"""Extract the features of one video file: the job of a worker process."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from holmes.errors import HolmesError, in_one_line
from holmes.media.backbones.base import Image, VisualBackbone
from holmes.media.feature_folder import FeatureFolder, FolderGoneError, Thumbnail, VideoFeatures, video_id
from holmes.media.origin import Fingerprint, Origin
from holmes.media.pictures import ThumbnailStrip
from holmes.media.reader import PositionLostError, ReadingPosition, Sample, VideoReader
from holmes.media.saved_progress import SavedProgress, load_progress, progress_file, save_progress

T = TypeVar("T")
ROWS_AT_ONCE = 16  # rows encoded together; with the encoder's window, the decoded frames held at a time
BYTES_AT_ONCE = 2**27  # of decoded frames, however large each is
SAMPLES_AT_ONCE = 2**12  # where one picture stays for a long time
SAVE_EVERY = 20.0  # seconds of work that an interrupt may lose
LEAST_FREE = 2**20  # bytes that must be free for a video's features
DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}  # other videos would fail in the same way


@dataclass(frozen=True)
class Outcome:
    """What became of a video."""

    source: Path
    failure: str = ""  # one line; empty when all went well
    note: str = ""  # what was wrong with a source that could be used nevertheless
    seconds: float = 0.0  # of video
    fatal: bool = False  # other sources would fail in the same way


@dataclass(frozen=True)
class Sign:
    """A sign of life: how far a source has come."""

    source: Path
    seconds: float = 0.0  # of video
    share: float = 0.0  # of the file, 0 to 1


@dataclass(frozen=True)
class Sampling:
    """How a video is sampled."""

    rate: float  # samples per second
    fast: bool = False  # only key frames, where they are dense
    threads: int = 1  # of the decoder; with one alone, decoding and encoding take turns


def encode_video(
    source: Path,
    backbone: VisualBackbone,
    sampling: Sampling,
    unfinished: Path,
    report: Callable[[Sign], None],
) -> tuple[VideoFeatures, Origin]:
    """The features of one file, and what to recognise it by; now and then they are saved in `unfinished`.

    Memory does not grow with the length of the film, except for the rows themselves. `report` is called after
    each piece of work: how far it is, and that it is not stuck.
    """
    origin = Origin(source, Fingerprint(0, 0))
    if source.is_file():  # the reader will name what is not a file
        origin = Origin.of(source, lambda: report(Sign(source)))
    made_of = f"{origin.content} {backbone.digest} {sampling.rate} {sampling.fast}"
    earlier = load_progress(unfinished, made_of) if origin.content else None
    try:
        features = _encode(source, backbone, sampling, made_of, earlier, unfinished, report)
    except PositionLostError:
        features = _encode(source, backbone, sampling, made_of, None, unfinished, report)
    if origin.content and Fingerprint.of(source) != origin.fingerprint:
        raise HolmesError("it changed while it was read; extract it again when it is complete")
    return features, origin


def _encode(
    source: Path,
    backbone: VisualBackbone,
    sampling: Sampling,
    made_of: str,
    earlier: SavedProgress | None,
    unfinished: Path,
    report: Callable[[Sign], None],
) -> VideoFeatures:
    position = earlier.position if earlier else None
    reader = VideoReader(
        source,
        sampling.rate,
        2 * backbone.side,
        sampling.threads,
        fast=sampling.fast,
        resume=position,
        scaled_side=getattr(backbone, "scaled_side", None),
    )
    strip = earlier.strip if earlier else ThumbnailStrip()
    rows: list[NDArray[Any]] = [earlier.rows] if earlier else []
    times: list[NDArray[Any]] = [earlier.times] if earlier else []
    kept_at = time.monotonic()
    blocks = _blocks(reader, backbone.window)
    for block, reached in blocks if sampling.threads == 1 else read_ahead(blocks):
        for sample in block:
            strip.offer(sample.time, sample.image)
        whole = len(block) % backbone.window == 0
        block += [block[-1]] * (-len(block) % backbone.window)  # the last window may lack a few frames
        rows.append(encode_distinct([sample.image for sample in block], backbone))
        times.append(np.array([sample.time for sample in block]).reshape(-1, backbone.window).mean(axis=1))
        report(Sign(source, block[-1].time, min(1.0, block[-1].time / max(reader.promised, 1e-9))))
        if whole and time.monotonic() - kept_at >= SAVE_EVERY:
            if reached is not None:
                rows, times = [np.concatenate(rows)], [np.concatenate(times)]
                save_progress(unfinished, made_of, SavedProgress(rows[0], times[0], strip, reached))
            kept_at = time.monotonic()
    return VideoFeatures(
        id=video_id(source),
        source=source,
        start=reader.start,
        duration=reader.duration,
        rows=np.concatenate(rows).astype(np.float32),
        times=np.concatenate(times).astype(np.float32),
        thumbnails=tuple(Thumbnail(*kept) for kept in strip.thumbnails()),
        note=reader.note,
    )


def _blocks(reader: VideoReader, window: int) -> Iterator[tuple[list[Sample], ReadingPosition | None]]:
    """Samples for a few rows at a time, as many as memory allows, and where the reading was after them.

    All but the last block fill whole rows.
    """
    block: list[Sample] = []
    pictures = size = 0
    for sample in reader:
        if not block or block[-1].image is not sample.image:
            pictures, size = pictures + 1, size + sample.image.nbytes
        block.append(sample)
        full = pictures >= ROWS_AT_ONCE * window or size >= BYTES_AT_ONCE or len(block) >= SAMPLES_AT_ONCE
        if full and len(block) % window == 0:
            yield block, reader.position()
            block, pictures, size = [], 0, 0
    if block:
        yield block, None


def read_ahead(items: Iterator[T]) -> Iterator[T]:
    """The same items; each is made by another thread while the one before it is in use."""
    end = object()
    with ThreadPoolExecutor(1) as reader:
        upcoming = reader.submit(next, items, end)
        while (item := upcoming.result()) is not end:
            upcoming = reader.submit(next, items, end)
            yield item  # type: ignore[misc]  # it is not the end


def encode_distinct(images: Sequence[Image], backbone: VisualBackbone) -> NDArray[np.float16]:
    """Rows of all images; a picture that stays on the screen is encoded once."""
    groups = [images[at : at + backbone.window] for at in range(0, len(images), backbone.window)]
    distinct: dict[tuple[int, ...], int] = {}
    row_of = [distinct.setdefault(tuple(map(id, group)), len(distinct)) for group in groups]
    first = {row: at for at, row in reversed(list(enumerate(row_of)))}
    rows = backbone.frames([image for row in range(len(distinct)) for image in groups[first[row]]])
    if not np.isfinite(rows).all():
        raise HolmesError("the encoder gave numbers that are not finite")
    return rows.astype(np.float16)[row_of]  # as they will be written: half the memory of a long film


def extract_video(
    source: Path,
    folder: FeatureFolder,
    backbone: VisualBackbone,
    threads: int = 1,
    *,
    report: Callable[[Sign], None],
    fast: bool = False,
) -> VideoFeatures:
    """Read, encode and keep one video in `folder`, continuing where an interrupted attempt was."""
    if shutil.disk_usage(folder.path).free < LEAST_FREE:  # checked before hours of decoding, not after
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder.path))
    unfinished = progress_file(folder.videos, video_id(source))
    features, origin = encode_video(
        source, backbone, Sampling(folder.rate, fast, threads), unfinished, report
    )
    folder.write(features, origin)
    unfinished.unlink(missing_ok=True)
    return features


def outcome_of(source: Path, work: Callable[[Path], VideoFeatures]) -> Outcome:
    """What became of `source`: the note of its features, or the reason, in one line, why there are none."""
    fatal = False
    try:
        features = work(source)
        return Outcome(source, note=features.note, seconds=features.duration)
    except FolderGoneError as error:
        reason, fatal = str(error), True
    except HolmesError as error:
        reason = str(error)
    except OSError as error:
        fatal = error.errno in DISK_ERRORS
        reason = f"reading or writing failed ({error.strerror or error})"
        if fatal:
            reason = f"{error.strerror}: {error.filename}"
    except MemoryError:
        reason = "there is not enough memory for its frames"
    except Exception as error:  # the decoder and the encoders are others' code
        reason = in_one_line(error)
    return Outcome(source, failure=reason, fatal=fatal)
