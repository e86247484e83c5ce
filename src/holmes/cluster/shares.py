"""How much each shard is asked for at first, and whether that was enough.

Since videos are spread at random, a shard has about its share of the best of a whole index. So it is asked
for that and a few more, which saves most of the exact scores. What it does not name scores no more than the
last one it names; where that is as good as the last of the best of all, it may have more, and is asked for
all.

Q queries, K best parts, H hits
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from holmes.cluster.generation import Names
from holmes.cluster.shard import ShardReply
from holmes.cluster.shards_manifest import Shards
from holmes.index.nearest import Nearest

DEVIATIONS = 3.0  # added to the expected share: one shard in a thousand has more


@dataclass(frozen=True)
class Amount:
    """How many videos, and how many of the best parts of any, to name."""

    videos: int
    parts: int

    def share(self, part: float) -> Amount:
        """The request to a shard that holds this part of all videos."""
        return Amount(_share(self.videos, part), _share(self.parts, part))


def _share(wanted: int, part: float) -> int:
    mean = wanted * part
    return min(wanted, math.ceil(mean + DEVIATIONS * math.sqrt(mean)) + 1)


def first_amounts(amount: Amount, shards: Shards, names: Names) -> dict[str, Amount]:
    """What every shard is asked for at first."""
    sizes = {shard: shards[shard].parts if own is None else len(own) for shard, own in names.items()}
    whole = max(1, sum(sizes.values()))
    return {shard: amount.share(size / whole) for shard, size in sizes.items()}


def may_have_more(
    replies: Mapping[str, ShardReply], asked: Mapping[str, Amount], amount: Amount, nearest: Nearest
) -> dict[str, NDArray[np.bool_]]:
    """The shards that may have more of the best than they have named, and for which queries."""
    best = (
        (nearest.score_QK.numpy(), max(amount.videos, amount.parts)),
        (nearest.hit_score_QH.numpy(), amount.videos),
    )
    found = {}
    for shard, reply in replies.items():
        own = asked[shard]
        named = ((reply.score_QK, max(own.videos, own.parts)), (reply.hit_score_QH, own.videos))
        open_Q = np.zeros(len(reply.sum_Q), bool)
        for (score_QN, at_most), (best_QN, wanted) in zip(named, best, strict=True):
            if at_most < wanted and score_QN.shape[1] == at_most:  # else it has named all it has
                enough = best_QN.shape[1] == wanted
                open_Q |= score_QN[:, -1] >= best_QN[:, -1] if enough else True
        if open_Q.any():
            found[shard] = open_Q
    return found
