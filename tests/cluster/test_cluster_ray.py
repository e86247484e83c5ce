"""A real cluster of three nodes on this machine: the answers of one index, whatever is killed or frozen."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
import typer

pytest.importorskip("ray")
pytest.importorskip("av")
import ray
from small_cluster import SmallCluster, children_of

import holmes
from holmes.base.files import read_json
from holmes.cli.main import main
from holmes.cluster import actors
from holmes.cluster.actors import RayClient, Replica
from holmes.cluster.extract import executor_at
from holmes.cluster.index import ShardedIndex
from holmes.cluster.jobs import jobs_at_once, run_jobs_at
from holmes.cluster.location import cached_folder
from holmes.cluster.write import build_shards, publish_shards, shard_name, split_index
from holmes.errors import HolmesError
from holmes.index.answer.answers import Answer
from holmes.index.embedders.zero_shot import ZeroShot
from holmes.index.ingest.builder import build_index
from holmes.index.storage.manifest import CODES
from holmes.index.storage.store import IndexStore
from holmes.index.storage.writer import IndexWriter
from holmes.media.extraction import extract
from holmes.media.feature_folder import FeatureFolder
from index_fakes import FakeJoint, known_encoders
from media_files import gray_video
from ray_hook import FOLDER, Shades, node, notes, process, snapshots
from shard_fakes import SENTENCES, bits, make_index
from waiting import LONG, wait_for

SHARDS = 3


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all nodes know."""
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="module")
def cluster(shared: Path) -> Iterator[SmallCluster]:
    os.environ[FOLDER] = str(shared)
    tests = str(Path(__file__).parents[1] / "support")  # where nodes find the hook
    os.environ["PYTHONPATH"] = os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")])
    started = SmallCluster(3)
    hook = {"worker_process_setup_hook": "ray_hook.setup"}
    ray.init(address=started.address, log_to_driver=False, logging_level="ERROR", runtime_env=hook)
    yield started
    ray.shutdown()
    started.close()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    split_index(make_index(folder), folder / "shards", SHARDS)
    return folder


@pytest.fixture(autouse=True)
def fake_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    known_encoders(monkeypatch, FakeJoint())
    monkeypatch.setattr("holmes.media.extraction.load_visual", lambda name, **how: Shades())


@pytest.fixture(scope="module")
def searched(cluster: SmallCluster, made: Path) -> Iterator[ShardedIndex]:
    """The shards on the nodes, two replicas of each."""
    with pytest.MonkeyPatch.context() as patch:
        known_encoders(patch, FakeJoint())
        opened = holmes.open_index(
            made / "shards", ray=cluster.address, cache=made / "cache", patience=LONG, device="cpu"
        )
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def expected(made: Path) -> dict[str, str]:
    with pytest.MonkeyPatch.context() as patch:
        known_encoders(patch, FakeJoint())
        return answers_of(holmes.open_index(made / "index", device="cpu"))


def answers_of(index: Any) -> dict[str, str]:
    return {sentence: bits(index.search(sentence)) for sentence in SENTENCES}


def ray_client(index: ShardedIndex) -> RayClient:
    client = index.current.client
    assert isinstance(client, RayClient)
    return client


def replicas_of(index: ShardedIndex, shard: str) -> list[Replica]:
    return ray_client(index)._shards[shard].replicas


def all_available(index: ShardedIndex) -> bool:
    shards = [entry.name for entry in index.current.shards.shards]
    return all(replica.is_available() for shard in shards for replica in replicas_of(index, shard))


def on_each(replicas: list[Replica], work: Callable[[Any], Any]) -> list[Any]:
    """What a function says of each actor, in its process."""
    return list(ray.get([replica.actor.__ray_call__.remote(work) for replica in replicas], timeout=LONG))


def nodes_of(index: ShardedIndex, shard: str) -> list[str]:
    """The nodes of a shard's replicas; none while one of them is being restarted."""
    with suppress(ray.exceptions.RayActorError):
        return on_each(replicas_of(index, shard), node)
    return []


@contextmanager
def frozen(replicas: list[Replica]) -> Iterator[None]:
    """Processes that are there and do nothing, like those of a machine that hangs."""
    processes = on_each(replicas, process)
    for number in processes:
        os.kill(number, signal.SIGSTOP)
    try:
        yield
    finally:
        for number in processes:
            os.kill(number, signal.SIGCONT)


def test_answers_on_a_cluster_are_those_of_one_index(
    searched: ShardedIndex, made: Path, expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert answers_of(searched) == expected
    monkeypatch.setattr(actors, "LARGE", 1)  # what all shards are sent is stored once
    whole = holmes.open_index(made / "index", device="cpu")
    for how in ({"top": 200}, {"filter": "*film*1.mp4"}, {"not_here_below": 0.5}):
        ours, theirs = searched.search_many(SENTENCES, **how), whole.search_many(SENTENCES, **how)
        assert [bits(answer) for answer in ours] == [bits(answer) for answer in theirs]
    assert searched.like("/films/film004.mp4", 9.0) == whole.like("/films/film004.mp4", 9.0)
    assert searched.durations == whole.durations
    placed = [nodes_of(searched, shard_name(number)) for number in range(SHARDS)]
    assert all(len(set(nodes)) == 2 for nodes in placed), "replicas are on different nodes"
    per_node = Counter(node for nodes in placed for node in nodes)
    assert sorted(per_node.values()) == [2, 2, 2], "and nodes have equally many"


def test_a_frozen_replica_holds_nothing_up(searched: ShardedIndex, expected: dict[str, str]) -> None:
    replicas = replicas_of(searched, shard_name(1))
    wait_for(lambda: all_available(searched))
    with frozen(replicas[:1]):
        assert answers_of(searched) == expected
        assert replicas[0].unanswered, "it was called, and another one too"
        for _ in range(4):  # and it is not called first any more
            assert ray_client(searched)._shards[shard_name(1)].in_order()[0] is replicas[1]
    wait_for(lambda: replicas[0].is_available())
    assert answers_of(searched) == expected


def test_a_shard_that_does_not_answer_is_named(searched: ShardedIndex, expected: dict[str, str]) -> None:
    wait_for(lambda: all_available(searched))
    client, shard = ray_client(searched), shard_name(2)
    lost = IndexStore.open(searched.location.folder / shard)
    searched.search(SENTENCES[0])  # the first search asks every shard what it holds
    client.timeout = 1.0
    try:
        with frozen(replicas_of(searched, shard)):
            while True:  # on a busy machine others are late too, or all
                with suppress(HolmesError):
                    answer = searched.search(SENTENCES[0])
                    assert shard in answer.missing
                    if answer.missing == (shard,):
                        break
                assert client.timeout < LONG
                client.timeout *= 2
        said = f"This covers only the shards that answered: {shard} did not."
        assert said in answer.diagnosis.explanation
        assert all(hit.video not in lost for hit in answer.hits)
    finally:
        client.timeout = LONG
    assert answers_of(searched) == expected


class Stream:
    """Somebody who asks one sentence after the other until told to stop."""

    def __init__(self, index: ShardedIndex) -> None:
        self.index, self.answers, self.errors = index, list[Answer](), list[BaseException]()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stop.is_set():
            for sentence in SENTENCES:
                try:
                    self.answers.append(self.index.search(sentence))
                except BaseException as error:
                    self.errors.append(error)

    def __enter__(self) -> Stream:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()


def test_a_killed_node_costs_no_answer_and_its_replicas_come_back(
    cluster: SmallCluster, searched: ShardedIndex, expected: dict[str, str]
) -> None:
    wait_for(lambda: all_available(searched))
    victim = cluster.nodes[0]
    on_victim = [shard_name(n) for n in range(SHARDS) if victim.node_id in nodes_of(searched, shard_name(n))]
    assert on_victim, "every node has some replicas"
    with Stream(searched) as stream:
        wait_for(lambda: len(stream.answers) > 20)
        cluster.kill(victim)
        for shard in on_victim:  # they are restarted elsewhere, and open their shards with the next call
            wait_for(lambda shard=shard: nodes_of(searched, shard) and all_open(searched, shard))
        asked = len(stream.answers)
        wait_for(lambda: len(stream.answers) > asked + 20)
    assert stream.errors == []
    assert [a for a in stream.answers if a.missing or bits(a) != expected[a.query]] == []
    for shard in on_victim:
        nodes = nodes_of(searched, shard)
        assert victim.node_id not in nodes and len(set(nodes)) == 2
    cluster.restore(3)


def all_open(index: ShardedIndex, shard: str) -> bool:
    digest = index.current.shards[shard].sha256
    return all(digest in found for found in on_each(replicas_of(index, shard), snapshots))


def test_a_new_snapshot_is_used_without_a_mixed_answer(
    searched: ShardedIndex, made: Path, expected: dict[str, str], tmp_path: Path
) -> None:
    wait_for(lambda: all_available(searched))
    shards = made / "shards"
    with Stream(searched) as stream:
        wait_for(lambda: len(stream.answers) > 20)
        for number in range(SHARDS):
            with IndexWriter(shards / shard_name(number)) as writer:
                writer.remove(list(writer.store.positions)[::3])
                writer.compact()
        assert not searched.refresh(), "nothing changes before all of it is published"
        publish_shards(shards)
        wait_for(searched.refresh)
        asked = len(stream.answers)
        wait_for(lambda: len(stream.answers) > asked + len(SENTENCES))
    after = answers_of(holmes.open_index(shards, device="cpu"))
    assert stream.errors == [] and after != expected
    said = [bits(answer) for answer in stream.answers]
    wrong = [
        a
        for a, text in zip(stream.answers, said, strict=True)
        if text not in (expected[a.query], after[a.query])
    ]
    assert wrong == []
    assert answers_of(searched) == after
    replicas, shards_now = replicas_of(searched, shard_name(0)), searched.current.shards
    assert all(len(found) == 2 for found in on_each(replicas, snapshots)), "calls under way need the old one"
    ray_client(searched)._release_now(shards_now)
    now = [shards_now[shard_name(0)].sha256]
    wait_for(lambda: on_each(replicas, snapshots) == [now, now])
    assert answers_of(searched) == after
    cached = cached_folder(searched.location, shard_name(0), made / "cache")
    wait_for(lambda: len(list(cached.glob("sealed-*.json"))) == 1)


def test_a_corrupted_shard_is_refused_and_named(cluster: SmallCluster, made: Path, tmp_path: Path) -> None:
    shards = tmp_path / "shards"
    split_index(made / "index", shards, 1)
    file = next((shards / shard_name(0)).rglob(CODES))
    content = bytearray(file.read_bytes())
    content[11] ^= 4
    file.write_bytes(bytes(content))
    with pytest.raises(HolmesError, match=rf"{shard_name(0)}/segments/\d+/{CODES} is damaged"):
        holmes.open_index(shards, ray=cluster.address, cache=tmp_path / "cache", copies=1)


def test_more_replicas_than_nodes_are_refused(cluster: SmallCluster, made: Path) -> None:
    with pytest.raises(HolmesError, match="9 replicas of a shard need 9 nodes with CPUs, the cluster has 3"):
        holmes.open_index(made / "shards", ray=cluster.address, copies=9)


def test_jobs_report_ask_and_end_in_every_way(cluster: SmallCluster) -> None:
    address = cluster.address
    assert jobs_at_once(address) == 3
    reports = []
    jobs = iter([("a", 1), ("b", "fail"), ("c", 2), ("d", "die"), ("e", 3)])
    found = {
        finished.job: finished
        for finished in run_jobs_at(
            address,
            "ray_jobs:worker",
            {"factor": 10},
            jobs,
            2,
            lambda asked, send: send(100 * asked["of"]),
            lambda job, value: reports.append((job, value)),
        )
    }
    assert {job: one.result for job, one in found.items()} == {
        "a": 110,
        "b": None,
        "c": 220,
        "d": None,
        "e": 330,
    }
    assert sorted(reports) == [("a", 1), ("c", 2), ("e", 3)]
    assert found["b"].failure == "this job cannot be done" and found["b"].ending is None
    assert "its node died" in found["d"].failure and found["d"].ending is not None


# ---------------------------------------------------------------------- extraction


@pytest.fixture
def films(tmp_path: Path) -> Path:
    folder = tmp_path / "films"
    folder.mkdir()
    for number in range(9):
        levels = [20 * number + 10 * second for second in range(6)]
        gray_video(folder / f"film{number}.mp4", levels, [float(second) for second in range(6)])
    return folder


@pytest.fixture
def notebook(shared: Path) -> Iterator[Path]:
    yield shared
    for name in ("begun", "done", "wait"):
        shutil.rmtree(shared / name, ignore_errors=True)
        (shared / name).unlink(missing_ok=True)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}


def test_extraction_on_a_cluster_gives_the_bytes_of_one_machine(
    cluster: SmallCluster,
    films: Path,
    notebook: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A broken file costs that file, one that crashes its worker too; run again, it does what is left."""
    (films / "broken.mp4").write_bytes(b"no film at all")
    shutil.copy(films / "film1.mp4", films / "crash.mp4")
    extract([films / f"film{n}.mp4" for n in range(9)], tmp_path / "here", Shades())
    words = ["holmes", "extract", str(films), "--out", str(tmp_path / "there"), "--ray", cluster.address]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err
    assert ended.value.code == 1 and "9 videos extracted in" in said and "2 failed" in said
    assert f"left out {films / 'broken.mp4'}: " in said
    assert f"left out {films / 'crash.mp4'}: the decoder or the encoder crashed" in said
    assert contents(tmp_path / "there") == contents(tmp_path / "here")
    begun = notes(notebook / "begun")
    assert sum(name == "crash.mp4" for name, _ in begun) == 3
    assert sorted(name for name, _ in notes(notebook / "done")) == [f"film{n}.mp4" for n in range(9)]
    (films / "crash.mp4").unlink()
    again = extract([films], tmp_path / "there", "shades", executor=executor_at(cluster.address))
    assert len(again.reused) == 9 and not again.extracted and len(again.failures) == 1
    assert len(notes(notebook / "done")) == 9


def test_a_killed_nodes_videos_are_done_elsewhere_once_each(
    cluster: SmallCluster, films: Path, notebook: Path, tmp_path: Path
) -> None:
    extract([films], tmp_path / "here", Shades())
    (notebook / "wait").touch()
    summary: list[Any] = []

    def work() -> None:
        summary.append(extract([films], tmp_path / "there", "shades", executor=executor_at(cluster.address)))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        wait_for(lambda: len({node for _, node in notes(notebook / "begun")}) == len(cluster.nodes))
        victim = cluster.nodes[-1]
        there = [name for name, node in notes(notebook / "begun") if node == victim.node_id]
        cluster.kill(victim)
    finally:
        (notebook / "wait").unlink()
        thread.join(LONG)
    assert summary and not summary[0].failures and len(summary[0].extracted) == 9
    assert contents(tmp_path / "there") == contents(tmp_path / "here")
    done = notes(notebook / "done")
    assert sorted(name for name, _ in done) == [f"film{n}.mp4" for n in range(9)], "each once"
    assert there and all(node != victim.node_id for name, node in done if name in there)
    cluster.restore(3)


def test_an_index_built_on_a_cluster_is_the_one_built_here(
    cluster: SmallCluster, films: Path, notebook: Path, tmp_path: Path
) -> None:
    embedder: Any = ZeroShot(Shades(), by_name=True)  # type: ignore[arg-type]
    there = build_shards(tmp_path / "there", [films], embedder, 2, executor=executor_at(cluster.address))
    here = build_shards(tmp_path / "here", [tmp_path / "there" / "features"], embedder, 2)
    build_index(tmp_path / "index", [tmp_path / "there" / "features"], embedder)
    assert there.added == here.added == 9
    split_index(tmp_path / "index", tmp_path / "split", 2)
    for name in IndexStore.open(tmp_path / "index").positions:
        stores = [
            IndexStore.open(tmp_path / made / shard_name(n)) for made in ("there", "here") for n in (0, 1)
        ]
        rows = [store[name].rows_SPD.tobytes() for store in stores if name in store]
        assert (
            len(rows) == 2
            and rows[0] == rows[1] == IndexStore.open(tmp_path / "index")[name].rows_SPD.tobytes()
        )
    folders = [tmp_path / made for made in ("there", "here", "split", "index")]
    asked = [holmes.open_index(folder, device="cpu", model=Shades()) for folder in folders]
    said = [[bits(answer) for answer in index.search_many(SENTENCES)] for index in asked]
    assert said[0] == said[1] == said[2] == said[3]
    assert len(FeatureFolder.open(tmp_path / "there" / "features")) == 9
    again = build_shards(tmp_path / "there", [films], embedder, 2, executor=executor_at(cluster.address))
    assert again.added == 0 and again.unchanged == 9 and len(notes(notebook / "done")) == 9


def test_processes_are_found_while_threads_and_processes_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that is to be killed goes on starting and ending them."""
    tasks, listed = Path(f"/proc/{os.getpid()}/task"), Path.iterdir

    def with_an_ended_thread(folder: Path) -> Iterator[Path]:
        yield from [folder / "0"] if folder == tasks else []  # no thread has this number
        if folder == Path("/proc/1/task"):
            raise ProcessLookupError  # as of a process that ends now
        yield from listed(folder)

    lasting = subprocess.Popen(["sleep", "60"])
    try:
        monkeypatch.setattr(Path, "iterdir", with_an_ended_thread)
        assert lasting.pid in children_of(os.getpid())
        assert children_of(1) == []
    finally:
        lasting.kill()
        lasting.wait()


def test_what_a_cluster_costs_is_measured(
    cluster: SmallCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The benchmark, small, on these nodes."""
    import cluster as benchmark

    ray.cloudpickle.register_pickle_by_value(benchmark)  # as if it were the program, which nodes do not have
    monkeypatch.setattr(benchmark, "SmallCluster", lambda nodes: nullcontext(cluster))
    for name, small in {"WARM": 1, "BATCHES": (1, 3), "REPEATS": 1, "CALLS": 2}.items():
        monkeypatch.setattr(benchmark, name, small)
    monkeypatch.setattr(ray, "init", lambda **how: None)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    words = ["--shards", "1", "--videos", "8", "--queries", "3", "--stubs", "4", "--processes", "1"]
    words += ["--part", "calls", "--part", "search", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["cluster.py", *words])
    with pytest.raises(SystemExit) as ended:
        typer.run(benchmark.main)
    assert not ended.value.code
    found = read_json(tmp_path / "cluster.json")
    assert found["videos"] == 8 and {row["way"] for row in found["search"]} >= {"direct", "on Ray"}
    assert [row["sentences"] for row in found["calls"]] == [1, 64]
