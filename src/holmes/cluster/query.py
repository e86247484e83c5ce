"""Search all shards: merge the best parts exactly, count words, then find the moments of the hits.

First every shard is asked for about as many results as it should have if the best ones were spread evenly. A
shard whose last result might still be among the best is asked again for all it has. So the merged result is
that of one index, and each shard sends little.

Ray returns what each shard found: the exact merge, and asking again, are done here.

A word's information depends on all passages, so every shard counts words before any searches them.

Q queries, H hits, K best parts, U queries for which some shard may have more
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holmes.cluster.calls import call
from holmes.cluster.manifest import Shards
from holmes.cluster.shard import ProbeArrays, Shard, ShardReply, frames_to_float32, to_arrays
from holmes.cluster.snapshots import Names, Snapshot
from holmes.errors import HolmesError
from holmes.evidence.sources import TextEvidence
from holmes.index.answer.answering import Found
from holmes.index.answer.duplicates import MomentFrames
from holmes.index.answer.words import Speaking, Words, word_queries
from holmes.index.engine.nearest import Nearest
from holmes.index.engine.passages import MOST_VIDEOS, Counts, best
from holmes.index.engine.scan import Probes
from holmes.moments import Moment

DEVIATIONS = 3.0  # added to the expected number of results: one shard in a thousand has more
WITH_FRAMES = 2  # first hits with equal scores whose frames come with their moments; more are rare
BITS = 40  # of a number that belong to the shard; the bits above say which shard it is

Alike = Callable[[Tensor], Tensor]  # of the hits' scores, Q × H: how many first ones may be the same
Hit = tuple[int, int]  # query and rank


@dataclass(frozen=True)
class Results:
    """What all shards that replied found."""

    snapshot: Snapshot
    shards: list[str]  # by their numbers
    nearest: Nearest
    videos: dict[Hit, Found]
    known_frames: dict[Hit, MomentFrames]
    missing: tuple[str, ...]

    def found(self, q: int, rank: int) -> Found:
        return self.videos[q, rank]

    def frames(self, hits: Sequence[Hit]) -> list[MomentFrames | None]:
        """The frames of hits' moments; None for hits whose shard did not reply."""
        wanted: dict[str, list[tuple[int, Moment]]] = {}
        of_shard: dict[str, list[Hit]] = {}
        for hit in hits:
            if hit not in self.known_frames:
                number, part = _shard_and_part(int(self.nearest.hit_QH[hit]))
                wanted.setdefault(self.shards[number], []).append((part, self.videos[hit][1][0]))
                of_shard.setdefault(self.shards[number], []).append(hit)
        calls = {shard: call(Shard.frames, moments) for shard, moments in wanted.items()}
        for shard, frames in self.snapshot.call(calls).items():
            self.known_frames.update(zip(of_shard[shard], map(frames_to_float32, frames), strict=True))
        return [self.known_frames.get(hit) for hit in hits]


def query_shards(
    snapshot: Snapshot,
    probes: Probes,
    top: int,
    candidates: int,
    names: Names,
    alike: Alike | None = None,
    judged: Callable[[Nearest, Collection[int]], Nearest] | None = None,
) -> Results:
    """The nearest videos of all shards, and the moments of the hits.

    `alike` says how many first hits may be the same; their frames are fetched with their moments.
    `judged` puts the nearest videos in the order of their probability; it is told which shards are missing.

    A shard that replies only to the first of the two calls is left out, so that every hit has its moments.
    """
    shards, amount = list(names), Amount(top, candidates)
    amounts = first_amounts(amount, snapshot.shards, names)
    replies = _best(snapshot, probes, amounts, names)
    while True:
        if not replies:
            raise HolmesError("none of the shards answered; is the cluster up? Try again in a moment.")
        missing = tuple(shard for shard in shards if shard not in replies)
        nearest, lost = _nearest(snapshot, probes, amount, names, replies, amounts)
        if not lost:
            gone = {number for number, shard in enumerate(shards) if shard not in replies}
            nearest = nearest if judged is None else judged(nearest, gone)
            videos, frames, lost = _videos(snapshot, shards, to_arrays(probes), nearest, alike)
        if not lost:
            return Results(snapshot, shards, nearest, videos, frames, missing)
        for shard in lost:
            del replies[shard]


@dataclass(frozen=True)
class Amount:
    """How many videos, and how many of the best parts of any video, to return."""

    videos: int
    parts: int

    def of_shard(self, fraction: float) -> Amount:
        """What to ask of a shard that holds this fraction of all parts."""
        return Amount(_expected(self.videos, fraction), _expected(self.parts, fraction))


def _expected(wanted: int, fraction: float) -> int:
    mean = wanted * fraction
    return min(wanted, math.ceil(mean + DEVIATIONS * math.sqrt(mean)) + 1)


def first_amounts(amount: Amount, shards: Shards, names: Names) -> dict[str, Amount]:
    """What every shard is asked for at first."""
    sizes = {shard: shards[shard].parts if own is None else len(own) for shard, own in names.items()}
    whole = max(1, sum(sizes.values()))
    return {shard: amount.of_shard(size / whole) for shard, size in sizes.items()}


def may_have_more(
    replies: Mapping[str, ShardReply], asked: Mapping[str, Amount], amount: Amount, nearest: Nearest
) -> dict[str, NDArray[np.bool_]]:
    """The shards that may have more of the best than they returned, and for which queries."""
    best = (
        (nearest.score_QK.numpy(), max(amount.videos, amount.parts)),
        (nearest.hit_score_QH.numpy(), amount.videos),
    )
    found = {}
    for shard, reply in replies.items():
        own = asked[shard]
        returned = ((reply.score_QK, max(own.videos, own.parts)), (reply.hit_score_QH, own.videos))
        open_Q = np.zeros(len(reply.sum_Q), bool)
        for (score_QN, limit), (best_QN, wanted) in zip(returned, best, strict=True):
            if limit < wanted and score_QN.shape[1] == limit:  # else it has returned all it has
                enough = best_QN.shape[1] == wanted
                open_Q |= score_QN[:, -1] >= best_QN[:, -1] if enough else True
        if open_Q.any():
            found[shard] = open_Q
    return found


def _best(
    snapshot: Snapshot, probes: Probes, asked: Mapping[str, Amount], names: Names
) -> dict[str, ShardReply]:
    arrays = to_arrays(probes)
    return snapshot.call(
        {
            shard: call(Shard.nearest, arrays, amount.videos, amount.parts, names[shard])
            for shard, amount in asked.items()
        }
    )


def _nearest(
    snapshot: Snapshot,
    probes: Probes,
    amount: Amount,
    names: Names,
    replies: Mapping[str, ShardReply],
    asked: Mapping[str, Amount],
) -> tuple[Nearest, list[str]]:
    """The nearest of all shards, and the shards that did not reply when they were asked for more."""
    nearest = _merged(names, replies, amount)
    open_Q = may_have_more(replies, asked, amount, nearest)
    if not open_Q:
        return nearest, []
    at_U = np.logical_or.reduce(list(open_Q.values())).nonzero()[0]
    again = _best(snapshot, probes[torch.from_numpy(at_U)], dict.fromkeys(open_Q, amount), names)
    if lost := [shard for shard in open_Q if shard not in again]:
        return nearest, lost
    rows = {shard: again[shard] if shard in again else reply[at_U] for shard, reply in replies.items()}
    return _with_rows(nearest, at_U, _merged(names, rows, amount)), []


def _videos(
    snapshot: Snapshot,
    shards: list[str],
    probes: ProbeArrays,
    nearest: Nearest,
    alike: Alike | None,
) -> tuple[dict[Hit, Found], dict[Hit, MomentFrames], list[str]]:
    """The video of every hit, the frames of some, and the shards that did not reply."""
    with_frames = [0] * len(nearest.hit_QH)
    if alike is not None:
        alike_Q = alike(nearest.hit_score_QH)
        with_frames = torch.where(alike_Q > 1, alike_Q.clamp(max=WITH_FRAMES), 0).tolist()
    of_shard: dict[str, list[Hit]] = {}
    parts: dict[str, list[tuple[int, int, bool]]] = {}
    for q, row in enumerate(nearest.hit_QH.tolist()):
        for rank, global_number in enumerate(row):
            number, part = _shard_and_part(global_number)
            of_shard.setdefault(shards[number], []).append((q, rank))
            parts.setdefault(shards[number], []).append((q, part, rank < with_frames[q]))
    calls = {shard: call(Shard.found, probes, hits) for shard, hits in parts.items()}
    replies = snapshot.call(calls)
    videos, frames = dict[Hit, Found](), dict[Hit, MomentFrames]()
    for shard, found in replies.items():
        for hit, (video, seen) in zip(of_shard[shard], found, strict=True):
            videos[hit] = video
            if seen is not None:
                frames[hit] = frames_to_float32(seen)
    return videos, frames, [shard for shard in parts if shard not in replies]


def _merged(names: Names, replies: Mapping[str, ShardReply], amount: Amount) -> Nearest:
    by_number = {number: replies[shard] for number, shard in enumerate(names) if shard in replies}
    return merge(by_number, amount.videos, amount.parts)


def merge(replies: Mapping[int, ShardReply], top: int, candidates: int) -> Nearest:
    """The nearest of all shards, which are given by number. Equal scores are in the order of their keys."""
    numbers = sorted(replies)

    def joined(name: str) -> Tensor:
        return torch.from_numpy(np.concatenate([getattr(replies[number], name) for number in numbers], 1))

    def numbered(name: str) -> Tensor:
        whole = [getattr(replies[number], name) + (number << BITS) for number in numbers]
        return torch.from_numpy(np.concatenate(whole, 1))

    sums = reduce(add, (replies[number].sums for number in numbers))
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


def _order(score_QN: Tensor, key_QN: Tensor) -> Tensor:
    """Best first, equal scores by key; parts of one video, which one shard has in order of time, stay so."""
    by_key_QN = key_QN.argsort(dim=1, stable=True)
    by_score_QN = score_QN.gather(1, by_key_QN).argsort(dim=1, descending=True, stable=True)
    return by_key_QN.gather(1, by_score_QN)


def _with_rows(nearest: Nearest, at_U: NDArray[np.int64], better: Nearest) -> Nearest:
    """`nearest`, with better results for some of the queries."""
    if len(at_U) == len(nearest.parts_QK):
        return better
    at = torch.from_numpy(at_U)
    found = zip(vars(nearest).items(), vars(better).values(), strict=True)
    rows = {name: value.index_copy(0, at, more) for (name, value), more in found if name != "all_scores"}
    return replace(nearest, **rows)


def _shard_and_part(number: int) -> tuple[int, int]:
    """The number of a shard, and that of one of its parts, from a number of all shards."""
    return number >> BITS, number & ((1 << BITS) - 1)


def search_words(
    snapshot: Snapshot, sentences: Sequence[str], weights: TextEvidence, probes: Probes, names: Names
) -> Words | None:
    """What was found in the passages of all shards; None where none has any."""
    encoders = [each for each in snapshot.word_encoders.values() if each is not None]
    if not encoders:
        return None
    queries = word_queries(sentences, encoders[0])
    holders = [shard for shard, encoder in snapshot.word_encoders.items() if encoder is not None]
    counted = snapshot.call({shard: call(Shard.count_words, queries) for shard in holders})
    counts = reduce(add, counted.values(), Counts())
    arrays, numbers = to_arrays(probes), {shard: number for number, shard in enumerate(names)}
    asked = [shard for shard in counted if shard in numbers]
    replies = snapshot.call(
        {s: call(Shard.speaking, queries, counts, weights, arrays, names[s]) for s in asked}
    )
    speaking = []
    for q in range(len(queries)):
        rows = [_numbered(each, numbers[shard]) for shard, found in replies.items() for each in found[q]]
        by_video = {each.found.video: each for each in rows}
        kept = best([each.found for each in rows], MOST_VIDEOS)
        speaking.append(tuple(by_video[found.video] for found in kept))
    return Words(queries, tuple(speaking), weights)


def without_shards(words: Words, gone: Collection[int]) -> Words:
    """The same without the videos of shards that did not reply, whose moments nobody can find."""
    kept = (tuple(each for each in row if each.video >> BITS not in gone) for row in words.speaking)
    return replace(words, speaking=tuple(kept))


def _numbered(each: Speaking, number: int) -> Speaking:
    """Numbers that no other shard has."""
    return replace(each, video=each.video + (number << BITS), part=each.part + (number << BITS))
