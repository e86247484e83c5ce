"""What one running server holds: the index behind its batcher, and the shelf of the generation in use."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from holmes.errors import HolmesError
from holmes.index.answer.answers import Hit, Timeline
from holmes.index.answer.base import SearchIndex
from holmes.index.answer.request import check_sentence
from holmes.index.storage.store import IndexDescription
from holmes.serve.batching import Batcher, Reply, ServedQuestion
from holmes.serve.catalogue import Shelf, file_date
from holmes.serve.metrics import Metrics
from holmes.serve.settings import ServeSettings
from holmes.serve.thumbnails import Thumbnails

log = logging.getLogger("holmes.serve")
Result = TypeVar("Result")
STEPS = 160  # of a timeline
LOOK_AGAIN = 1.0  # seconds between two looks for a changed index


class BadRequestError(HolmesError):
    """What was asked cannot be answered as it stands."""


class ServerState:
    """Opened when the server starts, closed when it ends."""

    def __init__(self, index: SearchIndex, settings: ServeSettings, metrics: Metrics) -> None:
        self.index, self.settings, self.metrics = index, settings, metrics
        self.batcher = Batcher(index, settings.limits, metrics)
        self.decoding = ThreadPoolExecutor(2, thread_name_prefix="decode")
        self.streams = asyncio.Semaphore(settings.limits.streams)
        self.conversions = asyncio.Semaphore(settings.limits.conversions)
        self.shelf: Shelf
        self.thumbnails: Thumbnails
        self.about: IndexDescription

    async def __aenter__(self) -> ServerState:
        await self.batcher.__aenter__()
        await self.batcher.run(self._take_up)
        self._watching = asyncio.create_task(self._watch())
        self._warming = asyncio.create_task(self.batcher.run(self._warm))
        return self

    async def __aexit__(self, *error: object) -> None:
        self._watching.cancel()
        with suppress(asyncio.CancelledError):
            await self._watching
        await self._warming
        await self.batcher.__aexit__()
        self.decoding.shutdown(wait=True, cancel_futures=True)

    async def ask(self, questions: Sequence[ServedQuestion]) -> list[Reply]:
        for question in questions:
            self.check(question.sentence)
        return list(await asyncio.gather(*map(self.batcher.ask, questions)))

    def check(self, sentence: str) -> None:
        most = self.settings.limits.query
        try:
            check_sentence(sentence)
        except HolmesError as error:
            raise BadRequestError(str(error)) from None
        if len(sentence) > most:
            raise BadRequestError(f"a sentence may have at most {most} characters, not {len(sentence)}.")

    async def decode(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self.decoding, work)

    def described(self, hits: Sequence[Hit], timelines: Sequence[Timeline] = ()) -> list[dict[str, Any]]:
        """Hits with what the page shows of their videos; a video removed a moment ago is left out."""
        found = []
        for rank, hit in enumerate(hits):
            entry = self.shelf.by_name.get(hit.video)
            if entry is None:
                continue
            plain, moments = hit.to_dict(), [moment.to_dict() for moment in hit.moments]
            plain["timeline"] = steps_of(timelines[rank], entry.duration, moments) if timelines else None
            found.append({**self.video(entry), **plain})
        return found

    def video(self, entry: Any) -> dict[str, Any]:
        day = file_date(entry)
        return {
            "id": entry.id,
            "name": entry.name,
            "title": entry.title,
            "folder": entry.folder,
            "duration": entry.duration,
            "date": day.isoformat() if day else None,
            "file": self.shelf.has_file(entry),
        }

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_AGAIN)
            try:
                await self.look()
            except (HolmesError, OSError) as error:
                log.warning("the index could not be read again: %s", error)

    async def look(self) -> None:
        """Take up the index if it has changed."""
        if await self.batcher.run(self.index.refresh):
            await self.batcher.run(self._take_up)
            log.info("the index has changed: %d videos", len(self.shelf))

    def _warm(self) -> None:
        """Load the model before the first person asks; if that fails, the first search will say why."""
        with suppress(HolmesError, OSError, ImportError):
            self.index.search_many(["a first look"], 1)

    def _take_up(self) -> None:
        about = self.index.describe()
        shelf = Shelf(self.index.durations)
        path = Path(about.path)
        self.thumbnails, self.shelf, self.about = Thumbnails(path, shelf), shelf, about
        self.metrics.gauges["index_videos"] = len(shelf)
        self.metrics.gauges["index_generation"] = about.generation


def steps_of(timeline: Timeline, duration: float, moments: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """A timeline in equal steps: in each the best of the positions that reach into it."""
    spans_F2, similarity_F = np.asarray(timeline.spans_F2), np.asarray(timeline.similarity_F)
    length = max(float(duration), float(spans_F2[:, 1].max()), 1e-3)
    steps = int(min(STEPS, max(8, len(similarity_F))))
    first_F = (spans_F2[:, 0] / length * steps + 1e-6).astype(int).clip(0, steps - 1)
    last_F = np.ceil(spans_F2[:, 1] / length * steps - 1e-6).astype(int).clip(1, steps) - 1
    best_S = np.full(steps, -np.inf)
    for reach in range(int((last_F - first_F).max(initial=0)) + 1):
        np.maximum.at(best_S, np.minimum(first_F + reach, np.maximum(first_F, last_F)), similarity_F)
    best_S[np.isneginf(best_S)] = similarity_F.min()
    return {
        "duration": length,
        "similarity": [round(float(value), 4) for value in best_S],
        "moments": list(moments),
    }
