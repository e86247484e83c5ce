"""What a cluster costs and withstands: an index in shards on Ray beside the same index opened directly.

A head and three nodes on this machine, each a process of its own, share its cores; so this measures what is
added to a search and how failures are survived, not how much more many machines search. The index is
synthetic, and sentences stand for random directions: no text encoder is timed. Both are asked in turn in one
run.

    python benchmarks/cluster.py                  # 6 shards of 1,000 videos of 64 vectors of 256, 2 replicas
    python benchmarks/cluster.py --part calls     # 100 shards of stubs: what calling and merging take
"""

from __future__ import annotations

import json
import logging
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from common import machine, print_table, save_json, work_folder
from small_cluster import SmallCluster
from synthetic_index import Directions, build_index

import holmes
from holmes.cluster.actors import HedgedCalls, Replica, Replicas
from holmes.cluster.calls import call, decode_call, encode
from holmes.cluster.manifest import ShardEntry, Shards
from holmes.cluster.query import merge
from holmes.cluster.shard import Shard, ShardReply, to_arrays
from holmes.cluster.write import shard_name, split_index
from holmes.index.engine.scan import make_probes
from holmes.records import QueryEmbedding

FRAMES, CLIPS, WIDTH = 32, 32, 256
TIMEOUT = 60.0  # seconds for a reply; on a busy machine, a late reply is not a failure
WARM = 50  # sentences before any is timed: Ray goes on starting processes for a while
BATCHES = (1, 16, 64, 256)  # sentences asked at once
REPEATS, CALLS = 5, 30  # times that a batch is asked, and stubs are called
PARTS = ("search", "failure", "calls")


def main(
    shards: Annotated[int, typer.Option(help="Shards of the index.")] = 6,
    videos: Annotated[int, typer.Option(help="Videos per shard, about.")] = 1000,
    queries: Annotated[int, typer.Option(help="Sentences asked one by one, of each way to search.")] = 150,
    stubs: Annotated[int, typer.Option(help="Stub shards, to measure calls alone.")] = 100,
    processes: Annotated[int, typer.Option(help="Actors that stand for these shards.")] = 4,
    part: Annotated[list[str] | None, typer.Option(help=f"Only this: {', '.join(PARTS)}.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the JSON file.")] = Path("benchmarks/results"),
) -> None:
    import ray

    wanted, result = part or list(PARTS), dict[str, Any]()
    with work_folder(None) as folder, SmallCluster(3) as cluster:
        ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
        if "calls" in wanted:
            result["calls"] = measure_calls(ray, stubs, processes)
            print_table(f"Calls of {stubs} stubs in {processes} processes, ms", result["calls"])
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
        folder / "shards", ray=cluster.address, cache=folder / "cache", patience=TIMEOUT, device="cpu"
    )
    for index in (direct, on_ray):
        index.embedder = Directions(WIDTH)
        index.search("a first sentence")
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
        for batch in BATCHES:
            sentences = [f"batch {batch} {n}" for n in range(batch)]
            best = min(timed(index.search_many, sentences)[0] for _ in range(REPEATS))
            row[f"batches of {batch}"] = batch / best
        rows.append(row)
    added = statistics.median(b - a for a, b in zip(times["direct"], times["on Ray"], strict=True))
    rows.append(
        {"way": "added (median of differences)", "median": added} | dict.fromkeys(list(rows[0])[2:], "")
    )
    return rows


def measure_failures(direct: Any, on_ray: Any, cluster: SmallCluster) -> list[dict[str, Any]]:
    """A node is killed, then one is frozen: what people who search notice, until all replicas are back."""
    sentences = [f"sentence {number}" for number in range(20)]
    expected = {sentence: plain(direct.search(sentence)) for sentence in sentences}

    rows = []
    for what in ("killed", "frozen"):
        victim = cluster.nodes[0]
        with ExitStack() as until_then:

            def strike(what: str = what, victim: Any = victim, until_then: ExitStack = until_then) -> str:
                if what == "killed":
                    cluster.kill(victim)
                else:
                    until_then.enter_context(cluster.frozen(victim))
                return str(victim.node_id)

            rows.append({"node": what} | under_queries(on_ray, sentences, expected, strike))
        print(json.dumps(rows[-1]), flush=True)
        cluster.restore(3)
    return rows


def under_queries(
    index: Any, sentences: list[str], expected: dict[str, Any], strike: Callable[[], str]
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
    while len(delays) < len(sentences):
        time.sleep(0.02)
    before = actor_nodes(index)
    lost = strike()
    struck = time.perf_counter()
    while lost in (now := actor_nodes(index)) or len(now) < len(before):
        time.sleep(0.1)
    back = time.perf_counter() - struck
    stop.set()
    thread.join()
    return {
        "queries": len(delays),
        "wrong": len(wrong),
        "failed": len(failed),
        "slowest s": max(delays),
        "replicas back after s": back,
    }


def actor_nodes(index: Any) -> list[str]:
    """The nodes of all replicas whose shards are open."""
    import ray

    every = index.current.client._shards.values()
    calls = [replica.actor.__ray_call__.remote(node_if_open) for own in every for replica in own.replicas]
    nodes = []
    for reply in ray.wait(calls, num_returns=len(calls), timeout=1.0)[0]:
        with suppress(ray.exceptions.RayError):
            nodes.append(ray.get(reply))
    return [node for node in nodes if node]


def node_if_open(shard: Any) -> str:
    import ray

    return str(ray.get_runtime_context().get_node_id()) if shard._open else ""


def measure_calls(ray: Any, stubs: int, processes: int) -> list[dict[str, Any]]:
    """Calls of many shards that reply at once: sending, receiving and merging, without any search."""
    actors = [ray.remote(Stub).options(num_cpus=0).remote() for _ in range(processes)]
    ray.get([actor.ready.remote() for actor in actors])
    entries = tuple(ShardEntry(shard_name(n), "0" * 64, 1, 1, 1.0, 1, 1) for n in range(stubs))
    shards = Shards({}, {}, WIDTH, CLIPS, 1, entries)
    replicas = {
        entry.name: Replicas(entry.name, None, [Replica(actors[at % processes])])
        for at, entry in enumerate(entries)
    }
    rows = []
    for queries in (1, 64):
        probes = to_arrays(make_probes(QueryEmbedding(torch.randn(queries, WIDTH)), 0.4, 0.6))
        calls = {entry.name: call(Shard.nearest, probes, 10, 128, None) for entry in entries}
        calling, merging = [], []
        for _ in range(CALLS):
            seconds, replies = timed(HedgedCalls(replicas, shards, calls, TIMEOUT, 5.0).run)
            calling.append(1e3 * seconds)
            by_number = {number: replies[entry.name] for number, entry in enumerate(entries)}
            merging.append(1e3 * timed(merge, by_number, 10, 128)[0])
        rows.append(
            {
                "sentences": queries,
                "calling, median": statistics.median(calling),
                "calling, p99": float(np.quantile(calling, 0.99)),
                "merging, median": statistics.median(merging),
            }
        )
    for actor in actors:
        ray.kill(actor)
    return rows


class Stub:
    """A shard that answers at once, with as much data as a real one."""

    def ready(self) -> None: ...

    def answer(self, own: bytes, shared: bytes) -> bytes:
        _, request = decode_call(own, shared)
        probes, top, candidates, _ = request.arguments
        return encode(self.nearest(len(probes[0]), top, candidates))

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
