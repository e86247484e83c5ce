"""One question to all shards: the best each has, merged; then the moments, from those that have hits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holmes.cluster.gather import merge, whose
from holmes.cluster.generation import Generation, Names
from holmes.cluster.shard import Sent, ShardReply, sent
from holmes.errors import HolmesError
from holmes.index.composing import Found
from holmes.index.looks import View
from holmes.index.nearest import Nearest
from holmes.index.scan import Probes
from holmes.moments import Moment


@dataclass(frozen=True)
class Gathered:
    """What all shards that answered found."""

    now: Generation
    shards: list[str]  # by their places
    nearest: Nearest
    videos: dict[tuple[int, int], Found]  # by query and rank
    missing: tuple[str, ...]

    def found(self, q: int, rank: int) -> Found:
        return self.videos[q, rank]

    def views(self, hits: Sequence[tuple[int, int]]) -> list[View | None]:
        """What hits look like, each by query and rank; None for those whose shard has fallen silent."""
        asked: dict[str, list[tuple[int, Moment]]] = {}
        by_shard: dict[str, list[tuple[int, int]]] = {}
        for hit in hits:
            place, part = whose(int(self.nearest.hit_QH[hit]))
            asked.setdefault(self.shards[place], []).append((part, self.videos[hit][1][0]))
            by_shard.setdefault(self.shards[place], []).append(hit)
        replies = self.now.ask("views", {shard: (wanted,) for shard, wanted in asked.items()})
        seen = {
            hit: view
            for shard, views in replies.items()
            for hit, view in zip(by_shard[shard], views, strict=True)
        }
        return [seen.get(hit) for hit in hits]


def gather(now: Generation, probes: Probes, top: int, candidates: int, names: Names) -> Gathered:
    """Ask the shards for the best they have, then those with hits for moments.

    A shard that falls silent between the two is left out of both, so that no hit is described by halves.
    """
    travelling = sent(probes)
    replies: dict[str, ShardReply] = now.ask(
        "nearest", {shard: (travelling, top, candidates, own) for shard, own in names.items()}
    )
    while True:
        if not replies:
            raise HolmesError("none of the shards answered; is the cluster up? Try again in a moment.")
        missing = tuple(shard for shard in names if shard not in replies)
        at = {place: replies[shard] for place, shard in enumerate(names) if shard in replies}
        nearest = merge(at, top, candidates)
        videos, silent = _videos(now, list(names), travelling, nearest)
        if not silent:
            return Gathered(now, list(names), nearest, videos, missing)
        for shard in silent:
            del replies[shard]


def _videos(
    now: Generation, shards: list[str], probes: Sent, nearest: Nearest
) -> tuple[dict[tuple[int, int], Found], list[str]]:
    """The video of every hit, and the shards that did not say."""
    places: dict[str, list[tuple[int, int]]] = {}
    parts: dict[str, list[tuple[int, int]]] = {}
    for q, row in enumerate(nearest.hit_QH.tolist()):
        for rank, number in enumerate(row):
            place, part = whose(number)
            places.setdefault(shards[place], []).append((q, rank))
            parts.setdefault(shards[place], []).append((q, part))
    replies = now.ask("found", {shard: (probes, pairs) for shard, pairs in parts.items()}) if parts else {}
    videos = {
        place: video
        for shard, found in replies.items()
        for place, video in zip(places[shard], found, strict=True)
    }
    return videos, [shard for shard in parts if shard not in replies]
