"""Clients take turns: a flood of sentences delays those who send it, not the others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from holmes.index.answer.searcher import Index
from holmes.serve.batching import Batcher, ServedQuestion, rate_cost
from holmes.serve.metrics import Metrics
from holmes.serve.routes_search import unless_gone
from holmes.serve.settings import Limits, ServeSettings
from holmes.serve.turns import BusyError, Caller, Turns
from serve_fakes import PLENTY, build, client_of, open_fake


def test_whoever_was_served_least_comes_next() -> None:
    turns: Turns[str] = Turns(100)
    for number in range(6):
        turns.put(Caller("flood"), f"flood {number}", 10.0)
    turns.put(Caller("other"), "other 0", 10.0)
    assert turns.take() == ["flood 0"]
    assert turns.take() == ["other 0"]  # though five came before it
    turns.put(Caller("third"), "third 0", 10.0)
    assert turns.take(2) == ["third 0", "flood 1"] and len(turns) == 4


def test_long_sentences_cost_more_turns_than_short_ones() -> None:
    turns: Turns[str] = Turns(1000)
    for _ in range(100):
        turns.put(Caller("long"), "long", 500.0)
        turns.put(Caller("short"), "short", 50.0)
    taken = [turns.take()[0] for _ in range(55)]
    assert taken.count("short") == 50 and taken.count("long") == 5


def test_a_client_that_was_away_has_no_turns_saved_up() -> None:
    turns: Turns[str] = Turns(1000)
    for number in range(50):
        turns.put(Caller("old"), str(number), 1.0)
    turns.take(40)
    for _ in range(10):
        turns.put(Caller("new"), "new", 1.0)
    assert turns.take(10).count("new") == 5


def test_connections_of_one_client_take_turns_too() -> None:
    turns: Turns[str] = Turns(1000)
    for number in range(20):
        turns.put(Caller("proxy", 1), f"flood {number}", 10.0)
    turns.take(5)
    turns.put(Caller("proxy", 2), "other", 10.0)
    assert "other" in turns.take(2)


def test_nobody_is_passed_over_for_ever() -> None:
    """Others who come back at once with something short do not keep a longer item waiting."""
    turns: Turns[int] = Turns(1000)
    turns.put(Caller("proxy", 0), 0, 50.0)
    for number in range(1, 6):
        turns.put(Caller("proxy", number), number, 10.0)
    taken: list[int] = []
    while 0 not in taken:
        taken += turns.take()
        turns.put(Caller("proxy", taken[-1]), taken[-1], 10.0)
        assert len(taken) < 10


def test_a_full_queue_drops_from_the_longest() -> None:
    turns: Turns[int] = Turns(4)
    for number in range(4):
        turns.put(Caller("flood"), number, 1.0)
    assert turns.put(Caller("other"), 10, 1.0) == 3 and len(turns) == 4
    with pytest.raises(BusyError):
        turns.put(Caller("flood"), 4, 1.0)
    assert sorted(turns.take(10)) == [0, 1, 2, 10]


def test_what_shares_no_scan_waits_for_the_next() -> None:
    turns: Turns[str] = Turns(100)
    for client, item in (("a", "x1"), ("b", "y1"), ("c", "x2"), ("d", "y2")):
        turns.put(Caller(client), item, 10.0)
    alike = lambda first, other: first[0] == other[0]  # noqa: E731
    assert turns.take(10, alike=alike) == ["x1", "x2"]
    assert turns.take(10, alike=alike) == ["y1", "y2"]
    for client in "abc":
        turns.put(Caller(client), f"z{client}", 10.0)
    assert turns.take(10, most_cost=20.0) == ["za", "zb"]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 50)), max_size=60), st.integers(1, 9))
def test_nothing_is_lost_or_invented(puts: Sequence[tuple[str, int]], most: int) -> None:
    turns: Turns[int] = Turns(20)
    kept: set[int] = set()
    for number, (client, cost) in enumerate(puts):
        try:
            dropped = turns.put(Caller(client), number, cost)
        except BusyError:
            continue
        kept.add(number)
        kept -= {dropped} if dropped is not None else set()
        assert len(turns) == len(kept) <= 20
    taken: list[int] = []
    while turns:
        some = turns.take(most)
        assert 0 < len(some) <= most
        taken += some
    assert sorted(taken) == sorted(kept)


class SlowIndex:
    """Answers when it is told to, and remembers what was searched together."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.entered, self.gate = threading.Semaphore(0), threading.Semaphore(0)

    def search_many(self, sentences: Sequence[str], top: int, **how: Any) -> list[Any]:
        self.batches.append(list(sentences))
        self.entered.release()
        self.gate.acquire()
        return [
            SimpleNamespace(query=sentence, hits=(), best=lambda top, q=sentence: SimpleNamespace(query=q))
            for sentence in sentences
        ]

    def readable(self, sentence: str) -> str:
        return sentence


@pytest.mark.parametrize("address", ["another", "flood"], ids=["another address", "the same address"])
def test_a_flood_of_long_sentences_delays_another_client_by_one_scan(address: str) -> None:
    """F5: eight requests of 64 sentences made another client wait 44 seconds for all 512."""
    index, limits = SlowIndex(), Limits()

    async def scenario() -> None:
        async with Batcher(index, limits, Metrics()) as batcher:  # type: ignore[arg-type]
            long = [ServedQuestion(f"{n} ".ljust(500, "x"), 10) for n in range(512)]
            flood = [
                asyncio.create_task(batcher.ask(long[at : at + 64], Caller("flood", at)))
                for at in range(0, 512, 64)
            ]
            await asyncio.to_thread(index.entered.acquire)
            other = asyncio.create_task(batcher.ask([ServedQuestion("a dog", 10)], Caller(address, 99)))
            while len(batcher.turns) < 512 - len(index.batches[0]) + 1:
                await asyncio.sleep(0)
            index.gate.release(2)
            (reply,) = await other
            assert reply.answer.query == "a dog"
            index.gate.release(10_000)
            assert [len(replies) for replies in await asyncio.gather(*flood)] == [64] * 8

    asyncio.run(scenario())
    assert "a dog" in index.batches[1]
    assert max(sum(map(len, batch)) for batch in index.batches) <= limits.batch_characters


@pytest.fixture
def index(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Index:
    return open_fake(build(tmp_path_factory.mktemp("turns")), monkeypatch)


def post(client: TestClient, count: int) -> Any:
    return client.post("/api/search", json={"sentences": ["dog"] * count, "top": 1})


def test_every_sentence_counts_as_a_request(index: Index) -> None:
    limits = replace(PLENTY, rate=0.001, burst=100)
    with client_of(index, ServeSettings(limits=limits)) as client:
        assert post(client, 64).status_code == 200  # 36 are left
        assert post(client, 40).status_code == 200  # and are overdrawn
        refused = post(client, 1)
        assert refused.status_code == 429 and int(refused.headers["retry-after"]) > 1000
        assert "too many requests" in refused.json()["error"]


def test_long_sentences_and_many_hits_count_as_several_requests(index: Index) -> None:
    with client_of(index, ServeSettings(limits=replace(PLENTY, rate=0.001, burst=100))) as client:
        flood = {"sentences": ["dog ".ljust(500, "x")] * 8, "top": 100}  # as much work as 144 questions
        codes = [client.post("/api/search", json=flood).status_code for _ in range(2)]
        assert codes == [200, 429]
    assert rate_cost(ServedQuestion("a dog runs on a beach", 10)) == 1
    assert rate_cost(ServedQuestion("x" * 500, 100)) == 18


def test_sentences_of_a_client_that_went_away_are_not_searched() -> None:
    """A flood that nobody waits for any more would delay everybody until the last of it is answered."""
    index = SlowIndex()

    async def scenario() -> None:
        async with Batcher(index, Limits(), Metrics()) as batcher:  # type: ignore[arg-type]
            gone = asyncio.Event()

            async def receive() -> dict[str, str]:
                await gone.wait()
                return {"type": "http.disconnect"}

            long = [ServedQuestion(f"{n} ".ljust(500, "x"), 10) for n in range(64)]
            request = SimpleNamespace(receive=receive)
            asked = asyncio.create_task(
                unless_gone(request, batcher.ask(long, Caller("flood")))  # type: ignore[arg-type]
            )
            await asyncio.to_thread(index.entered.acquire)
            gone.set()
            with pytest.raises(BusyError):
                await asked
            index.gate.release(10_000)
            await batcher.ask([ServedQuestion("a dog", 10)], Caller("other"))

    asyncio.run(scenario())
    assert len(index.batches) == 2 and index.batches[1] == ["a dog"]


def test_sentences_count_wherever_they_are_given(index: Index) -> None:
    limits = replace(PLENTY, rate=0.001, burst=100)
    for path, order in (
        ("/api/encode", {"sentences": ["dog"] * 64}),
        ("/api/search/by", {"sentence": "dog", "then": "cat", "leave_out": ["sea"] * 8}),
    ):
        with client_of(index, ServeSettings(limits=limits)) as client:
            codes = [client.post(path, json=order).status_code for _ in range(15)]
            assert codes[0] == 200 and codes[-1] == 429, path


def test_long_sentences_are_encoded_in_several_turns(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixty-four long ones in one turn would keep everybody waiting."""
    portions: list[int] = []
    encode = index.encode

    def counted(sentences: Sequence[str]) -> Any:
        portions.append(len(sentences))
        return encode(sentences)

    monkeypatch.setattr(index, "encode", counted)
    with client_of(index, ServeSettings(limits=PLENTY)) as client:
        portions.clear()
        long = [f"{number} " + "dog runs " * 50 for number in range(10)]
        found = client.post("/api/encode", json={"sentences": [*long, "dog", "cat"]}).json()
    assert portions == [3, 3, 3, 3] and len(found["vectors"]) == len(found["read"]) == 12
    assert found["vectors"][-1] == encode(["cat"])[0].tolist()


def test_a_sentence_that_is_too_long_says_what_was_read(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Index, "readable", lambda self, sentence: sentence[:100])
    long = "dog runs " * 20
    with client_of(index) as client:
        assert client.get("/api/search", params={"q": long}).json()["read"] == long[:100]
        assert client.get("/api/search", params={"q": "dog"}).json()["read"] is None
