"""Where the scenes of a video begin: cuts where neighbouring frames look most unlike each other.

N frames, D width
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

MOST = 24  # scenes of a video
LEAST_SECONDS = 2.0  # of a scene
UNLIKE = 0.12  # cosine distance between neighbouring frames at which a cut is believed at the least
EVEN = 8  # scenes of a video whose frames are not known


def scenes_of(
    rows_ND: NDArray[np.floating] | None, times_N: NDArray[np.floating] | None, duration: float
) -> list[tuple[float, float]]:
    """The scenes as (start, end) in seconds, from the first second to the last; equal parts without frames.

    Example:
        >>> scenes_of(None, None, 16.0)[:2]
        [(0.0, 2.0), (2.0, 4.0)]
    """
    if rows_ND is None or times_N is None or len(rows_ND) < 2:
        count = int(min(EVEN, max(1, duration // LEAST_SECONDS)))
        edges = [duration * at / count for at in range(count + 1)]
    else:
        edges = [0.0, *_cuts(np.asarray(rows_ND, np.float32), np.asarray(times_N, float), duration), duration]
    return list(pairwise(edges))


def _cuts(rows_ND: NDArray[np.float32], times_N: NDArray[np.floating], duration: float) -> list[float]:
    unit_ND = rows_ND / np.maximum(np.linalg.norm(rows_ND, axis=1, keepdims=True), 1e-12)
    unlike_N = 1 - (unit_ND[1:] * unit_ND[:-1]).sum(axis=1)
    level = max(UNLIKE, 2.5 * float(np.median(unlike_N)))
    middle_N = (times_N[1:] + times_N[:-1]) / 2
    chosen: list[float] = []
    for at in np.argsort(-unlike_N):  # the clearest cuts first; a later one too near to them is none
        if unlike_N[at] < level or len(chosen) == MOST - 1:
            break
        time = float(middle_N[at])
        near = [0.0, duration, *chosen]
        if all(abs(time - other) >= LEAST_SECONDS for other in near):
            chosen.append(time)
    return sorted(chosen)
