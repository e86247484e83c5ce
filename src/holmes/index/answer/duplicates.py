"""Find first hits that show the same moment, by comparing their frames.

Q queries, H hits, F frames, D width
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holmes.evidence.kinds import SMALL_GROUP
from holmes.index.answer.timeline import frames_of, frames_of_moment
from holmes.index.embedders.protocol import Embedder
from holmes.index.storage.segments import StoredVideo
from holmes.moments import Moment

Rows = NDArray[np.floating]

SAMPLED = 256  # videos whose mean frame says what a collection shares
SHORTEST = 1e-6
# Frames around a moment. A film of hours has twenty thousand, and a thousand sentences compare two hits each.
MOST_FRAMES = 256
# On 90 real clips and copies of 30 of them in a far lower quality, this found half of the copies and took no
# two different clips for one.
SAME = 0.9
CLOSE = 0.05  # a copy scores about as much as what it is a copy of


@dataclass(frozen=True)
class MomentFrames:
    """A hit's frames, of a long film those around its best moment, and which of them are that moment."""

    rows_FD: Rows
    inside_F: NDArray[np.bool_]


@dataclass(frozen=True)
class MeanFrame:
    """The mean of a video's frames."""

    key: int  # the videos with the smallest keys are the sample, whichever shard they are in
    mean_D: Rows


def moment_frames(video: StoredVideo, moment: Moment) -> MomentFrames:
    inside_F = frames_of_moment(video, moment)
    middle = int(np.flatnonzero(inside_F).mean())
    start = min(max(middle - MOST_FRAMES // 2, 0), max(len(inside_F) - MOST_FRAMES, 0))
    around = slice(start, start + MOST_FRAMES)
    # A copy does not keep the others in memory.
    return MomentFrames(frames_of(video)[around].copy(), inside_F[around])


def sample_mean_frames(key_S: Tensor, video_of_part: Callable[[int], StoredVideo]) -> list[MeanFrame]:
    """A sample of the videos that these parts belong to."""
    keys, of_part_S = torch.unique(key_S.cpu(), return_inverse=True)
    chosen = keys[:SAMPLED].tolist()
    any_part = {int(number): part for part, number in enumerate(of_part_S.tolist())}
    return [
        MeanFrame(key, frames_of(video_of_part(any_part[number])).mean(axis=0))
        for number, key in enumerate(chosen)
    ]


def merge_samples(samples: Iterable[Iterable[MeanFrame]]) -> list[MeanFrame]:
    """The sample of a collection from those of its shards."""
    return sorted((frame for sample in samples for frame in sample), key=lambda frame: frame.key)[:SAMPLED]


def show_the_same(one: MomentFrames, other: MomentFrames, shared_D: Rows) -> bool:
    """Whether two hits show one and the same moment."""
    one_FD, other_FD = (unit(frames.rows_FD - shared_D) for frames in (one, other))
    there = (one_FD[one.inside_F] @ other_FD.T).max(axis=1).mean()
    back = (other_FD[other.inside_F] @ one_FD.T).max(axis=1).mean()
    return bool(min(there, back) >= SAME)


def unit(rows: Rows) -> Rows:
    scaled: Rows = rows / np.linalg.norm(rows, axis=-1, keepdims=True).clip(min=SHORTEST)
    return scaled


# The frames of hits, each by its query and its rank; None where a shard does not answer.
FramesOfHits = Callable[[Sequence[tuple[int, int]]], Sequence[MomentFrames | None]]


@dataclass
class DuplicateFinder:
    """Finds first hits that show the same moment."""

    embedder: Embedder
    draw_sample: Callable[[], Sequence[MeanFrame]]

    def alike(self, score_QH: Tensor) -> Tensor:
        """How many of each query's first videos score so alike that they may show one moment."""
        if not self.embedder.compares_images:
            return torch.zeros(len(score_QH), dtype=torch.int64)
        near_QH = (score_QH[:, :SMALL_GROUP] - score_QH[:, :1]).abs() <= CLOSE
        return near_QH.long().cumprod(1).sum(1)

    def copies(self, score_QH: Tensor, frames_of_hits: FramesOfHits) -> Tensor:
        """How many of each query's first videos show one moment, among the few that score alike."""
        alike_Q = self.alike(score_QH)
        copies_Q = torch.ones_like(alike_Q)
        open_Q = (alike_Q > 1).nonzero()[:, 0].tolist()
        first = dict(zip(open_Q, frames_of_hits([(q, 0) for q in open_Q]), strict=True)) if open_Q else {}
        rank = 1
        while open_Q:  # rank by rank: hardly any query gets beyond its second hit
            seen = frames_of_hits([(q, rank) for q in open_Q])
            same = [q for q, frames in zip(open_Q, seen, strict=True) if self._same(first[q], frames)]
            copies_Q[same] += 1
            rank += 1
            open_Q = [q for q in same if alike_Q[q] > rank]
        return copies_Q

    def _same(self, one: MomentFrames | None, other: MomentFrames | None) -> bool:
        if one is None or other is None or not self._sample:
            return False
        return show_the_same(one, other, self._shared_D)

    @cached_property
    def _shared_D(self) -> Rows:
        mean_D: Rows = np.mean([frame.mean_D for frame in self._sample], axis=0)
        return mean_D

    @cached_property
    def _sample(self) -> Sequence[MeanFrame]:
        return self.draw_sample()
