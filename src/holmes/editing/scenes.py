"""When the scenes of a film begin: chapters, and the pictures below a player.

N rows along the film, D width
"""

from __future__ import annotations

from itertools import pairwise
from math import ceil

import numpy as np
from numpy.typing import NDArray

from holmes.index.embedders.scenes import find_scenes

MOST_ROWS = 1500  # longer films are averaged


def scene_times(
    rows_ND: NDArray[np.floating],
    starts_N: NDArray[np.floating],
    duration: float,
    price: float,
    shortest: float,
) -> list[float]:
    """When each scene begins, and when the last ends; too short scenes join the side that is more alike.

    `starts_N` is the second at which each row begins. The price of a scene is in seconds of frames with
    nothing in common.
    """
    every = max(1, ceil(len(rows_ND) / MOST_ROWS))
    starts = range(0, len(rows_ND), every)
    mean_ND = np.stack([rows_ND[start : start + every].mean(axis=0) for start in starts])
    mean_ND = mean_ND / np.maximum(np.linalg.norm(mean_ND, axis=1, keepdims=True), 1e-9)
    rate = len(mean_ND) / max(duration, 1e-3)
    edges = find_scenes(mean_ND, price * rate, len(mean_ND)).tolist()
    ends = [0.0, *(float(starts_N[starts[edge]]) for edge in edges[1:-1]), duration]
    while len(edges) > 2:
        lengths = np.diff(ends)
        shortest_at = int(lengths.argmin())
        if lengths[shortest_at] >= shortest:
            break
        gone = _less_of_an_edge(mean_ND, edges, shortest_at)
        del edges[gone], ends[gone]
    return ends


def _less_of_an_edge(rows_ND: NDArray[np.floating], edges: list[int], scene: int) -> int:
    """Which edge of a scene divides it from what looks more like it."""
    means = [rows_ND[a:b].mean(axis=0) for a, b in pairwise(edges)]
    likeness = {}
    if scene > 0:
        likeness[scene] = float(means[scene] @ means[scene - 1])
    if scene < len(means) - 1:
        likeness[scene + 1] = float(means[scene] @ means[scene + 1])
    return max(likeness, key=lambda edge: likeness[edge])
