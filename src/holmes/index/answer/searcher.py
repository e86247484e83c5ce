"""Search in an index: a sentence in, videos with moments and a diagnosis out.

Q queries, S parts of videos, K candidates (the best parts), D width
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import numpy as np
import torch

from holmes.base.devices import device_named
from holmes.errors import HolmesError
from holmes.evidence.answer_kinds import SMALL_GROUP
from holmes.index.answer.answering import Found, Question, check_sentence, compose_answers, compose_hits
from holmes.index.answer.answers import Answer, Hit, Timeline
from holmes.index.answer.appearance import View, sketches_of, view_of
from holmes.index.answer.confidence import Diagnose, judge_of
from holmes.index.answer.duplicates import Groups, Views
from holmes.index.answer.timeline import find_moments, frame_at, timeline_of
from holmes.index.embedders.loading import recorded_embedder
from holmes.index.embedders.protocol import Embedder
from holmes.index.engine.gallery import Gallery, open_gallery
from holmes.index.engine.nearest import Nearest, nearest_videos
from holmes.index.engine.scan import Probes, make_probes
from holmes.index.storage.description import IndexDescription, describe_store
from holmes.index.storage.manifest import read_manifest
from holmes.index.storage.segments import StoredVideo
from holmes.index.storage.store import IndexStore
from holmes.records import QueryEmbedding

QUERIES_AT_ONCE = 1024  # sentences in one pass over the embeddings


@dataclass
class Index:
    """An open index. It answers from what it held when opened; `refresh` sees later changes."""

    store: IndexStore
    device: torch.device
    checkpoint: str | None = None  # where a trained model is now, if it has moved since the index was made
    diagnose: Diagnose | None = None  # used instead of the model's own judge

    def __len__(self) -> int:
        return len(self.store)

    @property
    def videos(self) -> list[str]:
        return list(self.store.places)

    @property
    def durations(self) -> dict[str, float]:
        """Every video's seconds, in the order of the index."""
        return self.store.durations

    def describe(self) -> IndexDescription:
        """What the index is and what made it."""
        return describe_store(self.store)

    def search(
        self,
        sentence: str,
        top: int = 10,
        *,
        filter: str | Collection[str] | None = None,
        abstain_below: float | None = None,
        min_probability: float | None = None,
    ) -> Answer:
        """The best videos for one sentence. `filter` is a pattern for their paths or file names, or the names
        themselves. Nothing is answered if the first hit is less probable than `abstain_below`; if
        a smaller share of the answerable queries than `min_probability` had as little evidence, the answer
        says that it is probably not here, and hits are what comes nearest.
        """
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
        """As `search`, for many sentences in few passes over the index."""
        question = Question(sentences, top, abstain_below, min_probability)
        question.check()
        if not len(self.store):
            raise HolmesError(f"{self.store.path} contains no videos; add some with 'holmes index add'.")
        allowed_S = None if filter is None else self.parts_of(filter)
        answers: list[Answer] = []
        for start in range(0, len(sentences), QUERIES_AT_ONCE):
            some = question.some(slice(start, start + QUERIES_AT_ONCE))
            probes, enough = self._probes(some.sentences), max(top, SMALL_GROUP)
            nearest = nearest_videos(
                self.gallery, probes.to(self.device), enough, self.judge.candidates, allowed_S
            ).to("cpu")
            found = self._finder(nearest, probes)
            answers += compose_answers(
                some,
                nearest,
                self.judge,
                self.store.manifest.model,
                found,
                in_parts=self.gallery.in_parts,
                groups=self.groups,
                views=self._viewer(nearest, found),
            )
        return answers

    def like(self, video: str, time: float, top: int = 10) -> tuple[Hit, ...]:
        """Videos that look like one video does at `time` seconds, which is asked in place of a sentence.

        What was learned about sentences does not hold for pictures, so there is no probability.
        """
        stored = self._stored(video)
        row_1D = torch.from_numpy(np.asarray(frame_at(stored, time), np.float32)).unsqueeze(0)
        weights = self.embedder.frame_weight, self.embedder.clip_weight
        probes = make_probes(QueryEmbedding(row_1D), *weights).to(self.device)
        nearest = nearest_videos(self.gallery, probes, top + 1).to("cpu")
        hits = compose_hits(0, None, nearest, top + 1, self._finder(nearest, probes.to("cpu")))
        return tuple(hit for hit in hits if hit.video != video)[:top]

    def timelines(self, sentence: str, videos: Sequence[str]) -> list[Timeline]:
        """How well a sentence fits each of these videos, along the whole of it."""
        check_sentence(sentence)
        probes = self._probes([sentence])
        return [timeline_of(self._stored(name), probes, 0) for name in videos]

    def refresh(self) -> bool:
        """Take up what was added or removed since; return whether anything was."""
        if read_manifest(self.store.path) == self.store.manifest:
            return False
        store = IndexStore.open(self.store.path)
        stale = ["gallery", "groups", "_own_judge"]
        if store.manifest.model != self.store.manifest.model:  # it was removed and built again
            stale += ["embedder"]
        self.store = store
        for name in stale:
            self.__dict__.pop(name, None)
        return True

    @cached_property
    def embedder(self) -> Embedder:
        return recorded_embedder(self.store.manifest.model, self.checkpoint, str(self.device))

    @property
    def judge(self) -> Diagnose:
        return self.diagnose or self._own_judge

    @cached_property
    def _own_judge(self) -> Diagnose:
        return judge_of(self.store.path, self.embedder, self.gallery, len(self))

    @cached_property
    def gallery(self) -> Gallery:
        return open_gallery(self.store, self.device)

    @cached_property
    def groups(self) -> Groups:
        return Groups(self.embedder, lambda: sketches_of(self.gallery.key_S, self.video_of_part))

    def _probes(self, sentences: Sequence[str]) -> Probes:
        embedder = self.embedder
        return make_probes(embedder.queries(sentences), embedder.frame_weight, embedder.clip_weight)

    def _stored(self, name: str) -> StoredVideo:
        if name not in self.store:
            raise HolmesError(f"{self.store.path} contains no video named '{name}'.")
        return self.store[name]

    def _finder(self, nearest: Nearest, probes: Probes) -> Callable[[int, int], Found]:
        @cache
        def found(q: int, rank: int) -> Found:
            video = self.video_of_part(int(nearest.hit_QH[q, rank]))
            return video.name, find_moments(video, probes, q)

        return found

    def _viewer(self, nearest: Nearest, found: Callable[[int, int], Found]) -> Views:
        def views(hits: Sequence[tuple[int, int]]) -> list[View]:
            videos = [self.video_of_part(int(nearest.hit_QH[hit])) for hit in hits]
            return [view_of(video, found(*hit)[1][0]) for hit, video in zip(hits, videos, strict=True)]

        return views

    def video_of_part(self, number: int) -> StoredVideo:
        """The video that a part of the gallery belongs to."""
        segment, position = (int(place) for place in self.gallery.places_S2[number])
        video = self.store.segments[segment].video(position)
        self.gallery.mapped_rows.touched += video.rows_SPD.nbytes
        return video

    def duration(self, video: str) -> float:
        """The seconds of one video."""
        return self._stored(video).duration

    def parts_of(self, wanted_names: str | Collection[str]) -> torch.Tensor:
        """Which parts belong to videos that fit a pattern, or have one of these names."""
        places = self.store.places
        names = self.store.matching(wanted_names) if isinstance(wanted_names, str) else wanted_names
        wanted = {places[name] for name in names if name in places}
        allowed_S = [(segment, at) in wanted for segment, at in self.gallery.places_S2.tolist()]
        return torch.tensor(allowed_S, device=self.device)


def open_single_index(
    path: Path | str, *, device: str = "auto", model: str | None = None, diagnose: Diagnose | None = None
) -> Index:
    """Open an index that is not sharded; its model is loaded with the first search.

    `device` is cpu, cuda or auto, for the embeddings, the model and its encoders; `model` says where a
    trained checkpoint is now, if it has moved; `diagnose` judges the answers in place of the model's judge.
    """
    return Index(IndexStore.open(path), device_named(device), model, diagnose)
