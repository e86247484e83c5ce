"""The spoken and written words of videos in many shards: words are counted in all of them, then searched.

A word's information depends on all passages, so every shard counts first. A shard that does not reply is left
out; the answer's pictures name it as missing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import reduce
from operator import add

from holmes.cluster.query import BITS
from holmes.cluster.shard import Shard, to_arrays
from holmes.cluster.snapshots import Names, Snapshot
from holmes.cluster.wire import call
from holmes.evidence.sources import TextEvidence
from holmes.index.answer.words import Speaking, Words, word_queries
from holmes.index.engine.passages import MOST_VIDEOS, Counts, best
from holmes.index.engine.scan import Probes


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
