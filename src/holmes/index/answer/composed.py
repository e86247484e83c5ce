"""Queries beyond one sentence: pictures, moments, exclusion, and what happens next.

Similarities to sentences and to pictures are not of one size, so each is divided by its spread over the index
before they are added.

F positions along a timeline, D width, N pictures
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from holmes.base.printing import seconds_of
from holmes.errors import HolmesError
from holmes.evidence import wording
from holmes.evidence.judging import Diagnosis
from holmes.index.answer.answers import Answer, Hit
from holmes.index.answer.request import check_sentence, sentence_probes, vector_probes
from holmes.index.answer.timeline import (
    find_moments,
    frame_at,
    frames_in_time,
    frames_of,
    frames_of_moment,
    timeline_of,
)
from holmes.index.embedders.protocol import Embedder
from holmes.index.engine.gallery import Gallery
from holmes.index.engine.nearest import nearest_videos
from holmes.index.engine.scan import Probes
from holmes.index.storage.segments import StoredVideo
from holmes.index.storage.store import IndexStore, only_match
from holmes.media.backbones.base import Image
from holmes.moments import Moment, shown_moments
from holmes.records import QueryEmbedding

Rows = NDArray[np.floating]

LEAVE_OUT = 1.0  # how much what is to be left out counts, of what is wanted; see docs/encoders.md
CANDIDATES = 100  # the best videos of what is wanted, which are ranked again
SMALLEST_SPREAD = 1e-4


class OpenIndex(Protocol):
    """What a composed query needs of an index."""

    store: IndexStore
    device: torch.device

    @property
    def embedder(self) -> Embedder: ...

    @property
    def gallery(self) -> Gallery: ...

    def video_of_part(self, number: int) -> StoredVideo: ...


@dataclass(frozen=True)
class Clip:
    """Seconds `start` to `end` of a video of the index; a single time where both are equal."""

    video: str
    start: float
    end: float


@dataclass(frozen=True)
class ComposedQuery:
    """A sentence, pictures or a clip, in any combination; what to leave out; what happens afterwards."""

    sentence: str | None = None
    pictures: tuple[Image, ...] = ()
    clip: Clip | None = None
    leave_out: tuple[str, ...] = ()
    then: str | None = None

    def check(self) -> None:
        for sentence in (self.sentence, self.then, *self.leave_out):
            if sentence is not None:
                check_sentence(sentence)
        if self.sentence is None and not self.pictures and self.clip is None:
            raise HolmesError("name what to look for: a sentence, a picture or a moment of a video.")
        if self.pictures and self.clip is not None:
            raise HolmesError("name a picture or a moment of a video, not both.")

    @property
    def words(self) -> str:
        """The query as an answer repeats it."""
        clip = self.clip
        shown = f"like {Path(clip.video).name} at {clip.start:g}–{clip.end:g} s" if clip else ""
        parts = [self.sentence or "", "a picture" if self.pictures else "", shown]
        words = ", ".join(filter(None, parts))
        words += f", then {self.then}" if self.then else ""
        return words + "".join(f", not {each}" for each in self.leave_out)


def parse_clip(text: str) -> Clip:
    """VIDEO@1:23-1:30, or VIDEO@1:23 for a single time."""
    video, at, span = text.rpartition("@")
    first, dash, last = span.partition("-")
    start, end = seconds_of(first), seconds_of(last if dash else first)
    if not at or not video or start is None or end is None:
        raise HolmesError(f"'{text[:100]}' is no moment of a video; write VIDEO@1:23-1:30 or VIDEO@1:23.")
    if end < start:
        raise HolmesError(f"'{text[:100]}' ends before it begins; write VIDEO@FROM-TO.")
    return Clip(video, start, end)


def answer_composed(
    index: OpenIndex, query: ComposedQuery, top: int, allowed_S: torch.Tensor | None = None
) -> Answer:
    """The best videos for a composed query, with moments; there is no probability."""
    hits = [
        Hit(found.video.name, found.score, 0.0, None, found.moments())
        for found in find_composed(index, query, top, allowed_S)
    ]
    said = wording.NOT_A_SENTENCE if query.sentence is None else wording.MORE_THAN_A_SENTENCE
    return Answer(query.words, Diagnosis((), {}, explanation=said), tuple(hits))


@dataclass(frozen=True)
class ComposedHit:
    """A video that fits a composed query; its moments are found when they are asked for."""

    video: StoredVideo
    score: float
    moments: Callable[[], tuple[Moment, ...]]


def find_composed(
    index: OpenIndex, query: ComposedQuery, top: int, allowed_S: torch.Tensor | None = None
) -> list[ComposedHit]:
    """The best videos, best first; the video that a clip comes from is left out."""
    query.check()
    query = _with_name(index, query)
    wanted = wanted_probes(index, query)
    own = None if query.clip is None else query.clip.video
    more = top + (own is not None)
    if query.then is None and not query.leave_out:
        found = _find(index, wanted, more, allowed_S)
    else:
        out = [_scaled(index, sentence_probes(index.embedder, [words])) for words in query.leave_out]
        asked = [wanted] if query.then is None else [wanted, sentence_probes(index.embedder, [query.then])]
        steps = [Step(_scaled(index, probes), out) for probes in asked]
        found = _find_along(index, steps, more, allowed_S)
    return [each for each in found if each.video.name != own][:top]


def _with_name(index: OpenIndex, query: ComposedQuery) -> ComposedQuery:
    """The same with the whole name of the video that its clip comes from."""
    if query.clip is None:
        return query
    name = only_match(index.store, query.clip.video, index.store.path)
    return replace(query, clip=replace(query.clip, video=name))


def wanted_probes(index: OpenIndex, query: ComposedQuery) -> Probes:
    """One probe from a sentence and pictures, each divided by its spread; a lone sentence stays as it is."""
    embedder = index.embedder
    vectors: list[Rows] = []
    if query.pictures:
        vectors.append(picture_vector(embedder, query.pictures))
    if query.clip is not None:
        vectors.append(clip_vector(index.store[query.clip.video], query.clip))
    if query.sentence is not None:
        if not vectors:
            return sentence_probes(embedder, [query.sentence])
        vectors.append(_pooled(embedder.queries([query.sentence])))
    if len(vectors) == 1:
        return vector_probes(embedder, vectors[0])
    spreads = [_scaled(index, vector_probes(embedder, vector_D)).spread for vector_D in vectors]
    whole_D = sum(
        (v_D / spread for v_D, spread in zip(vectors, spreads, strict=True)), np.zeros(embedder.width)
    )
    return vector_probes(embedder, whole_D)


@dataclass(frozen=True)
class ScaledQuery:
    """A query, and mean and deviation of its best scores over the parts of the index."""

    probes: Probes
    mean: float
    spread: float

    def along(self, video: StoredVideo) -> Rows:
        """How many deviations above the mean each position of a video lies."""
        value_F: Rows = (timeline_of(video, self.probes, 0).similarity_F - self.mean) / self.spread
        return value_F


def _scaled(index: OpenIndex, probes: Probes) -> ScaledQuery:
    scores = nearest_videos(index.gallery, probes.to(index.device), 1).to("cpu").all_scores.background
    return ScaledQuery(probes, float(scores.mean_Q[0]), max(float(scores.deviation_Q[0]), SMALLEST_SPREAD))


@dataclass(frozen=True)
class Step:
    """What is wanted at one moment, and what must not be seen there."""

    wanted: ScaledQuery
    unwanted: Sequence[ScaledQuery]

    def along(self, video: StoredVideo) -> Rows:
        """What is wanted, less what is shown of the things to leave out beyond what videos usually show."""
        value_F = self.wanted.along(video)
        for each in self.unwanted:
            value_F = value_F - LEAVE_OUT * np.maximum(each.along(video), 0)
        return value_F


def picture_vector(embedder: Embedder, pictures: Sequence[Image]) -> Rows:
    """The mean of pictures as the model embeds the frames of a video, of length 1."""
    visual = embedder.visual
    features_ND = visual.frames([picture for picture in pictures for _ in range(visual.window)])
    whole = [slice(0, len(features_ND))]
    ((frames_ND, _),) = embedder.videos([features_ND], [len(features_ND) / embedder.rate], [whole])[0]
    return _unit(np.asarray(frames_ND, np.float64).mean(axis=0))


def clip_vector(video: StoredVideo, clip: Clip) -> Rows:
    """The mean of a clip's frames in the index, of length 1; the nearest frame of a single time."""
    if not 0 <= clip.start <= clip.end <= video.duration + 1:
        raise HolmesError(
            f"{video.name} has {video.duration:.1f} seconds; {clip.start:g}–{clip.end:g} s is not in it."
        )
    inside_F = frames_of_moment(video, Moment(clip.start, clip.end, 0.0))
    if not inside_F.any():
        return _unit(np.asarray(frame_at(video, (clip.start + clip.end) / 2), np.float64))
    return _unit(frames_of(video)[inside_F].astype(np.float64).mean(axis=0))


def _find(index: OpenIndex, probes: Probes, top: int, allowed_S: torch.Tensor | None) -> list[ComposedHit]:
    nearest = nearest_videos(index.gallery, probes.to(index.device), top, allowed_S=allowed_S).to("cpu")
    videos = [index.video_of_part(part) for part in nearest.hit_QH[0].tolist()]
    scores = nearest.hit_score_QH[0].tolist()
    return [
        ComposedHit(video, score, partial(find_moments, video, probes, 0))
        for video, score in zip(videos, scores, strict=True)
    ]


def _find_along(
    index: OpenIndex, steps: Sequence[Step], top: int, allowed_S: torch.Tensor | None
) -> list[ComposedHit]:
    """The best videos of each step, ranked again along their timelines; two steps must come in order."""
    videos: dict[str, StoredVideo] = {}
    for step in steps:
        wanted = step.wanted.probes.to(index.device)
        nearest = nearest_videos(index.gallery, wanted, CANDIDATES, allowed_S=allowed_S).to("cpu")
        for part in nearest.hit_QH[0].tolist():
            video = index.video_of_part(part)
            videos.setdefault(video.name, video)
    found = []
    for video in videos.values():
        values = [step.along(video) for step in steps]
        if len(steps) == 1:
            found.append(ComposedHit(video, float(values[0].max()), partial(_moments, video, values[0])))
            continue
        first_F, after_F = values
        score, cut = best_order(first_F, after_F)
        if cut:
            found.append(ComposedHit(video, score, partial(covering, video, first_F, after_F, cut, score)))
    return sorted(found, key=lambda hit: (-hit.score, hit.video.name))[:top]


def _moments(video: StoredVideo, value_F: Rows) -> tuple[Moment, ...]:
    spans_SF2, kept_SF = frames_in_time(video)
    return shown_moments(value_F, spans_SF2[kept_SF], frames_of(video))


def best_order(first_F: Rows, after_F: Rows) -> tuple[float, int]:
    """The largest sum of a value of `first` and a later value of `after`, and where the later part begins.

    The cut lies halfway between both positions. A timeline of one position has no order: the cut is 0.
    """
    if len(first_F) < 2:
        return -np.inf, 0
    before_F = np.maximum.accumulate(first_F)[:-1]
    behind_F = np.maximum.accumulate(after_F[::-1])[::-1][1:]
    sums_F = before_F + behind_F
    cut = int(sums_F.argmax()) + 1
    position, next_position = int(first_F[:cut].argmax()), cut + int(after_F[cut:].argmax())
    return float(sums_F.max()), (position + next_position + 1) // 2


def covering(video: StoredVideo, first_F: Rows, after_F: Rows, cut: int, score: float) -> tuple[Moment, ...]:
    """From the beginning of the best moment before the cut to the end of the best moment after it."""
    spans_SF2, kept_SF = frames_in_time(video)
    spans_F2, rows_FD = spans_SF2[kept_SF], frames_of(video)
    start = shown_moments(first_F[:cut], spans_F2[:cut], rows_FD[:cut])[0].start
    end = shown_moments(after_F[cut:], spans_F2[cut:], rows_FD[cut:])[0].end
    return (Moment(start, end, score),)


def _pooled(query: QueryEmbedding) -> Rows:
    if query.tokens_QTD is not None:
        raise HolmesError(
            "this model compares every word with frames: a picture cannot be added to a sentence; "
            "use a joint model, or one trained with single queries."
        )
    return _unit(query.query_QD[0].double().cpu().numpy())


def _unit(vector_D: Rows) -> Rows:
    length = float(np.linalg.norm(vector_D))
    if not np.isfinite(length) or length <= 0:
        raise HolmesError("the model turns this query into nothing; ask for something else.")
    unit_D: Rows = vector_D / length
    return unit_D
