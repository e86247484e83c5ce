"""Which of the first hits show the very same moment: copies, encoded anew or cut from one film.

What is seen in the moment of the one is looked for anywhere in the other, and the other way round. Looks are
compared after what all videos share is taken away, since some encoders find everything alike.

F frames, D width
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from holmes.index.scan import Probes
from holmes.index.stored_video import StoredVideo
from holmes.index.timeline import find_moments, frames_of, frames_of_moment

Rows = NDArray[np.floating]

# On 90 real clips, with 30 of them again in a far lower quality, this knew half of those copies and took no
# two different clips for one.
ALIKE = 0.9
CLOSE = 0.05  # a copy scores about as much as what it is a copy of
SHORTEST = 1e-6


def usual_look(videos: Sequence[StoredVideo]) -> Rows:
    """What the frames of some videos share."""
    mean_D: Rows = np.mean([frames_of(video).mean(axis=0) for video in videos], axis=0)
    return mean_D


def leading_copies(videos: Sequence[StoredVideo], probes: Probes, q: int, usual_D: Rows) -> int:
    """How many of the first videos, itself included, show the moment that the first one has for query `q`."""
    first = _seen(videos[0], probes, q, usual_D)
    for count, video in enumerate(videos[1:], start=1):
        if not _show_the_same(first, _seen(video, probes, q, usual_D)):
            return count
    return len(videos)


def _seen(video: StoredVideo, probes: Probes, q: int, usual_D: Rows) -> tuple[Rows, Rows]:
    """The frames of its best moment, and all of them."""
    away_FD = frames_of(video) - usual_D
    rows_FD = away_FD / np.linalg.norm(away_FD, axis=1, keepdims=True).clip(min=SHORTEST)
    return rows_FD[frames_of_moment(video, find_moments(video, probes, q)[0])], rows_FD


def _show_the_same(one: tuple[Rows, Rows], other: tuple[Rows, Rows]) -> bool:
    there = (one[0] @ other[1].T).max(axis=1).mean()
    back = (other[0] @ one[1].T).max(axis=1).mean()
    return bool(min(there, back) >= ALIKE)
