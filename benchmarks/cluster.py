"""What a cluster costs and withstands: an index in shards on Ray beside the same index opened directly.

A head and three nodes on this machine, each a process of its own, share its cores; so this measures what is
added to a search and how failures are survived, not how much more many machines search. The index is
synthetic, and sentences stand for random directions: no text encoder is timed. Both are asked in turn in one
run.

    python benchmarks/cluster.py                  # 6 shards of 1,000 videos of 64 vectors of 256, 2 copies
    python benchmarks/cluster.py --part gather    # 100 shards of stubs: what the gather itself takes
"""

from __future__ import annotations

import json
import logging
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from common import machine, print_table, save_json, work_folder
from directions import Directions
from synthetic_index import build_index

import holmes
from holmes.cluster.connect import SmallCluster
from holmes.cluster.hedging import Asking, Copies, Copy
from holmes.cluster.manifest import ShardEntry, Shards
from holmes.cluster.merge import merge
from holmes.cluster.shard import ShardReply, sent
from holmes.cluster.wire import sealed, unsealed
from holmes.cluster.write import shard_name, split_index
from holmes.index.engine.scan import make_probes
from holmes.records import QueryEmbedding

FRAMES, CLIPS, WIDTH = 32, 32, 256
PATIENCE = 60.0  # seconds for an answer; on a busy machine, silence is not a failure
WARM = 50  # sentences before any is timed: Ray goes on starting processes for a while
PARTS = ("search", "failure", "gather")


def main(
    shards: Annotated[int, typer.Option(help="Shards of the index.")] = 6,
    videos: Annotated[int, typer.Option(help="Videos per shard, about.")] = 1000,
    queries: Annotated[int, typer.Option(help="Sentences asked one by one, of each way to search.")] = 150,
    stubs: Annotated[int, typer.Option(help="Shards of the gather alone.")] = 100,
    processes: Annotated[int, typer.Option(help="Actors that stand for these shards.")] = 4,
    part: Annotated[list[str] | None, typer.Option(help=f"Only this: {', '.join(PARTS)}.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the JSON file.")] = Path("benchmarks/results"),
) -> None:
    import ray

    wanted, result = part or list(PARTS), dict[str, Any]()
    with work_folder(None) as folder, SmallCluster(3) as cluster:
        ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
        if "gather" in wanted:
            result["gather"] = measure_gather(ray, stubs, processes)
            print_table(f"The gather of {stubs} stubs in {processes} processes, ms", result["gather"])
        if {"search", "failure"} & set(wanted):
            build_index(folder / "index", shards * videos, FRAMES, CLIPS, WIDTH)
            split_index(folder / "index", folder / "shards", shards)
            with opened(folder, cluster) as (direct, on_ray):
                if "search" in wanted:
                    result["search"] = measure_search(direct, on_ray, queries)
                    print_table("Sentences one by one, ms; and in batches, per second", result["search"])
                if "failure" in wanted:
                    result["failure"] = measure_failures(direct, on_ray, cluster)
                    print_table("A node fails under queries", result["failure"])
        ray.shutdown()
    about = {"machine": machine(torch.device("cpu")), "shards": shards, "videos": shards * videos}
    save_json(out / "cluster.json", about | result)


@contextmanager
def opened(folder: Path, cluster: SmallCluster) -> Iterator[tuple[Any, Any]]:
    """The index itself, and its shards on the nodes, ready to answer."""
    direct: Any = holmes.open_index(folder / "index", device="cpu")
    on_ray: Any = holmes.open_index(
        folder / "shards", ray=cluster.address, cache=folder / "cache", patience=PATIENCE, device="cpu"
    )
    for index in (direct, on_ray):
        index.embedder = Directions(WIDTH)
        index.search("a first look")
    try:
        yield direct, on_ray
    finally:
        on_ray.close()


def measure_search(direct: Any, on_ray: Any, queries: int) -> list[dict[str, Any]]:
    times: dict[str, list[float]] = {"direct": [], "on Ray": []}
    ways = {"direct": direct, "on Ray": on_ray}
    for number in range(WARM):
        for index in ways.values():
            index.search(f"before {number}")
    for number in range(queries):
        found = {}
        for way, index in ways.items():
            seconds, found[way] = timed(index.search, f"sentence {number}")
            times[way].append(1e3 * seconds)
        assert plain(found["direct"]) == plain(found["on Ray"]), "the answers differ"
    rows: list[dict[str, Any]] = []
    for way, index in ways.items():
        row = {
            "way": way,
            "median": statistics.median(times[way]),
            "p99": float(np.quantile(times[way], 0.99)),
        }
        for batch in (1, 16, 64, 256):
            sentences = [f"batch {batch} {n}" for n in range(batch)]
            best = min(timed(index.search_many, sentences)[0] for _ in range(5))
            row[f"batches of {batch}"] = batch / best
        rows.append(row)
    added = statistics.median(b - a for a, b in zip(times["direct"], times["on Ray"], strict=True))
    rows.append(
        {"way": "added (median of differences)", "median": added} | dict.fromkeys(list(rows[0])[2:], 0.0)
    )
    return rows


def measure_failures(direct: Any, on_ray: Any, cluster: SmallCluster) -> list[dict[str, Any]]:
    """A node is killed, then one is frozen: what people who search notice, until all copies are back."""
    sentences = [f"sentence {number}" for number in range(20)]
    expected = {sentence: plain(direct.search(sentence)) for sentence in sentences}

    rows = []
    for what in ("killed", "frozen"):
        with ExitStack() as until_then:
            if what == "killed":
                strike = partial(cluster.kill, cluster.nodes[0])
            else:
                strike = partial(until_then.enter_context, cluster.frozen(cluster.nodes[0]))
            rows.append({"node": what} | under_queries(on_ray, sentences, expected, strike))
        print(json.dumps(rows[-1]), flush=True)
        cluster.restore(3)
    return rows


def under_queries(
    index: Any, sentences: list[str], expected: dict[str, Any], strike: Callable[[], None]
) -> dict[str, Any]:
    delays, wrong, failed, stop = list[float](), list[str](), list[str](), threading.Event()

    def ask() -> None:
        while not stop.is_set():
            for sentence in sentences:
                began = time.perf_counter()
                try:
                    if plain(index.search(sentence)) != expected[sentence]:
                        wrong.append(sentence)
                except Exception as error:
                    failed.append(repr(error))
                delays.append(time.perf_counter() - began)

    thread = threading.Thread(target=ask)
    thread.start()
    time.sleep(2)
    strike()
    struck = time.perf_counter()
    while copies_ready(index) == total_copies(index):
        time.sleep(0.02)
    noticed = time.perf_counter() - struck
    while copies_ready(index) < total_copies(index):
        time.sleep(0.02)
    back = time.perf_counter() - struck
    stop.set()
    thread.join()
    return {
        "queries": len(delays),
        "wrong": len(wrong),
        "failed": len(failed),
        "slowest s": max(delays),
        "noticed after s": noticed,
        "copies back after s": back,
    }


def copies_ready(index: Any) -> int:
    shards = index.now.shards
    return sum(len(index.now.fleet._shards[entry.name].ready(entry.sha256)) for entry in shards.shards)


def total_copies(index: Any) -> int:
    return sum(len(copies.copies) for copies in index.now.fleet._shards.values())


def measure_gather(ray: Any, stubs: int, processes: int) -> list[dict[str, Any]]:
    """Questions to many shards that answer at once: asking, hearing and merging, without any search."""
    actors = [ray.remote(Stub).options(num_cpus=0).remote() for _ in range(processes)]
    ray.get([actor.ready.remote() for actor in actors])
    entries = tuple(ShardEntry(shard_name(n), "0" * 64, 1, 1, 1.0, 1, 1) for n in range(stubs))
    shards = Shards({}, {}, WIDTH, CLIPS, 1, entries)
    held = frozenset({"0" * 64})
    copies = {
        entry.name: Copies(entry.name, None, [Copy(actors[at % processes], held)])
        for at, entry in enumerate(entries)
    }
    rows = []
    for queries in (1, 64):
        probes = sent(make_probes(QueryEmbedding(torch.randn(queries, WIDTH)), 0.4, 0.6))
        calls = {entry.name: (probes, 10, 128, None) for entry in entries}
        asking, merging = [], []
        for _ in range(30):
            question = Asking(copies, shards, "nearest", calls, PATIENCE, 5.0)
            seconds, replies = timed(question.replies)
            asking.append(1e3 * seconds)
            at = {place: replies[entry.name] for place, entry in enumerate(entries)}
            merging.append(1e3 * timed(merge, at, 10, 128)[0])
        rows.append(
            {
                "sentences": queries,
                "asking, median": statistics.median(asking),
                "asking, p99": float(np.quantile(asking, 0.99)),
                "merging, median": statistics.median(merging),
            }
        )
    for actor in actors:
        ray.kill(actor)
    return rows


class Stub:
    """A shard that answers at once, with as much data as a real one."""

    def ready(self) -> None: ...

    def answer(self, question: bytes, shared: bytes) -> bytes:
        _, _, (top, candidates, _) = unsealed(question)
        (probes,) = unsealed(shared)
        return sealed(self.nearest(len(probes[0]), top, candidates))

    def nearest(self, queries: int, top: int, candidates: int) -> ShardReply:
        rng = np.random.default_rng(0)
        score_QK = np.sort(rng.random((queries, candidates)))[:, ::-1]
        number_QK = rng.integers(2**40, size=(queries, candidates))
        branch_QK, sums_Q = score_QK.astype(np.float32), np.ones(queries, np.int64)
        return ShardReply(
            part_QK=number_QK,
            score_QK=score_QK,
            frame_QK=branch_QK,
            clip_QK=branch_QK,
            video_QK=number_QK,
            video_parts_QK=np.ones_like(number_QK),
            key_QK=number_QK,
            hit_QH=number_QK[:, :top],
            hit_score_QH=score_QK[:, :top],
            hit_key_QH=number_QK[:, :top],
            count=1000,
            sum_Q=sums_Q,
            squares_Q=sums_Q,
        )


def timed(work: Callable[..., Any], *order: Any) -> tuple[float, Any]:
    began = time.perf_counter()
    result = work(*order)
    return time.perf_counter() - began, result


def plain(answer: Any) -> Any:
    return answer.to_dict()


if __name__ == "__main__":
    typer.run(main)
