"""Search in many shards as in one index: scatter, exact best of each, gather; bit for bit the same answers.

A sentence becomes probes here. Every shard gives its best parts and the sums of all its scores; they merge
exactly, are judged here, and the shards that have hits say where their moments are. A shard that is silent is
named in the answer.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add
from typing import Any

import torch

from holmes.cluster.fleet import Fleet
from holmes.cluster.gather import merge, sums_of, whose
from holmes.cluster.manifest import FILE_NAME, Shards, read_shards
from holmes.cluster.places import Place
from holmes.cluster.shard import Sent, ShardReply, sent
from holmes.errors import HolmesError
from holmes.evidence.diagnosis import Calibration
from holmes.index.answers import Answer, Hit, Timeline
from holmes.index.calibration import choose_judge, guess_from, own_calibration
from holmes.index.composing import Found, Question, check_sentence, compose_answers, compose_hits
from holmes.index.diagnose import Diagnose
from holmes.index.embedders import Embedder, recorded_embedder
from holmes.index.everyday import SENTENCES
from holmes.index.nearest import Nearest
from holmes.index.scan import Probes, make_probes
from holmes.index.searcher import QUERIES_AT_ONCE
from holmes.index.store import fitting, no_video_fits
from holmes.records import QueryEmbedding

Names = dict[str, Collection[str] | None]  # the shards to ask, and which of their videos; None: all


@dataclass
class Generation:
    """A sharded index in one state of all its shards, with its model and its judge.

    A search begins and ends in one.
    """

    shards: Shards
    fleet: Fleet
    checkpoint: str | None = None  # where a trained model is now, if it has moved
    diagnose: Diagnose | None = None  # instead of the model's own

    @cached_property
    def embedder(self) -> Embedder:
        return recorded_embedder(self.shards.model, self.checkpoint)

    @cached_property
    def judge(self) -> Diagnose:
        if self.diagnose is not None:
            return self.diagnose
        values, own = self.shards.calibration, None
        if values is not None:
            own = own_calibration(values, self.embedder.record["digest"], FILE_NAME)
        return choose_judge(self.embedder, own, self.shards.videos, self.guess)

    def guess(self) -> Calibration:
        """A rough calibration from how far the scores of everyday sentences spread over all shards."""
        replies = self.all("nearest", sent(self.probes(SENTENCES)), 1, 0, None).values()
        return guess_from(reduce(add, map(sums_of, replies)), self.embedder)

    def probes(self, sentences: Sequence[str]) -> Probes:
        embedder = self.embedder
        return make_probes(embedder.queries(sentences), embedder.frame_weight, embedder.clip_weight)

    def next(self, shards: Shards) -> Generation:
        """The generation after this one; a model that is still the same need not be loaded again."""
        later = Generation(shards, self.fleet, self.checkpoint, self.diagnose)
        if "embedder" in self.__dict__ and shards.model == self.shards.model:
            later.embedder = self.embedder
        return later

    @cached_property
    def durations(self) -> dict[str, float]:
        """Every video's seconds, shard by shard."""
        return {name: seconds for held in self._held.values() for name, seconds in held.items()}

    @cached_property
    def owner(self) -> dict[str, str]:
        """The shard of every video."""
        return {name: shard for shard, held in self._held.items() for name in held}

    @cached_property
    def _held(self) -> dict[str, dict[str, float]]:
        return self.all("durations")

    def all(self, method: str, *order: Any) -> dict[str, Any]:
        """The answers of all shards; refuses if one of them is silent."""
        replies = self.ask(method, {entry.name: order for entry in self.shards.shards})
        silent = [entry.name for entry in self.shards.shards if entry.name not in replies]
        if silent:
            raise HolmesError(f"{', '.join(silent[:3])} did not answer; try again in a moment.")
        return {entry.name: replies[entry.name] for entry in self.shards.shards}

    def ask(self, method: str, orders: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
        return self.fleet.ask(self.shards, method, orders)

    def wanted(self, filter: str | Collection[str] | None) -> Names:
        """Which shards to ask for which videos."""
        every = [entry.name for entry in self.shards.shards if entry.videos]
        if filter is None:
            return dict.fromkeys(every)
        names = fitting(self.durations, lambda: self.durations, filter) if isinstance(filter, str) else filter
        if isinstance(filter, str) and not names:
            raise no_video_fits("the shards", filter)
        by_shard: dict[str, list[str]] = {}
        for name in names:
            if name in self.owner:
                by_shard.setdefault(self.owner[name], []).append(name)
        return {**by_shard} or {every[0]: []}


@dataclass
class ShardedIndex:
    """Shards that are searched as one index. `refresh` takes up a new generation, whole."""

    place: Place
    now: Generation

    def __post_init__(self) -> None:
        self._refreshing = threading.Lock()

    def __len__(self) -> int:
        return self.now.shards.videos

    @property
    def videos(self) -> list[str]:
        return list(self.now.durations)

    @property
    def durations(self) -> dict[str, float]:
        return self.now.durations

    def duration(self, video: str) -> float:
        """The seconds of one video."""
        for found in self.now.all("lengths", [video]).values():
            if found[0] is not None:
                return float(found[0])
        raise HolmesError(f"{self.place} holds no video named '{video}'.")

    def describe(self) -> dict[str, Any]:
        return self.now.shards.describe(str(self.place))

    def search(
        self,
        sentence: str,
        top: int = 10,
        *,
        filter: str | Collection[str] | None = None,
        abstain_below: float | None = None,
        min_probability: float | None = None,
    ) -> Answer:
        """As the same method of one open index."""
        return self.search_many(
            [sentence], top, filter=filter, abstain_below=abstain_below, min_probability=min_probability
        )[0]

    def search_many(
        self,
        sentences: Sequence[str],
        top: int = 10,
        *,
        filter: str | Collection[str] | None = None,
        abstain_below: float | None = None,
        min_probability: float | None = None,
    ) -> list[Answer]:
        """As the same method of one open index; an answer names the shards that were silent (`missing`)."""
        question = Question(sentences, top, abstain_below, min_probability)
        question.check()
        if not len(self):
            raise HolmesError(f"{self.place} holds no videos; add some with 'holmes index build'.")
        now = self.now
        names = now.wanted(filter)
        answers: list[Answer] = []
        for start in range(0, len(sentences), QUERIES_AT_ONCE):
            some = question.some(slice(start, start + QUERIES_AT_ONCE))
            gathered = gather(now, now.probes(some.sentences), top, now.judge.candidates, names)
            answers += compose_answers(
                some,
                gathered.nearest,
                now.judge,
                now.shards.model,
                gathered.found,
                in_parts=now.shards.in_parts,
                missing=gathered.missing,
            )
        return answers

    def like(self, video: str, time: float, top: int = 10) -> tuple[Hit, ...]:
        """Videos that look like one video does at `time` seconds."""
        now = self.now
        shard = self._owner(now, video)
        rows = now.ask("row_at", {shard: (video, time)})
        if shard not in rows:
            raise HolmesError(f"{shard} did not answer; try again in a moment.")
        row_1D = torch.from_numpy(rows[shard]).unsqueeze(0)
        weights = now.embedder.frame_weight, now.embedder.clip_weight
        gathered = gather(now, make_probes(QueryEmbedding(row_1D), *weights), top + 1, 0, now.wanted(None))
        hits = compose_hits(0, None, gathered.nearest, top + 1, gathered.found)
        return tuple(hit for hit in hits if hit.video != video)[:top]

    def timelines(self, sentence: str, videos: Sequence[str]) -> list[Timeline]:
        """How well a sentence fits each of these videos, along the whole of it."""
        check_sentence(sentence)
        now = self.now
        probes = sent(now.probes([sentence]))
        of_shard: dict[str, list[str]] = {}
        for name in videos:
            of_shard.setdefault(self._owner(now, name), []).append(name)
        replies = now.ask("timelines", {shard: (probes, names) for shard, names in of_shard.items()})
        if silent := [shard for shard in of_shard if shard not in replies]:
            raise HolmesError(f"{', '.join(silent)} did not answer; try again in a moment.")
        found = {
            name: timeline
            for shard, names in of_shard.items()
            for name, timeline in zip(names, replies[shard], strict=True)
        }
        return [found[name] for name in videos]

    def refresh(self) -> bool:
        """Take up a new generation as soon as every shard has it; says whether one was.

        Until then all answers are of the present one. Where copying takes long, ask again.
        """
        with self._refreshing:
            shards = read_shards(self.place)
            if shards == self.now.shards or not self.now.fleet.ready(shards):
                return False
            self.now = self.now.next(shards)
            self.now.fleet.settle(shards)
            return True

    def close(self) -> None:
        """Let the shards go."""
        self.now.fleet.close()

    def __enter__(self) -> ShardedIndex:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def embedder(self) -> Embedder:
        return self.now.embedder

    @embedder.setter
    def embedder(self, embedder: Embedder) -> None:
        self.now.embedder = embedder

    @property
    def judge(self) -> Diagnose:
        return self.now.judge

    def _owner(self, now: Generation, video: str) -> str:
        if video not in now.owner:
            raise HolmesError(f"{self.place} holds no video named '{video}'.")
        return now.owner[video]


@dataclass(frozen=True)
class Gathered:
    """What all shards that answered found."""

    nearest: Nearest
    videos: dict[tuple[int, int], Found]  # by query and rank
    missing: tuple[str, ...]

    def found(self, q: int, rank: int) -> Found:
        return self.videos[q, rank]


def gather(now: Generation, probes: Probes, top: int, candidates: int, names: Names) -> Gathered:
    """Ask the shards for the best they have, then those with hits for moments.

    A shard that falls silent between the two is left out of both: what is told of a hit is never half of it.
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
            return Gathered(nearest, videos, missing)
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
