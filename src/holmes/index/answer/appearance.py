"""What videos look like, as far as comparing hits needs it: small enough to travel from a shard.

F frames, P pieces of a video, D width
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holmes.index.answer.timeline import frames_of, frames_of_moment
from holmes.index.storage.segments import StoredVideo
from holmes.moments import Moment

Rows = NDArray[np.floating]

PIECES = 3  # pieces of a video that say what is usual
SAMPLED = 256  # videos that say what is usual in a collection
SHORTEST = 1e-6
# Frames of a view. A film of hours has twenty thousand, and a thousand sentences look at two hits each.
MOST_FRAMES = 256


@dataclass(frozen=True)
class View:
    """A hit's frames, of a long film those around its best moment, and which of them are that moment."""

    rows_FD: Rows
    inside_F: NDArray[np.bool_]


@dataclass(frozen=True)
class Sketch:
    """A video in a few rows: the mean of its frames, and what its pieces look like."""

    key: int  # the videos with the smallest keys are the sample, whichever shard they are in
    mean_D: Rows
    pieces_PD: Rows


def view_of(video: StoredVideo, moment: Moment) -> View:
    inside_F = frames_of_moment(video, moment)
    middle = int(np.flatnonzero(inside_F).mean())
    start = min(max(middle - MOST_FRAMES // 2, 0), max(len(inside_F) - MOST_FRAMES, 0))
    around = slice(start, start + MOST_FRAMES)
    return View(frames_of(video)[around].copy(), inside_F[around])  # a copy lets go of the others


def sketches_of(key_S: Tensor, video_of_part: Callable[[int], StoredVideo]) -> list[Sketch]:
    """A sample of the videos that these parts belong to."""
    keys, of_part_S = torch.unique(key_S.cpu(), return_inverse=True)
    chosen = keys[:SAMPLED].tolist()
    any_part = {int(number): part for part, number in enumerate(of_part_S.tolist())}
    return [sketch_of(video_of_part(any_part[number]), key) for number, key in enumerate(chosen)]


def sketch_of(video: StoredVideo, key: int) -> Sketch:
    rows_FD = frames_of(video)
    pieces = [look_of(piece) for piece in np.array_split(rows_FD, PIECES) if len(piece)]
    return Sketch(key, rows_FD.mean(axis=0), np.stack(pieces))


def merged(samples: Iterable[Iterable[Sketch]]) -> list[Sketch]:
    """The sample of a collection from those of its shards."""
    return sorted((sketch for sample in samples for sketch in sample), key=lambda sketch: sketch.key)[
        :SAMPLED
    ]


def look_of(rows_FD: Rows) -> Rows:
    """What some frames look like, as one direction."""
    return unit(rows_FD.mean(axis=0))


def unit(rows: Rows) -> Rows:
    scaled: Rows = rows / np.linalg.norm(rows, axis=-1, keepdims=True).clip(min=SHORTEST)
    return scaled
