"""Jobs on the nodes of a Ray cluster: the counterpart of the child processes in `base/processes.py`.

A job's function is the same, and so are its messages: reports, requests that wait for an answer, a result.
A task of Ray only returns: it cannot report meanwhile, nor ask back. Files that a job reads lie where all
nodes reach them under the same path.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import holmes
from holmes.base.processes import Answer, Ending, Finished, Listener, Message, Target, run_jobs
from holmes.cluster.connect import check_version, connect, import_ray, nodes_alive, our_error, reason_of
from holmes.cluster.extract import CPUS
from holmes.errors import HolmesError

J = TypeVar("J")
PAUSE = 1.0  # seconds that an actor waits for news before it answers without


class NodeWorker:
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


@dataclass(frozen=True)
class NodeEnding(Ending):
    """How an actor ended."""

    refused: bool = False  # its node does no job at all: it has another version, say

    def __str__(self) -> str:
        return f"its node died ({self.last_line})"


class Actor:
    """An actor as `run_jobs` knows a child process."""

    def __init__(self, handle: Any, listener: Listener, answer: Answer) -> None:
        self._handle, self._listener, self._answer = handle, listener, answer
        threading.Thread(target=self._listen, daemon=True).start()

    def send(self, value: Any) -> None:
        self._handle.start.remote(value)

    def stop(self) -> None:
        with suppress(Exception):
            import_ray().kill(self._handle)

    def _listen(self) -> None:
        try:
            while True:
                for kind, value in import_ray().get(self._handle.news.remote()):
                    if kind == "request":
                        self._answer(value, self._handle.answer.remote)
                    else:
                        self._listener(self, Message(kind, value))
        except Exception as error:  # it died, or was stopped
            ending = NodeEnding(1, reason_of(error), refused=our_error(error) is not None)
            self._listener(self, Message("ended", ending))


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
    actor = ray.remote(NodeWorker).options(max_concurrency=3, scheduling_strategy="SPREAD", **needs)

    def start(listener: Listener) -> Actor:
        return Actor(actor.remote(holmes.__version__, target, setup), listener, answer)

    with closing(run_jobs(start, jobs, at_once, report=report)) as done:
        for finished in done:
            if isinstance(finished.ending, NodeEnding) and finished.ending.refused:
                raise HolmesError(finished.ending.last_line)
            yield finished
