"""Pictures of videos: decoded at a given second, or the nearest stored thumbnail."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np

from holmes.errors import HolmesError
from holmes.index.embedders.scenes import scene_times
from holmes.index.storage.store import FEATURES
from holmes.media.feature_folder import FeatureFolder, Thumbnail, VideoFeatures
from holmes.serve.catalogue import Entry, NotFoundError, VideoCatalogue
from holmes.serve.decoding import Decoders
from holmes.serve.turns import BusyError, Caller

KEPT_WIDTH = 160  # of the pictures an index keeps
REMEMBERED = 512
MOST_SCENES, EVEN_SCENES = 48, 8  # of a video; of one whose frames are not known
SHORTEST_SCENE = 2.0  # seconds
SCENE_PRICE, PRICE_PER_SECOND = 0.5, 1 / 600  # see `scene_times`: pictures show smaller scenes than chapters


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
        """Where the scenes of a video begin and end, in seconds; equal parts if the index kept no frames."""
        found = self._stored(entry)
        end = entry.duration
        if found is None or not len(found.rows):
            count = int(min(EVEN_SCENES, max(1, end // SHORTEST_SCENE)))
            return list(pairwise(np.linspace(0, end, count + 1).tolist()))
        starts_N = found.times - np.diff(found.times, prepend=0) / 2  # between two frames
        shortest = max(SHORTEST_SCENE, end / MOST_SCENES)
        price = SCENE_PRICE + end * PRICE_PER_SECOND
        return list(pairwise(scene_times(found.rows, starts_N, end, price, shortest)))

    def _read_kept(self, entry: Entry) -> tuple[Thumbnail, ...]:
        found = self._stored(entry)
        return () if found is None else found.thumbnails

    def _stored(self, entry: Entry) -> VideoFeatures | None:
        try:
            return None if self._features is None else self._features[entry.id]
        except HolmesError:
            return None


def _open_features(index: Path | None) -> FeatureFolder | None:
    try:
        return FeatureFolder.open(index / FEATURES) if index else None
    except HolmesError:
        return None
