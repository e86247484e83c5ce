"""Find the scenes of a video, and make clips that do not cross a cut.

N rows, L rows that the last scene may begin with, C clips, D width
"""

from __future__ import annotations

from itertools import pairwise
from math import ceil

import numpy as np
from numpy.typing import NDArray

from holmes.data.pooling import Rows, running_sums, unit_means
from holmes.records import CLIPS

MOST_ROWS = 1500  # longer films are averaged


def find_scenes(rows_ND: Rows, price: float, longest: int) -> NDArray[np.int64]:
    """The first row of each scene, and the end of the last.

    Of all ways to cut the rows, of unit length, into scenes of at most `longest` rows, this is the cheapest
    (kernel temporal segmentation, Potapov et al. 2014). A scene costs `price`, and its spread: the squared
    distances of its rows from their mean.
    """
    count = len(rows_ND)
    cost_N = np.zeros(count + 1)  # of the rows before each, cut in the best way
    begin_N = np.zeros(count + 1, np.int64)  # of the last scene in it
    for block in range(0, count, longest):
        first = max(0, block - longest)
        spread_NN = _spreads(rows_ND[first : block + longest])
        for end in range(block + 1, min(block + longest, count) + 1):
            start = max(0, end - longest)
            cost_L = cost_N[start:end] + spread_NN[start - first : end - first, end - first]
            best = int(cost_L.argmin())
            cost_N[end], begin_N[end] = cost_L[best] + price, start + best
    edges = [count]
    while edges[-1]:
        edges.append(int(begin_N[edges[-1]]))
    return np.array(edges[::-1], np.int64)


def _spreads(rows_ND: Rows) -> NDArray[np.float64]:
    """Entry [a, b] is the spread of rows a to b - 1, for a < b; the others mean nothing."""
    sums_ND = running_sums(rows_ND)
    products_NN = sums_ND @ sums_ND.T
    square_N = products_NN.diagonal()
    at_N = np.arange(len(sums_ND))
    rows_NN = np.maximum(at_N - at_N[:, None], 1)
    spread_NN: NDArray[np.float64] = rows_NN - (square_N + square_N[:, None] - 2 * products_NN) / rows_NN
    return spread_NN


def clips_in_scenes(rows_ND: Rows, part: slice, least: float, edges: NDArray[np.int64]) -> Rows:
    """32 unit rows of a part, each the mean of at least `least` rows of the video around its position.

    One that would reach into another scene is moved to its own side of the edge, and has fewer rows only if
    its whole scene has. It may reach beyond the ends of the part, as long as the scene goes on there.
    """
    count = part.stop - part.start
    middle_C = part.start + (np.arange(CLIPS) + 0.5) * count / CLIPS
    size = max(1, round(max(least, count / CLIPS)))
    own_C = np.searchsorted(edges, middle_C, side="right")
    from_C, to_C = edges[own_C - 1], edges[own_C]
    start_C = np.maximum(np.minimum(np.rint(middle_C - size / 2).astype(np.int64), to_C - size), from_C)
    end_C = np.minimum(start_C + size, to_C)
    first, last = start_C.min(), end_C.max()
    return unit_means(rows_ND[first:last], start_C - first, end_C - first)


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
