"""Search in many shards, with bit for bit the answers of an unsharded index.

The sentence is encoded here. Every shard returns its best parts and the sums of all its scores. They are
merged exactly and judged here; then the shards that have hits find the moments. The answer names shards that
did not reply. Ray calls shards; it does not make one answer of many.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from holmes.base.devices import device_named
from holmes.cluster.actors import RayClient
from holmes.cluster.calls import LocalClient, call
from holmes.cluster.connect import LOCAL, connect
from holmes.cluster.location import Location
from holmes.cluster.manifest import Shards, is_sharded, read_shards
from holmes.cluster.query import query_shards, search_words, without_shards
from holmes.cluster.shard import Shard, to_arrays
from holmes.cluster.snapshots import Snapshot
from holmes.cluster.write import ShardsWriter, calibrate_shards
from holmes.errors import HolmesError
from holmes.evidence.judging import Diagnosis, Judge
from holmes.evidence.kinds import SMALL_GROUP
from holmes.heard.passages import Heard
from holmes.index.answer import searcher
from holmes.index.answer.answering import compose_answers, compose_hits, in_order, judge_answers
from holmes.index.answer.answers import Answer, Hit, Timeline
from holmes.index.answer.base import Captions
from holmes.index.answer.calibration import CalibrationSummary, captions_of
from holmes.index.answer.local import LocalIndex
from holmes.index.answer.request import SearchRequest, check_sentence, vector_probes
from holmes.index.answer.searcher import Index
from holmes.index.answer.words import Words, pictured
from holmes.index.embedders.loading import Model
from holmes.index.embedders.protocol import Embedder
from holmes.index.engine.nearest import Nearest
from holmes.index.engine.scan import Probes
from holmes.index.storage.store import IndexDescription

QUERIES_PER_CALL = 32  # enough to make one scan worth while, and soon done


@dataclass(repr=False)
class ShardedIndex(LocalIndex):
    """Shards that are searched as one index. `refresh` moves to the newest snapshot."""

    location: Location
    current: Snapshot
    writer = ShardsWriter

    def __post_init__(self) -> None:
        self._refreshing = threading.Lock()

    def __len__(self) -> int:
        return self.current.shards.videos

    @property
    def videos(self) -> list[str]:
        return list(self.current.durations)

    @property
    def durations(self) -> dict[str, float]:
        return self.current.durations

    def duration(self, video: str) -> float:
        for (seconds,) in self.current.call_all(Shard.lengths, [video]).values():
            if seconds is not None:
                return seconds
        raise self._unknown(video)

    def describe(self) -> IndexDescription:
        return self.current.shards.describe(self._where)

    def _answer(self, request: SearchRequest) -> list[Answer]:
        """An answer names the shards that did not reply (`missing`)."""
        if not len(self):
            raise HolmesError(f"{self.location} contains no videos; add some with 'holmes index build'.")
        now = self.current
        names = now.names(request.filter)
        answers: list[Answer] = []
        for start in range(0, len(request.sentences), QUERIES_PER_CALL):
            some = request.some(slice(start, start + QUERIES_PER_CALL))
            enough = max(request.top, SMALL_GROUP)
            seen = pictured(some.sentences) if any(now.word_encoders.values()) else some.sentences
            probes, count = now.probes(seen), now.judge.candidates
            words = search_words(now, some.sentences, now.text_evidence, probes, names)
            judging = _Judging(some, now, words)
            results = query_shards(now, probes, enough, count, names, now.duplicates.alike, judging)
            answers += compose_answers(
                some,
                results.nearest,
                judging.diagnoses,
                now.judge,
                now.shards.model,
                results.found,
                in_parts=now.shards.in_parts,
                duplicates=now.duplicates,
                frames_of_hits=results.frames,
                missing=results.missing,
                words=judging.words,
            )
        return answers

    def transcript(self, video: str) -> Heard | None:
        now = self.current
        shard = self._owner(now, video)
        return now.call_surely({shard: call(Shard.transcript, video)})[shard]

    def _look_alikes(self, video: str, time: float, top: int) -> tuple[Hit, ...]:
        now = self.current
        probes = self._probes_like(now, video, time)
        results = query_shards(now, probes, top + 1, 0, now.names(None))
        hits = compose_hits(0, None, results.nearest, top + 1, results.found)
        return tuple(hit for hit in hits if hit.video != video)[:top]

    def timelines(self, sentence: str, videos: Sequence[str]) -> list[Timeline]:
        check_sentence(sentence)
        now = self.current
        return self._timelines(now, now.probes([sentence]), videos)

    def timelines_like(self, video: str, time: float, videos: Sequence[str]) -> list[Timeline]:
        now = self.current
        return self._timelines(now, self._probes_like(now, video, time), videos)

    def _probes_like(self, now: Snapshot, video: str, time: float) -> Probes:
        shard = self._owner(now, video)
        row = now.call_surely({shard: call(Shard.row_at, video, time)})[shard]
        return vector_probes(now.embedder, row)

    def _timelines(self, now: Snapshot, probes: Probes, videos: Sequence[str]) -> list[Timeline]:
        of_shard: dict[str, list[str]] = {}
        for name in videos:
            of_shard.setdefault(self._owner(now, name), []).append(name)
        arrays = to_arrays(probes)
        calls = {shard: call(Shard.timelines, arrays, names) for shard, names in of_shard.items()}
        replies = now.call_surely(calls)
        found = {
            name: timeline
            for shard, names in of_shard.items()
            for name, timeline in zip(names, replies[shard], strict=True)
        }
        return [found[name] for name in videos]

    def refresh(self) -> bool:
        """Move to the newest snapshot if every shard has it open; return whether it did.

        Until then all answers come from the current snapshot. Copying may take long: call this again.
        """
        with self._refreshing:
            shards = read_shards(self.location)
            if shards == self.current.shards or not self.current.client.prepare(shards):
                return False
            self.current = self.current.next(shards)
            self.current.client.release_others(shards)
            return True

    def calibrate(self, rows: Captions) -> CalibrationSummary:
        summary = calibrate_shards(self._folder("calibrate"), captions_of(rows), self.embedder)
        self.refresh()
        return summary

    def _folder(self, command: str) -> Path:
        if self.location.folder is None:
            raise self._unchangeable(command)
        return self.location.folder

    def close(self) -> None:
        self.current.client.close()

    @property
    def _where(self) -> str:
        return str(self.location)

    @property
    def embedder(self) -> Embedder:
        return self.current.embedder

    @embedder.setter
    def embedder(self, embedder: Embedder) -> None:
        self.current.embedder = embedder

    @property
    def judge(self) -> Judge:
        return self.current.judge

    def _owner(self, now: Snapshot, video: str) -> str:
        if video not in now.owner:
            raise self._unknown(video)
        return now.owner[video]


@dataclass
class _Judging:
    """Judges the nearest videos, and puts them in the order of their probability."""

    request: SearchRequest
    now: Snapshot
    words: Words | None = None
    diagnoses: Sequence[Diagnosis] = ()  # of those that were judged last

    def __call__(self, nearest: Nearest, gone: Collection[int] = ()) -> Nearest:
        if self.words is not None and gone:
            self.words = without_shards(self.words, gone)
        judge, in_parts = self.now.judge, self.now.shards.in_parts
        self.diagnoses = judge_answers(self.request, nearest, judge, in_parts, words=self.words)
        return in_order(nearest, self.diagnoses, judge.candidates, in_parts, self.words)


CACHE = "~/.cache/holmes/shards"  # on every node
OPENING_TIMEOUT = 900.0  # seconds for all shards to be copied and opened


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
    """Open an index, sharded or not; its model is loaded with the first search.

    Args:
        path: The folder of the index; a sharded index may also be in object storage.
        device: cpu, cuda or auto, for the embeddings, the model and its encoders.
        model: A joint encoder by name or folder, a run or checkpoint of `holmes train`, or an encoder object.
            By default the model that made the index, where it was then; another model is refused.
        diagnose: Judges the answers in place of the model's own judge.
        ray: Search a sharded index on a cluster: HOST:PORT of its head, auto, or local.
        copies: Replicas of each shard on different nodes; two, if there are as many nodes.
        cache: The folder of each node's disk for copies of the shards.
        patience: Seconds to wait for a shard; a shard that does not reply is named in the answer.

    Example:
        >>> with holmes.open_index("INDEX") as index:
        ...     for hit in index.search("a dog runs"):
        ...         print(hit)
        /.../street.mp4  score 0...  probability 0...
    """
    location = Location(path)
    if ray is None and not is_sharded(location):
        if location.folder is None:
            read_shards(location)  # the error says what is there instead
        return searcher.open_single_index(path, device=device, model=model, diagnose=diagnose)
    shards = read_shards(location)
    client: RayClient | LocalClient
    if ray is not None:
        client = open_on_ray(location, shards, ray, device, copies, cache, patience)
    elif location.folder is None and cache is None:
        raise HolmesError(f"{location} is not on this machine; say where to copy its shards (cache=FOLDER).")
    else:
        folder = None if cache is None else Path(cache).expanduser()
        client = LocalClient(location, folder, str(device_named(device)))
        client.prepare(shards)
    return ShardedIndex(location, Snapshot(shards, client, model, diagnose, device))


def open_on_ray(
    location: Location,
    shards: Shards,
    address: str,
    device: str,
    replicas: int | None,
    cache: Path | str | None,
    timeout: float,
) -> RayClient:
    """The shards, open on the nodes of a cluster."""
    if device not in ("auto", "cpu", "cuda"):
        raise HolmesError(f"unknown device '{device}' of nodes; use auto, cpu or cuda.")
    is_new = connect(address)
    # A cluster of this machine alone opens shards where they are, if that is a folder.
    without_cache = cache is None and address == LOCAL and location.folder is not None
    if location.folder is not None:
        location = Location(location.folder.absolute())
    client = RayClient(
        location,
        replicas=replicas,
        cache=None if without_cache else str(cache or CACHE),
        device="cuda" if device == "cuda" else "cpu",
        timeout=timeout,
        disconnect=is_new,
    )
    try:
        client.open(shards, OPENING_TIMEOUT)
    except BaseException:
        client.close()
        raise
    return client
