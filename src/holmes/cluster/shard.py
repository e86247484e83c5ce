"""One shard, open in one or two snapshots. Runs without Ray too.

Q queries, U some of them, K best parts, H hits, T probes of a query, D width
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from holmes.cluster.location import Location, cached_folder, delete_others, open_snapshot
from holmes.errors import HolmesError
from holmes.evidence.sources import TextEvidence
from holmes.heard.passages import Heard
from holmes.index.answer.answering import Found
from holmes.index.answer.answers import Timeline
from holmes.index.answer.duplicates import MeanFrame, MomentFrames, moment_frames, sample_mean_frames
from holmes.index.answer.searcher import Index
from holmes.index.answer.timeline import find_moments, frame_at, timeline_of
from holmes.index.answer.words import Speaking
from holmes.index.engine.exact_sums import ScoreSums
from holmes.index.engine.nearest import nearest_videos
from holmes.index.engine.passages import Counts, WordQuery
from holmes.index.engine.scan import Probes
from holmes.index.storage.codes import ProbeCodes
from holmes.index.storage.store import IndexStore
from holmes.moments import Moment

ProbeArrays = tuple[NDArray[Any], ...]  # probes as they are sent: rows, weights and codes


class NotOpenError(HolmesError):
    """The shard cannot be opened in the snapshot of a call; another replica may have it."""


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

    @property
    def sums(self) -> ScoreSums:
        return ScoreSums(self.count, torch.tensor(self.sum_Q), torch.tensor(self.squares_Q))

    def __getitem__(self, at_U: NDArray[np.int64]) -> ShardReply:
        """The reply to some of the queries."""
        return replace(self, **{name: rows[at_U] for name, rows in vars(self).items() if name != "count"})


def to_arrays(probes: Probes) -> ProbeArrays:
    rows = probes.rows_QTD, probes.frame_weight_QT, probes.clip_weight_QT
    return tuple(tensor.numpy() for tensor in (*rows, *vars(probes.codes).values()))


def from_arrays(arrays: ProbeArrays) -> Probes:
    rows_QTD, frame_weight_QT, clip_weight_QT, *codes = map(torch.from_numpy, arrays)
    probes = Probes(rows_QTD, frame_weight_QT, clip_weight_QT)
    probes.__dict__["codes"] = ProbeCodes(*codes)
    return probes


def frames_to_float16(frames: MomentFrames) -> MomentFrames:
    """Frames as they are sent: in float16, as in the index, so nothing is lost."""
    return MomentFrames(frames.rows_FD.astype(np.float16), frames.inside_F)


def frames_to_float32(frames: MomentFrames) -> MomentFrames:
    return MomentFrames(frames.rows_FD.astype(np.float32), frames.inside_F)


class Shard:
    """A shard by its name, open in the snapshots that searches use: the current one, and soon the next."""

    def __init__(self, location: str, name: str, cache: str | None = None, device: str = "cpu") -> None:
        self.location, self.name, self.cache = Location(location), name, cache
        self.device = torch.device(device)
        self._open: dict[str, Index] = {}  # by the digests of the snapshots
        self._opening = threading.Lock()

    def open(self, digest: str) -> None:
        """Open a snapshot, unless it is open."""
        self._opened(digest)

    def _opened(self, digest: str) -> Index:
        with self._opening:
            if digest not in self._open:
                index = Index(self._store(digest), self.device)
                _ = index.gallery  # on a GPU this is where the embeddings go there
                self._open[digest] = index
            return self._open[digest]

    def _store(self, digest: str) -> IndexStore:
        return open_snapshot(
            self.location, self.name, digest, None if self.cache is None else Path(self.cache)
        )

    def release_others(self, but: Collection[str]) -> None:
        """Close all other snapshots, and delete what was copied for them alone."""
        with self._opening:
            gone = self._open.keys() - set(but)
            for digest in gone:
                del self._open[digest]
            if gone and self.cache is not None:
                delete_others(cached_folder(self.location, self.name, Path(self.cache)), but)

    def nearest(
        self, digest: str, probes: ProbeArrays, top: int, candidates: int, names: Collection[str] | None
    ) -> ShardReply:
        index = self._at(digest)
        allowed_S = None if names is None else index.parts_of(names)
        asked = from_arrays(probes).to(self.device)
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
        self, digest: str, probes: ProbeArrays, hits: Sequence[tuple[int, int, bool]]
    ) -> list[tuple[Found, MomentFrames | None]]:
        """The name and the moments of each hit, and the frames of some.

        A hit is a query, the part that makes its video a hit, and whether its frames are wanted.
        """
        index, asked = self._at(digest), from_arrays(probes)
        found: list[tuple[Found, MomentFrames | None]] = []
        for q, part, with_frames in hits:
            video = index.video_of_part(part)
            moments = find_moments(video, asked, q)
            frames = frames_to_float16(moment_frames(video, moments[0])) if with_frames else None
            found.append(((video.name, moments), frames))
        return found

    def word_encoder(self, digest: str) -> str | None:
        """The encoder of what its passages mean; None where it has no passages."""
        passages = self._at(digest).passages
        return passages.encoder if passages else None

    def count_words(self, digest: str, queries: Sequence[WordQuery]) -> Counts:
        return self._at(digest).passages.count(queries)

    def speaking(
        self,
        digest: str,
        queries: Sequence[WordQuery],
        counts: Counts,
        weights: TextEvidence,
        probes: ProbeArrays,
        names: Collection[str] | None,
    ) -> list[list[Speaking]]:
        """The videos whose words match each query; numbers of parts and videos are the shard's own."""
        return self._at(digest).speaking(queries, counts, weights, from_arrays(probes), names)

    def transcript(self, digest: str, video: str) -> Heard | None:
        return self._at(digest).store.heard(video)

    def frames(self, digest: str, hits: Sequence[tuple[int, Moment]]) -> list[MomentFrames]:
        """The frames of moments, each in the video of a part."""
        index = self._at(digest)
        return [frames_to_float16(moment_frames(index.video_of_part(part), moment)) for part, moment in hits]

    def sample_mean_frames(self, digest: str) -> list[MeanFrame]:
        """A sample of the shard's videos."""
        index = self._at(digest)
        return sample_mean_frames(index.gallery.key_S, index.video_of_part)

    def timelines(self, digest: str, probes: ProbeArrays, names: Sequence[str]) -> list[Timeline]:
        index, asked = self._at(digest), from_arrays(probes)
        return [timeline_of(index.store[name], asked, 0) for name in names]

    def row_at(self, digest: str, video: str, time: float) -> NDArray[Any]:
        return np.asarray(frame_at(self._at(digest).store[video], time), np.float32)

    def every_score(
        self, digest: str, probes: ProbeArrays
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Both branches' similarity of every query to every video, in the order of `names`."""
        scores = self._at(digest).score_every_video(from_arrays(probes).to(self.device))
        return scores.frame_QV.numpy(), scores.clip_QV.numpy()

    def names(self, digest: str) -> list[str]:
        return self._at(digest).videos

    def durations(self, digest: str) -> dict[str, float]:
        return self._at(digest).durations

    def lengths(self, digest: str, names: Sequence[str]) -> list[float | None]:
        """The seconds of some videos; None for those that are not here."""
        store = self._at(digest).store
        return [store.durations.get(name) for name in names]

    def _at(self, digest: str) -> Index:
        """The shard in one snapshot, which is opened here after a restart of this process."""
        if (index := self._open.get(digest)) is not None:
            return index  # without waiting for another snapshot that is being opened
        try:
            return self._opened(digest)
        except HolmesError as error:
            raise NotOpenError(str(error)) from None
