"""Concurrent queries share a scan: while one is running, those that come in wait and are answered together.

No query waits for others to arrive: one that finds the thread idle is searched at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from holmes.base.threads import one_thread_per_operation
from holmes.errors import HolmesError
from holmes.index.answer.answers import Answer, Timeline
from holmes.index.answer.base import SearchIndex
from holmes.serve.metrics import Metrics
from holmes.serve.settings import Limits

Result = TypeVar("Result")


class BusyError(HolmesError):
    """More queries are waiting than can be answered soon."""


@dataclass(frozen=True)
class ServedQuestion:
    """A sentence, how many hits, and which videos may be among them; with their timelines if wanted."""

    sentence: str
    top: int
    names: frozenset[str] | None = None
    timelines: bool = False
    abstain_below: float | None = None
    not_here_below: float | None = None

    @property
    def shared(self) -> tuple[frozenset[str] | None, float | None, float | None]:
        """What questions must have in common to be answered in one scan."""
        return self.names, self.abstain_below, self.not_here_below


@dataclass(frozen=True)
class Reply:
    answer: Answer
    timelines: tuple[Timeline, ...] = ()  # one for each hit, if they were wanted


class Batcher:
    """One thread owns the index; everything that touches it runs there."""

    def __init__(self, index: SearchIndex, limits: Limits, metrics: Metrics) -> None:
        self.index, self.limits, self.metrics = index, limits, metrics
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="search")
        self._waiting: list[tuple[ServedQuestion, asyncio.Future[Reply]]] = []
        self._came = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Batcher:
        self._task = asyncio.create_task(self._serve())
        return self

    async def __aexit__(self, *error: object) -> None:
        """Answer what is waiting, then end."""
        while self._waiting:
            await asyncio.sleep(0.01)
        if self._task:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        self._thread.shutdown(wait=True)

    async def ask(self, question: ServedQuestion) -> Reply:
        if len(self._waiting) >= self.limits.waiting:
            raise BusyError("too many searches are waiting; try again in a moment.")
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, future))
        self._came.set()
        return await future

    async def run(self, work: Callable[[], Result]) -> Result:
        """Run something else that needs the index, between two scans."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, _quickly, work)

    async def _serve(self) -> None:
        while True:
            await self._came.wait()
            taken = self._waiting[: self.limits.batch]
            for shared in {question.shared for question, _ in taken}:
                same = [entry for entry in taken if entry[0].shared == shared]
                await self._answer([question for question, _ in same], [future for _, future in same])
            del self._waiting[: len(taken)]
            if not self._waiting:
                self._came.clear()

    async def _answer(self, questions: list[ServedQuestion], futures: list[asyncio.Future[Reply]]) -> None:
        """Ask one by one if asking all fails, so that no query is lost through another's fault."""
        self.metrics.batched(len(questions))
        try:
            replies = await self.run(partial(self._search, questions))
        except Exception as error:
            if len(questions) > 1:
                for question, future in zip(questions, futures, strict=True):
                    await self._answer([question], [future])
            elif not futures[0].done():
                futures[0].set_exception(error)
            return
        for future, reply in zip(futures, replies, strict=True):
            if not future.done():  # its client may be gone
                future.set_result(reply)

    def _search(self, questions: list[ServedQuestion]) -> list[Reply]:
        sentences, most = [q.sentence for q in questions], max(q.top for q in questions)
        names, abstain_below, least = questions[0].shared
        answers = self.index.search_many(
            sentences, most, filter=names, abstain_below=abstain_below, not_here_below=least
        )
        return [self._reply(*pair) for pair in zip(questions, answers, strict=True)]

    def _reply(self, question: ServedQuestion, answer: Answer) -> Reply:
        """An answer cut to the hits that were asked for; others of its batch may have asked for more."""
        answer = answer.best(question.top)
        if not question.timelines:
            return Reply(answer)
        names = [hit.video for hit in answer.hits]
        return Reply(answer, tuple(self.index.timelines(question.sentence, names)))


def _quickly(work: Callable[[], Result]) -> Result:
    with one_thread_per_operation():
        return work()
