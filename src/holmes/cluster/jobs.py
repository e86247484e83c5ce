"""Jobs on the nodes of a Ray cluster: what `holmes.base.processes.run_jobs` does on one machine.

A job's function is the same, and so are its messages: reports, requests that wait for an answer, a result.
A task of Ray only returns: it cannot report meanwhile, nor ask back. Files that a job reads lie where all
nodes reach them under the same path.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import holmes
from holmes.base.processes import Answer, Ending, Finished, Target
from holmes.cluster.connect import check_version, connect, import_ray, nodes_alive, reason_of
from holmes.cluster.extract import CPUS
from holmes.errors import HolmesError

J = TypeVar("J")
PAUSE = 1.0  # seconds that an actor waits for news before it answers without


class Worker:
    """An actor that does one job after another in a thread, and hands over what the job says."""

    def __init__(self, version: str, target: str, setup: dict[str, Any]) -> None:
        check_version(version)
        self._messages: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self._answers: SimpleQueue[Any] = SimpleQueue()
        self._work = Target(target, self, setup)

    # What the function knows as its parent.

    def report(self, value: Any) -> None:
        self._messages.put(("report", value))

    def request(self, value: Any) -> Any:
        self._messages.put(("request", value))
        return self._answers.get()

    # What the driver calls.

    def start(self, order: Any) -> None:
        threading.Thread(target=self._do, args=(order,), daemon=True).start()

    def answer(self, value: Any) -> None:
        self._answers.put(value)

    def news(self) -> list[tuple[str, Any]]:
        """What the job has said since; an empty list after a pause without anything."""
        found = []
        with suppress(Empty):
            found.append(self._messages.get(timeout=PAUSE))
            while True:
                found.append(self._messages.get_nowait())
        return found

    def _do(self, order: Any) -> None:
        self._messages.put(self._work.do(order))


def jobs_at_once(address: str) -> int:
    """How many jobs the cluster at `address` does at once: one per GPU, or one per node without GPUs."""
    connect(address)
    nodes = nodes_alive()
    gpus = sum(int(node.get("GPU", 0)) for node in nodes)
    found = gpus or sum(node.get("CPU", 0) >= 1 for node in nodes)
    if not found:
        raise HolmesError("no node of the cluster has a CPU or a GPU to work with; add nodes.")
    return found


def run_jobs_at(
    address: str,
    target: str,
    setup: dict[str, Any],
    jobs: Iterable[tuple[J, Any]],
    at_once: int,
    answer: Answer,
    report: Callable[[J, Any], None],
) -> Iterator[Finished[J]]:
    """Every job, in the order they finish, by `at_once` actors; one whose node dies has an `Ending`."""
    connect(address)
    ray = import_ray()
    needs = {"num_gpus": 1} if ray.cluster_resources().get("GPU") else {"num_cpus": CPUS}
    actor = ray.remote(Worker).options(max_concurrency=3, scheduling_strategy="SPREAD", **needs)
    waiting = iter(jobs)
    busy: dict[Any, tuple[Any, J]] = {}  # an actor's next news → the actor and its job
    actors: list[Any] = []

    def give_next_job(worker: Any | None) -> None:
        if (following := next(waiting, None)) is None:
            return
        job, order = following
        if worker is None:
            worker = actor.remote(holmes.__version__, target, setup)
            actors.append(worker)
        worker.start.remote(order)
        busy[worker.news.remote()] = worker, job

    try:
        for _ in range(at_once):
            give_next_job(None)
        while busy:
            ready, _ = ray.wait(list(busy), num_returns=1)
            for news in ready:
                worker, job = busy.pop(news)
                try:
                    messages = ray.get(news)
                except ray.exceptions.RayError as error:
                    why = reason_of(error)
                    if isinstance(getattr(error, "cause", None), HolmesError):
                        raise HolmesError(why) from None
                    yield Finished(job, failure=f"its node died ({why})", ending=Ending(1, why))
                    give_next_job(None)
                    continue
                over = False
                for kind, value in messages:
                    if kind == "report":
                        report(job, value)
                    elif kind == "request":
                        answer(value, worker.answer.remote)
                    else:
                        over = True
                        yield Finished(job, value) if kind == "result" else Finished(job, failure=value)
                if over:
                    give_next_job(worker)
                else:
                    busy[worker.news.remote()] = worker, job
    finally:
        for worker in actors:
            with suppress(Exception):
                ray.kill(worker)
