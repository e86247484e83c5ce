"""Divide a long video into overlapping parts of the length that the model was made for.

All parts of a video have equally many rows. A moment not longer than the overlap lies whole in one of them.

N raw rows, L pooled rows, S parts of a video, F frames, C clips
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from holmes.data.pooling import pool_bounds
from holmes.index.embedders.protocol import Embedder
from holmes.index.storage.segments import StoredVideo, pack_parts
from holmes.media.feature_folder import VideoFeatures
from holmes.records import CLIPS

OVERLAP = 0.25  # share of the longest part: 16 seconds of 64
Spans = NDArray[np.float32]


def part_bounds(rows: int, seconds: float, longest: float) -> list[slice]:
    """Where the parts of a video lie among its rows; none stands for more than `longest` seconds.

    Where there are few rows per second, parts are longer, so that there are about as many rows as clips.
    """
    longest = max(longest, CLIPS * seconds / rows)
    overlap = OVERLAP * longest
    count = max(1, math.ceil((seconds - overlap) / (longest - overlap)))
    if count == 1:
        return [slice(0, rows)]
    size = min(rows, math.ceil((seconds + (count - 1) * overlap) / count * rows / seconds))
    starts = np.rint(np.linspace(0, rows - size, count)).astype(int).tolist()
    return [slice(start, start + size) for start in starts]


def embed_videos(
    videos: Sequence[VideoFeatures], stamps: dict[str, int], embedder: Embedder
) -> list[StoredVideo]:
    """Videos as an index keeps them; all parts of all of them are embedded together."""
    spans = [row_spans(video.times, video.start, video.duration) for video in videos]
    bounds = [part_bounds(len(spans_N2), _seconds(spans_N2), embedder.part_seconds) for spans_N2 in spans]
    embedded = embedder.videos(
        [video.rows for video in videos], [_seconds(spans_N2) for spans_N2 in spans], bounds
    )
    stored = []
    for video, spans_N2, own, parts in zip(videos, spans, bounds, embedded, strict=True):
        pooled = [
            (
                frames_FD,
                clips_CD,
                *(pooled_spans(spans_N2[part], len(rows)) for rows in (frames_FD, clips_CD)),
            )
            for part, (frames_FD, clips_CD) in zip(own, parts, strict=True)
        ]
        frames_SFD, clips_SCD, spans_SF2, spans_SC2 = (np.stack(rows) for rows in zip(*pooled, strict=True))
        name, stamp = str(video.source), stamps[video.id]
        stored.append(pack_parts(name, video.duration, frames_SFD, clips_SCD, spans_SF2, spans_SC2, stamp))
    return stored


def _seconds(spans_N2: Spans) -> float:
    return float(spans_N2[-1, 1] - spans_N2[0, 0])


def row_spans(times_N: NDArray[np.floating], start: float, end: float) -> Spans:
    """The seconds each row stands for: halfway to its neighbours, from the first picture to the end."""
    times_N = np.asarray(times_N, np.float64)
    between = (times_N[1:] + times_N[:-1]) / 2
    edges = np.concatenate([[min(start, *times_N[:1])], between, [max(end, *times_N[-1:])]])
    return np.stack([edges[:-1], edges[1:]], axis=1).astype(np.float32)


def pooled_spans(spans_N2: Spans, length: int) -> Spans:
    """The seconds of rows after pooling N of them to `length`; as they are where nothing is pooled."""
    if length == len(spans_N2):
        return spans_N2
    bounds = pool_bounds(len(spans_N2), length)
    first, last = bounds[:-1], np.maximum(bounds[1:] - 1, bounds[:-1])
    last[-1] = len(spans_N2) - 1  # pooling leaves the last row out; it still belongs to the last span
    return np.stack([spans_N2[first, 0], spans_N2[last, 1]], axis=1)
