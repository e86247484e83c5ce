"""One query to all shards: the best of each merged exactly; then the moments, from the shards that have hits.

Q queries, H hits, U queries of which some shard may have more
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holmes.cluster.manifest import Shards
from holmes.cluster.merge import merge, whose, with_rows
from holmes.cluster.shard import Sent, ShardReply, sent, unpacked
from holmes.cluster.snapshots import Generation, Names
from holmes.errors import HolmesError
from holmes.index.answer.answering import Found
from holmes.index.answer.duplicates import MomentFrames
from holmes.index.engine.nearest import Nearest
from holmes.index.engine.scan import Probes
from holmes.moments import Moment

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


LOOKED_AT = 2  # first hits of equal score whose looks come with their moments; more are seldom needed

Alike = Callable[[Tensor], Tensor]  # of the hits' scores, Q × H: how many first ones may be the same


@dataclass(frozen=True)
class Gathered:
    """What all shards that answered found."""

    now: Generation
    shards: list[str]  # by their places
    nearest: Nearest
    videos: dict[tuple[int, int], Found]  # by query and rank
    seen: dict[tuple[int, int], MomentFrames]  # what some of them look like
    missing: tuple[str, ...]

    def found(self, q: int, rank: int) -> Found:
        return self.videos[q, rank]

    def views(self, hits: Sequence[tuple[int, int]]) -> list[MomentFrames | None]:
        """What hits look like, each by query and rank; None for those whose shard has fallen silent."""
        asked: dict[str, list[tuple[int, Moment]]] = {}
        by_shard: dict[str, list[tuple[int, int]]] = {}
        for hit in hits:
            if hit not in self.seen:
                place, part = whose(int(self.nearest.hit_QH[hit]))
                asked.setdefault(self.shards[place], []).append((part, self.videos[hit][1][0]))
                by_shard.setdefault(self.shards[place], []).append(hit)
        calls = {shard: (wanted,) for shard, wanted in asked.items()}
        for shard, views in (self.now.ask("views", calls) if calls else {}).items():
            self.seen.update(zip(by_shard[shard], map(unpacked, views), strict=True))
        return [self.seen.get(hit) for hit in hits]


def gather(
    now: Generation,
    probes: Probes,
    top: int,
    candidates: int,
    names: Names,
    alike: Alike | None = None,
    meanwhile: Callable[[Nearest], None] | None = None,
) -> Gathered:
    """Ask the shards for the best they have, then those with hits for moments, and for what hits look like
    that may be the same. `meanwhile` is done with the best while the shards look for moments.

    A shard that falls silent between the two is left out of both, so that no hit is described by halves.
    """
    shards, amount = list(names), Amount(top, candidates)
    asked = first_amounts(amount, now.shards, names)
    replies = _best(now, probes, asked, names)
    while True:
        if not replies:
            raise HolmesError("none of the shards answered; is the cluster up? Try again in a moment.")
        missing = tuple(shard for shard in shards if shard not in replies)
        nearest, silent = _proven(now, probes, amount, names, replies, asked)
        if not silent:
            busy = None if meanwhile is None else partial(meanwhile, nearest)
            videos, seen, silent = _videos(now, shards, sent(probes), nearest, alike, busy)
        if not silent:
            return Gathered(now, shards, nearest, videos, seen, missing)
        for shard in silent:
            del replies[shard]


def _best(
    now: Generation, probes: Probes, asked: Mapping[str, Amount], names: Names
) -> dict[str, ShardReply]:
    travelling = sent(probes)
    calls = {
        shard: (travelling, amount.videos, amount.parts, names[shard]) for shard, amount in asked.items()
    }
    return now.ask("nearest", calls)


def _proven(
    now: Generation,
    probes: Probes,
    amount: Amount,
    names: Names,
    replies: Mapping[str, ShardReply],
    asked: Mapping[str, Amount],
) -> tuple[Nearest, list[str]]:
    """The best of all shards, and those that were silent when asked for more than their share."""
    nearest = _merged(names, replies, amount)
    open_Q = may_have_more(replies, asked, amount, nearest)
    if not open_Q:
        return nearest, []
    at_U = np.logical_or.reduce(list(open_Q.values())).nonzero()[0]
    again = _best(now, probes[torch.from_numpy(at_U)], dict.fromkeys(open_Q, amount), names)
    if silent := [shard for shard in open_Q if shard not in again]:
        return nearest, silent
    rows = {shard: again[shard] if shard in again else reply[at_U] for shard, reply in replies.items()}
    whole = _merged(names, rows, amount)
    return with_rows(nearest, at_U, whole), []


def _merged(names: Names, replies: Mapping[str, ShardReply], amount: Amount) -> Nearest:
    at = {place: replies[shard] for place, shard in enumerate(names) if shard in replies}
    return merge(at, amount.videos, amount.parts)


def _videos(
    now: Generation,
    shards: list[str],
    probes: Sent,
    nearest: Nearest,
    alike: Alike | None,
    meanwhile: Callable[[], None] | None,
) -> tuple[dict[tuple[int, int], Found], dict[tuple[int, int], MomentFrames], list[str]]:
    """The video of every hit, what some look like, and the shards that did not answer."""
    looked_at = [0] * len(nearest.hit_QH)
    if alike is not None:
        alike_Q = alike(nearest.hit_score_QH)
        looked_at = torch.where(alike_Q > 1, alike_Q.clamp(max=LOOKED_AT), 0).tolist()
    places: dict[str, list[tuple[int, int]]] = {}
    parts: dict[str, list[tuple[int, int, bool]]] = {}
    for q, row in enumerate(nearest.hit_QH.tolist()):
        for rank, number in enumerate(row):
            place, part = whose(number)
            places.setdefault(shards[place], []).append((q, rank))
            parts.setdefault(shards[place], []).append((q, part, rank < looked_at[q]))
    calls = {shard: (probes, hits) for shard, hits in parts.items()}
    replies = now.ask("found", calls, meanwhile) if calls else {}
    videos, seen = dict[tuple[int, int], Found](), dict[tuple[int, int], MomentFrames]()
    for shard, found in replies.items():
        for hit, (video, view) in zip(places[shard], found, strict=True):
            videos[hit] = video
            if view is not None:
                seen[hit] = unpacked(view)
    return videos, seen, [shard for shard in parts if shard not in replies]
