"""Let concurrent queries share scans: queries that arrive during a scan are answered by the next.

No query waits for others to arrive: one that finds the thread idle is searched at once. Clients take turns,
so a client with many or long sentences waits for its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from holmes.base.parallel import one_thread_per_operation
from holmes.index.answer.answers import Answer, Timeline
from holmes.index.answer.base import SearchIndex
from holmes.serve.metrics import Metrics
from holmes.serve.settings import Limits
from holmes.serve.turns import BusyError, Caller, Turns

Result = TypeVar("Result")
# Costs are counted in characters of a sentence, which its encoder reads.
HIT_COST, TIMELINE_COST = 2.0, 10.0  # of a hit's moments, and of its timeline
SCAN_COST = 100.0  # of a pass over the index
FEW = 10  # hits
LONG, LONG_COST = 100, 4.0  # characters of a sentence, and what each costs: few long ones share a scan
ORDINARY_COST = LONG + FEW * HIT_COST  # of the largest question that counts as one request
ALWAYS_READ = 60  # characters that no model cuts off


def reading_cost(sentence: str) -> float:
    return len(sentence) * (LONG_COST if len(sentence) > LONG else 1.0)


def portions(sentences: Sequence[str], most: float) -> list[list[str]]:
    """Sentences in runs that cost `most` each; one that costs more is alone."""
    runs: list[list[str]] = []
    spent = most
    for sentence in sentences:
        cost = reading_cost(sentence)
        if spent + cost > most:
            runs.append([])
            spent = 0.0
        runs[-1].append(sentence)
        spent += cost
    return runs


@dataclass(frozen=True)
class ServedQuestion:
    """A sentence, how many hits, and which videos may be among them; with their timelines if wanted."""

    sentence: str
    top: int
    names: frozenset[str] | None = None
    timelines: bool = False
    abstain_below: float | None = None
    not_here_below: float | None = None
    expect_missing: float | None = None

    @property
    def shared(self) -> tuple[Any, ...]:
        """What questions must have in common to be answered in one scan."""
        # Moments are found for as many hits as the one with most wants: few do not pay for many.
        # Nor do short sentences wait until long ones are encoded.
        judged = self.abstain_below, self.not_here_below, self.expect_missing
        return self.top <= FEW, self.is_long, *judged, self.names

    @property
    def is_long(self) -> bool:
        return len(self.sentence) > LONG

    @property
    def cost(self) -> float:
        hit = HIT_COST + TIMELINE_COST * self.timelines
        return reading_cost(self.sentence) + self.top * hit


def rate_cost(question: ServedQuestion) -> int:
    """As how many requests a question counts: one, unless it is long, has many hits or timelines."""
    return max(1, round(question.cost / ORDINARY_COST))


@dataclass(frozen=True)
class Reply:
    answer: Answer
    timelines: tuple[Timeline, ...] = ()  # one for each hit, if they were wanted
    read: str | None = None  # the beginning of a sentence that is too long for the model


@dataclass(frozen=True, eq=False)
class _Waiting:
    """A question, or other work that needs the index, and where its result goes."""

    task: ServedQuestion | Callable[[], Any]
    future: asyncio.Future[Any]

    def shares_scan(self, other: _Waiting) -> bool:
        mine, its = self.task, other.task
        return (
            isinstance(mine, ServedQuestion) and isinstance(its, ServedQuestion) and mine.shared == its.shared
        )


class Batcher:
    """One thread owns the index; everything that touches it runs there."""

    def __init__(self, index: SearchIndex, limits: Limits, metrics: Metrics) -> None:
        self.index, self.limits, self.metrics = index, limits, metrics
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="search")
        self.turns: Turns[_Waiting] = Turns(limits.waiting)
        self._came, self._closing = asyncio.Event(), False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Batcher:
        self._task = asyncio.create_task(self._serve())
        return self

    async def __aexit__(self, *error: object) -> None:
        """Answer what is waiting, then end."""
        self._closing = True
        self._came.set()
        if self._task:
            await self._task
        self._thread.shutdown(wait=True)

    async def ask(self, questions: Sequence[ServedQuestion], caller: Caller) -> list[Reply]:
        """The replies, in order; the client's other questions are dropped if one of these fails."""
        futures: list[asyncio.Future[Reply]] = []
        try:
            for question in questions:
                futures.append(self._wait(caller, question, question.cost))
            return list(await asyncio.gather(*futures))
        finally:
            for future in futures:
                future.cancel()

    async def do(self, work: Callable[[], Result], caller: Caller, sentences: Sequence[str] = ()) -> Result:
        """Run other work on the index, which reads these sentences, when it is this client's turn."""
        result: Result = await self._wait(caller, work, SCAN_COST + sum(map(reading_cost, sentences)))
        return result

    async def encode(self, sentences: Sequence[str], caller: Caller) -> tuple[list[list[float]], list[str]]:
        """The vector of each sentence and what the model reads of it, in turns as long as a scan at most."""
        vectors: list[list[float]] = []
        for some in portions(sentences, self.limits.batch_characters):
            vectors += await self.do(partial(self._encode, some), caller, some)
        return vectors, await self.run(lambda: [self.index.readable(each) for each in sentences])

    async def run(self, work: Callable[[], Result]) -> Result:
        """Run the server's own work on the index, between two scans."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, _quickly, work)

    def _wait(
        self, caller: Caller, task: ServedQuestion | Callable[[], Any], cost: float
    ) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        dropped = self.turns.put(caller, _Waiting(task, future), cost)
        if dropped is not None and not dropped.future.done():
            dropped.future.set_exception(
                BusyError("too many searches are waiting, most of them yours; ask for fewer at a time.")
            )
        self._came.set()
        return future

    async def _serve(self) -> None:
        while not (self._closing and not self.turns):
            if not self.turns:
                self._came.clear()
                await self._came.wait()
                continue
            taken = self.turns.take(
                self.limits.batch, self.limits.batch_characters, _Waiting.shares_scan, SCAN_COST
            )
            await self._answer([each for each in taken if not each.future.done()])

    async def _answer(self, waiting: list[_Waiting]) -> None:
        """Ask one by one if asking all fails, so that no query is lost through another's fault."""
        if not waiting:
            return
        questions = [each.task for each in waiting if isinstance(each.task, ServedQuestion)]
        try:
            if questions:
                self.metrics.batched(len(questions))
                results: Sequence[Any] = await self.run(partial(self._search, questions))
            else:
                results = [await self.run(waiting[0].task)]  # type: ignore[arg-type]
        except Exception as error:
            if len(waiting) > 1:
                for each in waiting:
                    await self._answer([each])
            elif not waiting[0].future.done():
                waiting[0].future.set_exception(error)
            return
        for each, result in zip(waiting, results, strict=True):
            if not each.future.done():  # its client may be gone
                each.future.set_result(result)

    def _encode(self, sentences: Sequence[str]) -> list[list[float]]:
        return self.index.encode(sentences).tolist()  # type: ignore[no-any-return]

    def _search(self, questions: list[ServedQuestion]) -> list[Reply]:
        first = questions[0]
        answers = self.index.search_many(
            [question.sentence for question in questions],
            max(question.top for question in questions),
            filter=first.names,
            abstain_below=first.abstain_below,
            not_here_below=first.not_here_below,
            expect_missing=first.expect_missing,
        )
        return [self._reply(*pair) for pair in zip(questions, answers, strict=True)]

    def _reply(self, question: ServedQuestion, answer: Answer) -> Reply:
        """An answer cut to the hits that were asked for; others of its batch may have asked for more."""
        answer, sentence = answer.best(question.top), question.sentence
        read = self.index.readable(sentence) if len(sentence) > ALWAYS_READ else sentence
        names = [hit.video for hit in answer.hits] if question.timelines else []
        timelines = tuple(self.index.timelines(sentence, names)) if names else ()
        return Reply(answer, timelines, None if read == sentence else read)


def _quickly(work: Callable[[], Result]) -> Result:
    with one_thread_per_operation():
        return work()
