"""Pictures of videos: decoded from the file at the second asked for, or the nearest one the index kept."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from functools import lru_cache
from pathlib import Path

from holmes.errors import HolmesError
from holmes.index.storage.store import FEATURES
from holmes.media.feature_folder import FeatureFolder, Thumbnail
from holmes.serve.catalogue import Entry, NotFoundError, VideoCatalogue
from holmes.serve.decoding import Decoders
from holmes.serve.scenes import scenes_of
from holmes.serve.turns import BusyError, Caller

KEPT_WIDTH = 160  # of the pictures an index keeps
REMEMBERED = 512


class Thumbnails:
    """Pictures of one catalogue's videos, the last few hundred remembered."""

    def __init__(self, index: Path | None, catalogue: VideoCatalogue, decoders: Decoders) -> None:
        self.catalogue, self.decoders = catalogue, decoders
        self._features = _open_features(index)
        self._kept = lru_cache(64)(self._read_kept)
        self._remembered: OrderedDict[tuple[str, float, int], bytes] = OrderedDict()

    async def at(self, entry: Entry, time: float, width: int, caller: Caller) -> bytes:
        """A JPEG of the picture at `time`, at most so wide. Small ones need no decoding if one was kept."""
        key = (entry.id, time, width)
        if key in self._remembered:
            self._remembered.move_to_end(key)
            return self._remembered[key]
        jpeg = self._remembered[key] = await self._find(entry, time, width, caller)
        while len(self._remembered) > REMEMBERED:
            self._remembered.popitem(last=False)
        return jpeg

    async def _find(self, entry: Entry, time: float, width: int, caller: Caller) -> bytes:
        kept = await asyncio.to_thread(self._kept, entry)
        if width > KEPT_WIDTH or not kept:
            try:
                file = await asyncio.to_thread(self.catalogue.file, entry)
                return await self.decoders.picture(file, time, width, caller)
            except BusyError:
                raise
            except HolmesError:
                if not kept:
                    raise NotFoundError("there is no picture of this video.") from None
        return min(kept, key=lambda picture: abs(picture.time - time)).jpeg

    def scenes(self, entry: Entry) -> list[tuple[float, float]]:
        """Where the scenes of a video begin and end, in seconds."""
        try:
            found = None if self._features is None else self._features[entry.id]
        except HolmesError:
            found = None
        rows, times = (None, None) if found is None else (found.rows, found.times)
        return scenes_of(rows, times, entry.duration)

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
