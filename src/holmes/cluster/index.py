"""Search in many shards as in one index, with bit for bit the same answers.

A sentence becomes probes here. Every shard gives its best parts and the sums of all its scores; they merge
exactly, are judged here, and the shards that have hits say where their moments are. A shard that is silent is
named in the answer.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from holmes.base.devices import device_named
from holmes.cluster.actors import RayFleet
from holmes.cluster.connect import LOCAL, connect
from holmes.cluster.fleet import Fleet, LocalFleet
from holmes.cluster.locations import Place
from holmes.cluster.manifest import Shards, is_sharded, read_shards
from holmes.cluster.query import gather
from holmes.cluster.shard import sent
from holmes.cluster.snapshots import Generation
from holmes.cluster.write import add_to_shards, calibrate_shards, remove_from_shards, sync_shards
from holmes.errors import HolmesError
from holmes.evidence.judging import Diagnosis, Judge
from holmes.evidence.kinds import SMALL_GROUP
from holmes.index.answer import searcher
from holmes.index.answer.answering import compose_answers, compose_hits, judge_answers
from holmes.index.answer.answers import Answer, Hit, Timeline
from holmes.index.answer.base import Captions, Paths, SearchIndex, paths_of, unit_vectors
from holmes.index.answer.calibration import Taught, captions_of
from holmes.index.answer.request import SearchRequest, check_sentence
from holmes.index.answer.searcher import Index
from holmes.index.embedders.loading import Model
from holmes.index.embedders.protocol import Embedder
from holmes.index.engine.nearest import Nearest
from holmes.index.engine.scan import make_probes
from holmes.index.ingest.builder import BuildSummary
from holmes.index.ingest.sync import SyncSummary
from holmes.index.storage.store import IndexDescription
from holmes.records import QueryEmbedding

QUERIES_AT_ONCE = 32  # of one question to the shards: enough to share a scan, and soon answered


@dataclass
class ShardedIndex(SearchIndex):
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
        for found in self.now.all("lengths", [video]).values():
            if found[0] is not None:
                return float(found[0])
        raise self._unknown(video)

    def describe(self) -> IndexDescription:
        return self.now.shards.describe(str(self.place))

    def _answer(self, request: SearchRequest) -> list[Answer]:
        """An answer names the shards that did not reply (`missing`)."""
        if not len(self):
            raise HolmesError(f"{self.place} contains no videos; add some with 'holmes index build'.")
        now = self.now
        names = now.wanted(request.filter)
        answers: list[Answer] = []
        for start in range(0, len(request.sentences), QUERIES_AT_ONCE):
            some = request.some(slice(start, start + QUERIES_AT_ONCE))
            enough = max(request.top, SMALL_GROUP)
            probes, count = now.probes(some.sentences), now.judge.candidates
            judging = _Judging(some, now)
            gathered = gather(now, probes, enough, count, names, now.duplicates.alike, judging)
            answers += compose_answers(
                some,
                gathered.nearest,
                now.judge,
                now.shards.model,
                gathered.found,
                in_parts=now.shards.in_parts,
                duplicates=now.duplicates,
                frames_of_hits=gathered.views,
                judged=judging.of(gathered.nearest),
                missing=gathered.missing,
            )
        return answers

    def _look_alikes(self, video: str, time: float, top: int) -> tuple[Hit, ...]:
        now = self.now
        shard = self._owner(now, video)
        rows = now.ask("row_at", {shard: (video, time)})
        if shard not in rows:
            raise HolmesError(f"{shard} did not answer; try again in a moment.")
        row_1D = torch.tensor(rows[shard]).unsqueeze(0)
        weights = now.embedder.frame_weight, now.embedder.clip_weight
        gathered = gather(now, make_probes(QueryEmbedding(row_1D), *weights), top + 1, 0, now.wanted(None))
        hits = compose_hits(0, None, gathered.nearest, top + 1, gathered.found)
        return tuple(hit for hit in hits if hit.video != video)[:top]

    def timelines(self, sentence: str, videos: Sequence[str]) -> list[Timeline]:
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
        """Take up a new generation as soon as every shard has it; return whether one was taken up.

        Until then all answers come from the present one. Where copying takes long, call this again.
        """
        with self._refreshing:
            shards = read_shards(self.place)
            if shards == self.now.shards or not self.now.fleet.ready(shards):
                return False
            self.now = self.now.next(shards)
            self.now.fleet.settle(shards)
            return True

    def encode(self, sentences: Sequence[str]) -> NDArray[np.float32]:
        return unit_vectors(self.embedder, sentences)

    def add(
        self, videos: Paths, *, fast: bool = False, workers: int | None = None, progress: bool = False
    ) -> BuildSummary:
        how: dict[str, Any] = {"fast": fast, "workers": workers, "progress": progress}
        summary = add_to_shards(self._folder("add"), paths_of(videos), self.embedder, **how)
        self.refresh()
        return summary

    def remove(self, videos: Paths) -> tuple[str, ...]:
        removed = remove_from_shards(self._folder("remove"), paths_of(videos))
        self.refresh()
        return removed

    def sync(
        self, folders: Paths, *, fast: bool = False, workers: int | None = None, progress: bool = False
    ) -> SyncSummary:
        how: dict[str, Any] = {"fast": fast, "workers": workers, "progress": progress}
        summary = sync_shards(self._folder("sync"), paths_of(folders), self.embedder, **how)
        self.refresh()
        return summary

    def calibrate(self, rows: Captions) -> Taught:
        taught = calibrate_shards(self._folder("calibrate"), captions_of(rows), self.embedder)
        self.refresh()
        return taught

    def _folder(self, command: str) -> Path:
        if self.place.folder is None:
            raise self._unchangeable(command)
        return self.place.folder

    def close(self) -> None:
        self.now.fleet.close()

    @property
    def _where(self) -> str:
        return str(self.place)

    @property
    def embedder(self) -> Embedder:
        return self.now.embedder

    @embedder.setter
    def embedder(self, embedder: Embedder) -> None:
        self.now.embedder = embedder

    @property
    def judge(self) -> Judge:
        return self.now.judge

    def _owner(self, now: Generation, video: str) -> str:
        if video not in now.owner:
            raise self._unknown(video)
        return now.owner[video]


@dataclass
class _Judging:
    """Judges what was found while the shards look for moments."""

    request: SearchRequest
    now: Generation
    nearest: Nearest | None = None
    diagnoses: Sequence[Diagnosis] = ()

    def __call__(self, nearest: Nearest) -> None:
        self.nearest = nearest
        self.diagnoses = judge_answers(self.request, nearest, self.now.judge, self.now.shards.in_parts)

    def of(self, nearest: Nearest) -> Sequence[Diagnosis] | None:
        """The diagnoses of this; None if it was not judged, since a shard has fallen silent after that."""
        return self.diagnoses if self.nearest is nearest else None


CACHE = "~/.cache/holmes/shards"  # on every node
STARTING = 900.0  # seconds for all shards to be copied and opened


def open_index(
    path: Path | str,
    *,
    device: str = "auto",
    model: Model | None = None,
    diagnose: Judge | None = None,
    ray: str | None = None,
    copies: int | None = None,
    cache: Path | str | None = None,
    patience: float = 5.0,
) -> Index | ShardedIndex:
    """Open an index for searching; its model is loaded with the first search.

    `device` is cpu, cuda or auto, for the embeddings, the model and its encoders; `model` says where a
    trained checkpoint is now, if it has moved; `diagnose` judges the answers in place of the model's judge.

    A sharded index is searched in this process, or with `ray` on a cluster: HOST:PORT of its head, auto, or
    local for one of this machine alone. There every shard has as many `copies` on different nodes (two, if
    there are as many nodes), which lie in the folder `cache` of each node's disk; a shard of which no copy
    answers within `patience` seconds is named in the answer.
    """
    place = Place(path)
    if ray is None and not is_sharded(place):
        if place.folder is None:
            read_shards(place)  # the error says what is there instead
        return searcher.open_single_index(path, device=device, model=model, diagnose=diagnose)
    shards = read_shards(place)
    if ray is not None:
        fleet: Fleet = open_fleet(place, shards, ray, device, copies, cache, patience)
        return ShardedIndex(place, Generation(shards, fleet, model, diagnose, device))
    if place.folder is None and cache is None:
        raise HolmesError(f"{place} is not on this machine; say where to copy its shards to (cache=FOLDER).")
    kept = None if cache is None else Path(cache).expanduser()
    fleet = LocalFleet(place, kept, str(device_named(device)))
    fleet.ready(shards)
    return ShardedIndex(place, Generation(shards, fleet, model, diagnose, device))


def open_fleet(
    place: Place,
    shards: Shards,
    address: str,
    device: str,
    copies: int | None,
    cache: Path | str | None,
    patience: float,
) -> RayFleet:
    """The shards on the nodes of a cluster, ready to answer."""
    if device not in ("auto", "cpu", "cuda"):
        raise HolmesError(f"unknown device '{device}' of nodes; use auto, cpu or cuda.")
    owned = connect(address)
    # On this machine alone a shard is opened where it lies, if that is a folder.
    in_place = cache is None and address == LOCAL and place.folder is not None
    if place.folder is not None:
        place = Place(place.folder.absolute())
    fleet = RayFleet(
        place,
        copies=copies,
        cache=None if in_place else str(cache or CACHE),
        device="cuda" if device == "cuda" else "cpu",
        patience=patience,
        owned=owned,
    )
    try:
        fleet.open(shards, STARTING)
    except BaseException:
        fleet.close()
        raise
    return fleet
