"""One shard, open in one state or two: what a node does for a search. This file knows nothing of Ray.

Q queries, U some of them, K best parts, H hits, T probes of a query, D width
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from holmes.cluster.copying import cached_folder, open_shard, sweep
from holmes.cluster.locations import Place
from holmes.errors import HolmesError
from holmes.index.answer.answering import Found
from holmes.index.answer.answers import Timeline
from holmes.index.answer.duplicates import MeanFrame, MomentFrames, moment_frames, sample_mean_frames
from holmes.index.answer.searcher import Index
from holmes.index.answer.timeline import find_moments, frame_at, timeline_of
from holmes.index.engine.nearest import nearest_videos
from holmes.index.engine.scan import Probes
from holmes.index.storage.codes import ProbeCodes
from holmes.moments import Moment

Sent = tuple[NDArray[Any], ...]  # probes as they travel: rows, weights, and codes, which are made once


class NotOpenError(HolmesError):
    """The shard is not open in the state that was asked for."""


@dataclass(frozen=True)
class ShardReply:
    """What one shard found, as plain arrays; numbers of parts and videos are the shard's own."""

    part_QK: NDArray[np.int64]
    score_QK: NDArray[np.float64]
    frame_QK: NDArray[np.float32]
    clip_QK: NDArray[np.float32]
    video_QK: NDArray[np.int64]
    video_parts_QK: NDArray[np.int64]
    key_QK: NDArray[np.int64]  # orders equal scores
    hit_QH: NDArray[np.int64]
    hit_score_QH: NDArray[np.float64]
    hit_key_QH: NDArray[np.int64]
    count: int  # parts that were compared, and the sums of their scores
    sum_Q: NDArray[np.int64]
    squares_Q: NDArray[np.int64]

    def __getitem__(self, at_U: NDArray[np.int64]) -> ShardReply:
        """Of some of the queries."""
        return replace(self, **{name: rows[at_U] for name, rows in vars(self).items() if name != "count"})


def sent(probes: Probes) -> Sent:
    rows = probes.rows_QTD, probes.frame_weight_QT, probes.clip_weight_QT
    return tuple(tensor.numpy() for tensor in (*rows, *vars(probes.codes).values()))


def received(arrays: Sent) -> Probes:
    rows_QTD, frame_weight_QT, clip_weight_QT, *codes = map(torch.from_numpy, arrays)
    probes = Probes(rows_QTD, frame_weight_QT, clip_weight_QT)
    probes.__dict__["codes"] = ProbeCodes(*codes)
    return probes


def packed(view: MomentFrames) -> MomentFrames:
    """A view in the form that is sent: its rows are float16, as in the index, so nothing is lost."""
    return MomentFrames(view.rows_FD.astype(np.float16), view.inside_F)


def unpacked(view: MomentFrames) -> MomentFrames:
    return MomentFrames(view.rows_FD.astype(np.float32), view.inside_F)


class Shard:
    """A shard by its name, in the states that a search asks for: the present one, and soon the next."""

    def __init__(self, place: str, name: str, cache: str | None = None, device: str = "cpu") -> None:
        self.place, self.name, self.cache = Place(place), name, cache
        self.device = torch.device(device)
        self._states: dict[str, Index] = {}

    def hold(self, digest: str) -> str:
        """Get ready to answer in this state; return its digest when it is open."""
        if digest not in self._states:
            cache = None if self.cache is None else Path(self.cache)
            index = Index(open_shard(self.place, self.name, digest, cache), self.device)
            _ = index.gallery  # on a GPU this is where the embeddings go there
            self._states[digest] = index
        return digest

    def release(self, but: Collection[str]) -> None:
        """Let go of all other states, and of what was copied for them alone."""
        gone = self._states.keys() - set(but)
        for digest in gone:
            self._states.pop(digest, None)
        if gone and self.cache is not None:
            sweep(cached_folder(self.place, self.name, Path(self.cache)), but)

    def nearest(
        self, digest: str, probes: Sent, top: int, candidates: int, names: Collection[str] | None
    ) -> ShardReply:
        index = self._in(digest)
        allowed_S = None if names is None else index.parts_of(names)
        asked = received(probes).to(self.device)
        found = nearest_videos(index.gallery, asked, top, candidates, allowed_S)
        key_S, sums = index.gallery.key_S, found.all_scores

        def plain(tensor: torch.Tensor) -> NDArray[Any]:
            return tensor.cpu().numpy()

        return ShardReply(
            part_QK=plain(found.parts_QK),
            score_QK=plain(found.score_QK),
            frame_QK=plain(found.frame_QK),
            clip_QK=plain(found.clip_QK),
            video_QK=plain(found.video_QK),
            video_parts_QK=plain(found.video_parts_QK),
            key_QK=plain(key_S[found.parts_QK]),
            hit_QH=plain(found.hit_QH),
            hit_score_QH=plain(found.hit_score_QH),
            hit_key_QH=plain(key_S[found.hit_QH]),
            count=sums.count,
            sum_Q=plain(sums.sum_Q),
            squares_Q=plain(sums.squares_Q),
        )

    def found(
        self, digest: str, probes: Sent, hits: Sequence[tuple[int, int, bool]]
    ) -> list[tuple[Found, MomentFrames | None]]:
        """The name and the moments of each hit, which is a query, the part that makes its video a hit, and
        whether to say what it looks like too."""
        index, asked = self._in(digest), received(probes)
        found: list[tuple[Found, MomentFrames | None]] = []
        for q, part, looked_at in hits:
            video = index.video_of_part(part)
            moments = find_moments(video, asked, q)
            view = packed(moment_frames(video, moments[0])) if looked_at else None
            found.append(((video.name, moments), view))
        return found

    def views(self, digest: str, hits: Sequence[tuple[int, Moment]]) -> list[MomentFrames]:
        """What videos look like, each named by one of its parts, and in which moment."""
        index = self._in(digest)
        return [packed(moment_frames(index.video_of_part(part), moment)) for part, moment in hits]

    def sketches(self, digest: str) -> list[MeanFrame]:
        """A sample of the shard's videos."""
        index = self._in(digest)
        return sample_mean_frames(index.gallery.key_S, index.video_of_part)

    def timelines(self, digest: str, probes: Sent, names: Sequence[str]) -> list[Timeline]:
        index, asked = self._in(digest), received(probes)
        return [timeline_of(index.store[name], asked, 0) for name in names]

    def row_at(self, digest: str, video: str, time: float) -> NDArray[Any]:
        return np.asarray(frame_at(self._in(digest).store[video], time), np.float32)

    def every_score(self, digest: str, probes: Sent) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Both branches' similarity of every query to every video, in the order of `names`."""
        scores = self._in(digest).score_every_video(received(probes).to(self.device))
        return scores.frame_QV.numpy(), scores.clip_QV.numpy()

    def names(self, digest: str) -> list[str]:
        return self._in(digest).videos

    def durations(self, digest: str) -> dict[str, float]:
        return self._in(digest).durations

    def lengths(self, digest: str, names: Sequence[str]) -> list[float | None]:
        """The seconds of some videos; None for those that are not here."""
        store = self._in(digest).store
        return [store[name].duration if name in store else None for name in names]

    def _in(self, digest: str) -> Index:
        try:
            return self._states[digest]
        except KeyError:
            raise NotOpenError(f"{self.name} is not open in the state {digest[:12]}.") from None
