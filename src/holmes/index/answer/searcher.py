"""Search a single index: from a sentence to videos with moments and a diagnosis.

Q queries, S parts of videos, K candidates (the best parts), D width
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import torch

from holmes.base.devices import device_named
from holmes.errors import HolmesError
from holmes.evidence.judging import Judge
from holmes.evidence.kinds import SMALL_GROUP
from holmes.evidence.sources import TextEvidence
from holmes.heard.passages import Heard
from holmes.index.answer.answering import Found, compose_answers, compose_hits, in_order, judge_answers
from holmes.index.answer.answers import Answer, Hit, Timeline
from holmes.index.answer.base import Captions
from holmes.index.answer.calibration import (
    FILE,
    CalibrationSummary,
    calibration_of,
    captions_of,
    choose_judge,
    learn,
    read_own,
    read_values,
    text_evidence_of,
    write_values,
)
from holmes.index.answer.composed import ComposedQuery, answer_composed
from holmes.index.answer.duplicates import (
    DuplicateFinder,
    FramesOfHits,
    MomentFrames,
    moment_frames,
    sample_mean_frames,
)
from holmes.index.answer.local import LocalIndex
from holmes.index.answer.request import SearchRequest, check_sentence, sentence_probes, vector_probes
from holmes.index.answer.timeline import find_moments, frame_at, timeline_of
from holmes.index.answer.words import Speaking, Words, find_speaking, pictured, word_queries
from holmes.index.embedders.loading import Model, recorded_embedder
from holmes.index.embedders.protocol import Embedder
from holmes.index.engine.gallery import Gallery, open_gallery
from holmes.index.engine.nearest import Nearest, nearest_videos
from holmes.index.engine.passages import Counts, PassageIndex, WordQuery
from holmes.index.engine.scan import Probes
from holmes.index.storage.manifest import read_manifest
from holmes.index.storage.segments import StoredVideo
from holmes.index.storage.store import IndexDescription, IndexStore
from holmes.index.storage.writer import IndexWriter
from holmes.records import Scores

QUERIES_AT_ONCE = 1024  # sentences in one pass over the embeddings


@dataclass(repr=False)
class Index(LocalIndex):
    """An open index. It answers from what it held when opened; `refresh` sees later changes."""

    store: IndexStore
    device: torch.device
    model: Model | None = None  # the model, or where it is now if it has moved since
    diagnose: Judge | None = None  # used instead of the model's own judge
    writer = IndexWriter

    def __len__(self) -> int:
        return len(self.store)

    @property
    def videos(self) -> list[str]:
        return list(self.store.positions)

    @property
    def durations(self) -> dict[str, float]:
        return self.store.durations

    def describe(self) -> IndexDescription:
        return self.store.describe()

    def _answer(self, request: SearchRequest) -> list[Answer]:
        if not len(self.store):
            raise HolmesError(f"{self.store.path} contains no videos; add some with 'holmes index add'.")
        allowed_S = None if request.filter is None else self.parts_of(request.filter)
        answers: list[Answer] = []
        for start in range(0, len(request.sentences), QUERIES_AT_ONCE):
            some = request.some(slice(start, start + QUERIES_AT_ONCE))
            seen = pictured(some.sentences) if self.passages else some.sentences
            probes, enough = self._probes(seen), max(request.top, SMALL_GROUP)
            nearest = nearest_videos(
                self.gallery, probes.to(self.device), enough, self.judge.candidates, allowed_S
            ).to("cpu")
            in_parts, judge = self.gallery.in_parts, self.judge
            words = self._words(some, probes)
            diagnoses = judge_answers(some, nearest, judge, in_parts, words=words)
            nearest = in_order(nearest, diagnoses, judge.candidates, in_parts, words)
            found = self._finder(nearest, probes)
            answers += compose_answers(
                some,
                nearest,
                diagnoses,
                judge,
                self.store.manifest.model,
                found,
                in_parts=in_parts,
                duplicates=self.duplicates,
                frames_of_hits=self._frames_of_hits(nearest, found),
                words=words,
            )
        return answers

    def _compose(self, query: ComposedQuery, top: int, filter: str | Collection[str] | None) -> Answer:
        if not len(self.store):
            raise HolmesError(f"{self.store.path} contains no videos; add some with 'holmes index add'.")
        return answer_composed(self, query, top, None if filter is None else self.parts_of(filter))

    def _words(self, request: SearchRequest, probes: Probes) -> Words | None:
        """The spoken and written words of videos; None where the index has no passages."""
        if not self.passages:
            return None
        allowed = request.filter
        if isinstance(allowed, str):
            allowed = self.store.matching(allowed)
        queries = word_queries(request.sentences, self.passages.encoder)
        counts = self.passages.count(queries)
        speaking = self.speaking(queries, counts, self.text_evidence, probes, allowed)
        return Words(queries, tuple(map(tuple, speaking)), self.text_evidence)

    def speaking(
        self,
        queries: Sequence[WordQuery],
        counts: Counts,
        weights: TextEvidence,
        probes: Probes,
        allowed: Collection[str] | None,
    ) -> list[list[Speaking]]:
        """The videos whose words match each query."""
        asked = probes.to(self.device)
        return find_speaking(
            self.store, self.passages, self.gallery, asked, queries, counts, weights, allowed
        )

    def transcript(self, video: str) -> Heard | None:
        self._stored(video)
        return self.store.heard(video)

    def _look_alikes(self, video: str, time: float, top: int) -> tuple[Hit, ...]:
        probes = self._probes_like(video, time)
        nearest = nearest_videos(self.gallery, probes.to(self.device), top + 1).to("cpu")
        hits = compose_hits(0, None, nearest, top + 1, self._finder(nearest, probes))
        return tuple(hit for hit in hits if hit.video != video)[:top]

    def timelines(self, sentence: str, videos: Sequence[str]) -> list[Timeline]:
        check_sentence(sentence)
        probes = self._probes([sentence])
        return [timeline_of(self._stored(name), probes, 0) for name in videos]

    def timelines_like(self, video: str, time: float, videos: Sequence[str]) -> list[Timeline]:
        probes = self._probes_like(video, time)
        return [timeline_of(self._stored(name), probes, 0) for name in videos]

    def calibrate(self, rows: Captions) -> CalibrationSummary:
        fitted, summary = learn(
            captions_of(rows), self.videos, self.embedder, self.every_score, calibration_of(self.judge)
        )
        text = {"text": self.text_evidence.to_dict()} if self.text_evidence != TextEvidence() else {}
        write_values(self.store.path / FILE, {**fitted.to_dict(), **text})
        self.__dict__.pop("_own_judge", None)
        return summary

    def every_score(self, sentences: Sequence[str]) -> Scores:
        """Both branches' similarity of every sentence to every video, in the order of `videos`."""
        return self.score_every_video(self._probes(sentences).to(self.device))

    def score_every_video(self, probes: Probes) -> Scores:
        gallery, positions = self.gallery, self.store.positions
        number = {positions[name]: at for at, name in enumerate(self.videos)}
        video_S = torch.tensor(
            [number.get((segment, at), -1) for segment, at in gallery.positions_S2.tolist()]
        )
        nearest = nearest_videos(gallery, probes, 1, len(gallery)).to("cpu")
        video_QK = video_S[nearest.parts_QK]
        lowest_QV = torch.full((len(probes.rows_QTD), len(self)), -1.0)
        return Scores(
            *(
                lowest_QV.scatter_reduce(1, video_QK, branch_QK.float(), "amax")
                for branch_QK in (nearest.frame_QK, nearest.clip_QK)
            )
        )

    def _folder(self, command: str) -> Path:
        return self.store.path

    def close(self) -> None:
        for name in ("gallery", "duplicates", "_own_judge", "embedder", "passages", "text_evidence"):
            self.__dict__.pop(name, None)

    @property
    def _where(self) -> str:
        return str(self.store.path)

    def refresh(self) -> bool:
        if read_manifest(self.store.path) == self.store.manifest:
            return False
        store = IndexStore.open(self.store.path)
        stale = ["gallery", "duplicates", "_own_judge", "passages", "text_evidence"]
        if store.manifest.model != self.store.manifest.model:  # it was removed and built again
            stale += ["embedder"]
        self.store = store
        for name in stale:
            self.__dict__.pop(name, None)
        return True

    @cached_property
    def embedder(self) -> Embedder:
        return recorded_embedder(self.store.manifest.model, self.model, str(self.device))

    @property
    def judge(self) -> Judge:
        return self.diagnose or self._own_judge

    @cached_property
    def _own_judge(self) -> Judge:
        return choose_judge(self.embedder, read_own(self.store.path, self.embedder))

    @cached_property
    def passages(self) -> PassageIndex:
        return PassageIndex(self.store)

    @cached_property
    def text_evidence(self) -> TextEvidence:
        return text_evidence_of(read_values(self.store.path / FILE), self.store.path / FILE)

    @cached_property
    def gallery(self) -> Gallery:
        return open_gallery(self.store, self.device)

    @cached_property
    def duplicates(self) -> DuplicateFinder:
        return DuplicateFinder(
            self.embedder, lambda: sample_mean_frames(self.gallery.key_S, self.video_of_part)
        )

    def _probes(self, sentences: Sequence[str]) -> Probes:
        return sentence_probes(self.embedder, sentences)

    def _probes_like(self, video: str, time: float) -> Probes:
        return vector_probes(self.embedder, frame_at(self._stored(video), time))

    def _stored(self, name: str) -> StoredVideo:
        if name not in self.store:
            raise self._unknown(name)
        return self.store[name]

    def _finder(self, nearest: Nearest, probes: Probes) -> Callable[[int, int], Found]:
        @cache
        def found(q: int, rank: int) -> Found:
            video = self.video_of_part(int(nearest.hit_QH[q, rank]))
            return video.name, find_moments(video, probes, q)

        return found

    def _frames_of_hits(self, nearest: Nearest, found: Callable[[int, int], Found]) -> FramesOfHits:
        def frames_of_hits(hits: Sequence[tuple[int, int]]) -> list[MomentFrames]:
            videos = [self.video_of_part(int(nearest.hit_QH[hit])) for hit in hits]
            return [moment_frames(video, found(*hit)[1][0]) for hit, video in zip(hits, videos, strict=True)]

        return frames_of_hits

    def video_of_part(self, number: int) -> StoredVideo:
        """The video that a part of the gallery belongs to."""
        segment, position = map(int, self.gallery.positions_S2[number])
        video = self.store.segments[segment].video(position)
        self.gallery.mapped_rows.touched += video.rows_SPD.nbytes
        return video

    def duration(self, video: str) -> float:
        return self._stored(video).duration

    def parts_of(self, wanted_names: str | Collection[str]) -> torch.Tensor:
        """Which parts belong to videos that fit a pattern, or have one of these names."""
        positions = self.store.positions
        names = self.store.matching(wanted_names) if isinstance(wanted_names, str) else wanted_names
        wanted = {positions[name] for name in names if name in positions}
        allowed_S = [(segment, at) in wanted for segment, at in self.gallery.positions_S2.tolist()]
        return torch.tensor(allowed_S, device=self.device)


def open_single_index(
    path: Path | str, *, device: str = "auto", model: Model | None = None, diagnose: Judge | None = None
) -> Index:
    """Open an index that is not sharded; its model is loaded with the first search.

    `device` is cpu, cuda or auto, for the embeddings, the model and its encoders; `model` is the
    model that made the index, or says where it is now; `diagnose` judges in place of the model's judge.
    """
    return Index(IndexStore.open(path), device_named(device), model, diagnose)
