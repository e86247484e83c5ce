"""What the shards found, merged as one index would have found it: the best of each, and exact sums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from operator import add

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holmes.cluster.shard import ShardReply
from holmes.index.engine.exact_sums import ScoreSums
from holmes.index.engine.nearest import Nearest

BITS = 40  # low bits of a number are the shard's own; the shard's place is in the bits above


def merge(replies: Mapping[int, ShardReply], top: int, candidates: int) -> Nearest:
    """The nearest of all shards, by the shards' places. Equal scores are in the order of their keys."""
    at = sorted(replies)

    def joined(name: str) -> Tensor:
        return torch.from_numpy(np.concatenate([getattr(replies[place], name) for place in at], 1))

    def numbered(name: str) -> Tensor:
        whole = [getattr(replies[place], name) + (place << BITS) for place in at]
        return torch.from_numpy(np.concatenate(whole, 1))

    sums = reduce(add, (sums_of(replies[place]) for place in at))
    best_QK = _order(joined("score_QK"), joined("key_QK"))[:, : max(top, candidates)]
    best_QH = _order(joined("hit_score_QH"), joined("hit_key_QH"))[:, :top]
    return Nearest(
        *(numbered("part_QK").gather(1, best_QK), joined("score_QK").gather(1, best_QK)),
        *(joined("frame_QK").gather(1, best_QK), joined("clip_QK").gather(1, best_QK)),
        *(numbered("video_QK").gather(1, best_QK), joined("video_parts_QK").gather(1, best_QK)),
        numbered("hit_QH").gather(1, best_QH),
        joined("hit_score_QH").gather(1, best_QH),
        sums,
    )


def with_rows(nearest: Nearest, at_U: NDArray[np.int64], better: Nearest) -> Nearest:
    """What was found, with more of it for some of the queries."""
    if len(at_U) == len(nearest.parts_QK):
        return better
    at = torch.from_numpy(at_U)
    found = zip(vars(nearest).items(), vars(better).values(), strict=True)
    rows = {name: value.index_copy(0, at, more) for (name, value), more in found if name != "all_scores"}
    return replace(nearest, **rows)


def whose(number: int) -> tuple[int, int]:
    """The place of a shard and its own number, from a number of all shards."""
    return number >> BITS, number & ((1 << BITS) - 1)


def _order(score_QN: Tensor, key_QN: Tensor) -> Tensor:
    """Best first, equal scores by key; parts of one video, which one shard has in order of time, stay so."""
    by_key_QN = key_QN.argsort(dim=1, stable=True)
    by_score_QN = score_QN.gather(1, by_key_QN).argsort(dim=1, descending=True, stable=True)
    return by_key_QN.gather(1, by_score_QN)


def sums_of(reply: ShardReply) -> ScoreSums:
    return ScoreSums(reply.count, torch.tensor(reply.sum_Q), torch.tensor(reply.squares_Q))
