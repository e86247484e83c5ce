"""Pictures of videos: decoded from the file at the second asked for, or the nearest one the index kept."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from holmes.errors import HolmesError
from holmes.index.storage.store import FEATURES
from holmes.media.feature_folder import FeatureFolder, Thumbnail
from holmes.media.pictures import thumbnail
from holmes.media.reader import VideoReader
from holmes.serve.catalogue import Entry, NotFoundError, Shelf

KEPT_WIDTH = 160  # of the pictures an index keeps
REMEMBERED = 512
PICTURE_LIMIT = 80_000  # bytes of a decoded one


class Thumbnails:
    """Pictures of one shelf's videos, the last few hundred remembered."""

    def __init__(self, index: Path | None, shelf: Shelf) -> None:
        self.shelf = shelf
        self._features = _open_features(index)
        self.at = lru_cache(REMEMBERED)(self._at)
        self._kept = lru_cache(64)(self._read_kept)

    def _at(self, entry: Entry, time: float, width: int) -> bytes:
        """A JPEG of the picture at `time`, at most so wide. Small ones need no decoding if one was kept."""
        kept = self._kept(entry)
        if width > KEPT_WIDTH or not kept:
            try:
                reader = VideoReader(self.shelf.file(entry), 1.0, largest_side=width)
                return thumbnail(reader.at(time), width, width, limit=PICTURE_LIMIT)
            except HolmesError:
                if not kept:
                    raise NotFoundError("there is no picture of this video.") from None
        return min(kept, key=lambda picture: abs(picture.time - time)).jpeg

    def _read_kept(self, entry: Entry) -> tuple[Thumbnail, ...]:
        if self._features is None:
            return ()
        try:
            return self._features[entry.id].thumbnails
        except HolmesError:
            return ()


def _open_features(index: Path | None) -> FeatureFolder | None:
    try:
        return FeatureFolder.open(index / FEATURES) if index else None
    except HolmesError:
        return None
