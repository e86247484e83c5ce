"""Recall of groups of queries: by kind, by length, by how much of the video the moment fills.

Q queries
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holmes.data.store import Split, Store
from holmes.evaluation.intervals import Draws, draw_videos, recall_intervals
from holmes.evaluation.recall import recall
from holmes.records import QueryKind

LENGTHS = {"1-5 words": 5, "6-10 words": 10, "11-15 words": 15, "16-20 words": 20, "21+ words": np.inf}
RATIOS = {"(0, .2]": 0.2, "(.2, .4]": 0.4, "(.4, .6]": 0.6, "(.6, .8]": 0.8, "(.8, 1]": 1.0}
ROUNDING = 1e-6  # moments are float32: a fifth of a video must not fall into the next group

Groups = dict[str, NDArray[np.bool_]]


def breakdowns(ranks_Q: Tensor, store: Store, split: Split) -> dict[str, dict[str, dict[str, Any]]]:
    """Breakdown → group → figures; a breakdown of which nothing is known is left out."""
    draws, found = draw_videos(split.owner), {}
    for name, members in groups_of(store, split).items():
        bounds = intervals_by(ranks_Q, members, draws)
        found[name] = {
            group: {**row, "intervals": bounds[group]} for group, row in recall_by(ranks_Q, members).items()
        }
    return found


def groups_of(store: Store, split: Split) -> dict[str, Groups]:
    """Breakdown → group → which queries are in it; a breakdown of which nothing is known is left out."""
    found = {
        "kind": by_kind(store.kinds_Q[split.queries]),
        "length": by_length([store.captions[query] for query in split.queries]),
        "moment_ratio": by_moment_ratio(store.moments_Q2[split.queries]),
    }
    return {name: members for name, members in found.items() if members}


def recall_by(ranks_Q: Tensor, groups: Groups) -> dict[str, dict[str, float]]:
    """The figures of each group, and how many queries it has."""
    ranks_Q = ranks_Q.cpu()
    return {
        name: {"queries": int(member_Q.sum()), **recall(ranks_Q[torch.from_numpy(member_Q)])}
        for name, member_Q in groups.items()
    }


def intervals_by(ranks_Q: Tensor, groups: Groups, draws: Draws) -> dict[str, dict[str, list[float | None]]]:
    """The intervals of each group's figures."""
    rank_1Q = ranks_Q.cpu().numpy()[None]
    return {
        name: {metric: e.bounds() for metric, e in recall_intervals(rank_1Q, draws, member_Q).items()}
        for name, member_Q in groups.items()
    }


def by_kind(kinds_Q: NDArray[np.int8]) -> Groups:
    return taken({kind.name.lower(): kinds_Q == kind for kind in QueryKind})


def by_length(captions: list[str]) -> Groups:
    return between(np.array([len(caption.split()) for caption in captions], float), LENGTHS)


def by_moment_ratio(moments_Q2: NDArray[np.float32]) -> Groups:
    return between(moments_Q2[:, 1].astype(float) - moments_Q2[:, 0] - ROUNDING, RATIOS)


def between(values_Q: NDArray[np.floating], bounds: dict[str, float]) -> Groups:
    """Groups by upper bounds, which belong to the group; unknown values (NaN) are in none."""
    number_Q = np.searchsorted(list(bounds.values()), values_Q)
    return taken({name: number_Q == number for number, name in enumerate(bounds)})


def taken(groups: Groups) -> Groups:
    """Only the groups that have members."""
    return {name: member_Q for name, member_Q in groups.items() if member_Q.any()}
