"""The state of a running server: the index with its batcher, and the catalogue of its snapshot."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from holmes.errors import HolmesError
from holmes.index.answer.answers import Hit, Timeline
from holmes.index.answer.base import SearchIndex
from holmes.index.answer.request import check_sentence
from holmes.index.ingest.skipped import Notes, read_skipped
from holmes.index.storage.store import IndexDescription
from holmes.serve.batching import Batcher, Reply, ServedQuestion, rate_cost
from holmes.serve.catalogue import Entry, VideoCatalogue, file_date
from holmes.serve.decoding import Decoders
from holmes.serve.examples import example_questions
from holmes.serve.guard import TOO_MANY
from holmes.serve.metrics import Metrics
from holmes.serve.rates import Rates
from holmes.serve.settings import ServeSettings
from holmes.serve.streams import SendSlots
from holmes.serve.thumbnails import Thumbnails
from holmes.serve.turns import Caller

log = logging.getLogger("holmes.serve")
STEPS = 160  # of a timeline
FACTS_SECONDS, FACTS_KEPT = 1.0, 10_000  # how long, and for how many videos, what the disk said is kept
POLL_SECONDS = 1.0  # between two checks for a changed index


class BadRequestError(HolmesError):
    """What was asked cannot be answered as it stands."""


class TooManyError(HolmesError):
    """This client has asked for more than its share; `wait` says how many seconds to wait."""

    def __init__(self, wait: float) -> None:
        super().__init__(TOO_MANY)
        self.wait = wait


class ServerState:
    """Opened when the server starts, closed when it ends."""

    def __init__(self, index: SearchIndex, settings: ServeSettings, metrics: Metrics, rates: Rates) -> None:
        self.index, self.settings, self.metrics, self.rates = index, settings, metrics, rates
        limits = settings.limits
        self.batcher = Batcher(index, limits, metrics)
        self.decoders = Decoders(limits)
        self.streams = SendSlots(limits.streams, limits.streams_per_address, "watched")
        self.conversions = SendSlots(limits.conversions, limits.conversions, "converted")
        self.catalogue: VideoCatalogue
        self.thumbnails: Thumbnails
        self.about: IndexDescription
        self._examples: list[str] | None = None
        # Of a video's file: when the disk was asked, its day, and whether it is there.
        self._facts: dict[str, tuple[float, str | None, bool]] = {}
        self._choosing = asyncio.Lock()
        self.notes: dict[str, str] = {}  # why a video was read only in part, by its name

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
        await self.decoders.close()

    async def ask(self, questions: Sequence[ServedQuestion], caller: Caller) -> list[Reply]:
        """The replies; the client is charged for each sentence, and for what makes it more work than most."""
        sentences = [question.sentence for question in questions]
        self.charge(sentences, caller, sum(map(rate_cost, questions)))
        return await self.batcher.ask(questions, caller)

    def charge(self, sentences: Sequence[str], caller: Caller, cost: int | None = None) -> None:
        """Count sentences against the client's rate: each as a request, unless their cost is given."""
        for sentence in sentences:
            self.check(sentence)
        more = (len(sentences) if cost is None else cost) - 1  # the request itself was counted when it came
        if more > 0 and (wait := self.rates.wait(caller.client, more)):
            raise TooManyError(wait)

    def check(self, sentence: str) -> None:
        most = self.settings.limits.query
        try:
            check_sentence(sentence)
        except HolmesError as error:
            raise BadRequestError(str(error)) from None
        if len(sentence) > most:
            raise BadRequestError(f"a sentence may have at most {most} characters, not {len(sentence)}.")

    def changeable_path(self) -> Path:
        """The folder of the index, if videos can be added to it and removed."""
        path = Path(self.about.path)
        if not path.is_dir() or self.about.shards is not None:
            raise HolmesError("this index is not a single folder; change its parts one by one.")
        return path

    async def examples(self) -> list[str]:
        """Sentences that this collection answers well; found once for every state of the index."""
        async with self._choosing:
            if self._examples is None:
                self._examples = await self.batcher.run(partial(example_questions, self.index))
            return self._examples

    def described(self, hits: Sequence[Hit], timelines: Sequence[Timeline] = ()) -> list[dict[str, Any]]:
        """Hits with what the page shows of their videos; a video removed a moment ago is left out."""
        found = []
        for rank, hit in enumerate(hits):
            entry = self.catalogue.by_name.get(hit.video)
            if entry is None:
                continue
            plain: dict[str, Any] = {**hit.to_dict()}
            moments = plain["moments"]
            plain["timeline"] = steps_of(timelines[rank], entry.duration, moments) if timelines else None
            found.append({**self.video(entry), **plain})
        return found

    def video(self, entry: Entry) -> dict[str, Any]:
        day, has_file = self._file_facts(entry)
        return {
            "id": entry.id,
            "name": entry.name,
            "title": entry.title,
            "folder": entry.folder,
            "duration": entry.duration,
            "date": day,
            "file": has_file,
            "library": self._library_of(entry.name),
            "note": self.notes.get(entry.name),
        }

    def _file_facts(self, entry: Entry) -> tuple[str | None, bool]:
        """The day of a video's file, and whether it is there; remembered for a moment."""
        now = time.monotonic()
        known = self._facts.get(entry.name)
        if known is None or now - known[0] > FACTS_SECONDS:
            if len(self._facts) > FACTS_KEPT:
                self._facts.clear()
            day = file_date(entry)
            known = (now, day.isoformat() if day else None, self.catalogue.has_file(entry))
            self._facts[entry.name] = known
        return known[1:]

    def _library_of(self, video: str) -> str | None:
        """Which library holds a video, if several are searched as one."""
        find = getattr(self.index, "library_of", None)
        return None if find is None else find(video)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            try:
                await self.reload_if_changed()
            except (HolmesError, OSError) as error:
                log.warning("the index could not be read again: %s", error)

    async def reload_if_changed(self) -> None:
        """Take up the index if it has changed: afterwards the catalogue is that of the newest snapshot."""
        if await self.batcher.run(self._reload):
            log.info("the index has changed: %d videos", len(self.catalogue))

    def _warm(self) -> None:
        """Load the model before the first person asks; if that fails, the first search will say why."""
        with suppress(HolmesError, OSError, ImportError):
            self.index.search_many(["a first look"], 1)

    def skipped(self) -> Notes:
        """Videos that are not in the index, or only in part, and why."""
        found = read_skipped(Path(self.about.path))
        self.notes = {note["name"]: note["reason"] for note in found["partial"]}
        return found

    def _reload(self) -> bool:
        """In one piece: another reload must not find the index refreshed and the catalogue old."""
        changed = self.index.refresh()
        if changed:
            self._take_up()
        return changed

    def _take_up(self) -> None:
        about = self.index.describe()
        catalogue = VideoCatalogue(self.index.durations)
        self.thumbnails = Thumbnails(Path(about.path), catalogue, self.decoders)
        self.catalogue, self.about = catalogue, about
        self._examples = None
        self.skipped()
        self.metrics.videos.set(len(catalogue))
        self.metrics.generation.set(about.generation)


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
