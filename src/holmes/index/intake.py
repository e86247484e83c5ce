"""Take features into an index as they come: embedded together, committed every few seconds, few at a time."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from holmes.errors import HolmesError
from holmes.index.embedder_protocol import Embedder
from holmes.index.index_writer import IndexWriter
from holmes.index.parts import embed_videos
from holmes.index.stored_video import StoredVideo
from holmes.media.extraction import Failure
from holmes.media.feature_folder import FeatureFolder, VideoFeatures

MOST_BYTES = 2**27  # bytes of features held at once: a two-hour film of the widest encoder has half of that
MOST_VIDEOS = 1024  # held at once
MOST_SECONDS = 20.0  # seconds that a finished video waits at most before it is committed


class Intake:
    """Offer videos by id, and `commit` at the end; the lists say what became of them."""

    def __init__(self, writer: IndexWriter, embedder: Embedder) -> None:
        self._writer, self._embedder = writer, embedder
        self._waiting: list[VideoFeatures] = []
        self._bytes, self._since = 0, time.monotonic()
        self._seen: set[Path] = set()
        self.added, self.unchanged = 0, 0
        self.instead_of: dict[str, str] = {}  # new names of moved videos → old ones, which leave
        self.failures: list[Failure] = []
        self.partial: list[Failure] = []  # added, though some of the file could not be read

    def offer(self, id: str, folder: FeatureFolder) -> None:
        """Take in a video's features, once for each source; damaged ones are left out and named."""
        try:
            video = folder[id]
            _check_rows(video, folder.backbone.width)
        except HolmesError as error:
            file = folder.file(id)
            self.failures.append(Failure(file, str(error).replace(str(file), "it", 1)))
            return
        if video.source in self._seen:
            return
        self._seen.add(video.source)
        if _is_in(self._writer, video):
            self.unchanged += 1
            return
        if not self._waiting:
            self._since = time.monotonic()
        self._waiting.append(video)
        self._bytes += video.rows.nbytes + video.times.nbytes
        late = time.monotonic() - self._since >= MOST_SECONDS
        if late or self._bytes >= MOST_BYTES or len(self._waiting) >= MOST_VIDEOS:
            self.commit()

    def has_seen(self, source: Path) -> bool:
        return source in self._seen

    def commit(self) -> None:
        """Embed what waits and make it part of the index; when this returns it is on the disk."""
        videos, self._waiting, self._bytes = self._waiting, [], 0
        if not videos:
            return
        stored = self._embedded(videos)
        if stored:
            self._writer.add(stored, self.instead_of)
        self.added += len(stored)
        names = {video.name for video in stored}
        self.partial += [Failure(v.source, v.note) for v in videos if v.note and str(v.source) in names]

    def _embedded(self, videos: Sequence[VideoFeatures]) -> list[StoredVideo]:
        """Embed all at once; where one of them cannot be embedded, one by one, and that one is named."""
        try:
            return embed_videos(videos, {video.id: _stamp(video) for video in videos}, self._embedder)
        except (HolmesError, ValueError, ArithmeticError) as error:
            if len(videos) == 1:
                self.failures.append(Failure(videos[0].source, " ".join(str(error).split())))
                return []
            return [stored for video in videos for stored in self._embedded([video])]


def _check_rows(video: VideoFeatures, width: int) -> None:
    count = len(video.times)
    if video.rows.ndim == 2 and video.rows.shape[1] != width:
        raise HolmesError(
            f"its rows have width {video.rows.shape[1]}, those of its encoder {width}; "
            f"extract {video.source} again."
        )
    if not count or video.rows.shape != (count, width) or video.times.shape != (count,):
        raise HolmesError(f"its rows and times do not belong together; extract {video.source} again.")
    if not all(
        np.isfinite(numbers).all() for numbers in (video.rows, video.times, video.start, video.duration)
    ):
        raise HolmesError(f"it holds numbers that are not finite; extract {video.source} again.")


def _stamp(video: VideoFeatures) -> int:
    """A number that changes when the features do."""
    digest = hashlib.sha256(np.ascontiguousarray(video.rows).data)
    digest.update(np.ascontiguousarray(video.times).data)
    return int.from_bytes(digest.digest()[:8], "little")


def _is_in(writer: IndexWriter, video: VideoFeatures) -> bool:
    name = str(video.source)
    return name in writer.store and writer.store[name].stamp == _stamp(video)
