"""Child processes that run one job after another: extraction, side-by-side trainings, server jobs.

A child runs `python -m holmes.base.processes MODULE:FUNCTION SETUP`. FUNCTION takes the `Parent` and the
settings, and returns what does one job. Jobs go in and messages come out as lines of JSON:

    parent → child   a job, or the answer to a request
    child → parent   {"report": …}  {"request": …}  {"result": …}  {"failure": "one line"}

- A child that crashes, or is killed, fails its job alone. `run_jobs` starts another child for the next one.
- A child ends when its standard input does, so none outlives its parent, even one that gets SIGKILL.
- Ctrl-C reaches the parent, which stops its children; children ignore it.

These are plain processes. Those of `multiprocessing`, which process pools such as pebble's build on, run the
caller's script again or copy its threads and its GPU; their time limits are for a whole job, not for silence.
POSIX only.
"""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from queue import Empty, SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from holmes.errors import LONGEST_REASON, HolmesError, in_one_line

J = TypeVar("J")
# Of a child that decodes files from anywhere.
ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}  # more would take a search's cores
MEMORY, WRITTEN = 4 << 30, 1 << 20  # bytes of address space; of its largest file, which is its error output


@dataclass(frozen=True)
class Ending:
    """How a child ended."""

    code: int  # negative: the signal
    last_line: str  # of its error output

    @property
    def signal(self) -> str:
        """Such as SIGKILL; empty if the child ended by itself."""
        return signal.Signals(-self.code).name if self.code < 0 else ""

    def __str__(self) -> str:
        if self.signal:
            return f"its process was ended by {self.signal}"
        return f"its process ended with code {self.code}: {self.last_line or 'no message'}"


@dataclass(frozen=True)
class Message:
    kind: str  # report, result, failure or ended
    value: Any  # of a failure one line, of the end an `Ending`


class Worker(Protocol):
    """What does the jobs it is sent, one after the other: a `Child`, or an actor on another machine."""

    def send(self, value: Any, /) -> None: ...
    def stop(self) -> None: ...


Answer = Callable[[Any, Callable[[Any], None]], None]  # of a request, to what sends it
Listener = Callable[[Worker, Message], None]  # is called in a thread of the worker's


class Child:
    """A process that does the jobs it is sent, one after the other."""

    def __init__(
        self,
        target: str,
        listener: Listener,
        setup: Mapping[str, Any] | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        files: Sequence[int] = (),
        answer: Answer | None = None,
    ) -> None:
        """Start `target`, a "module:function".

        The child inherits `files`, by their descriptors. `answer` gets its requests, `listener` its other
        messages; the last is always the end.
        """
        self._listener, self._answer = listener, answer
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by the thread
        paths = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}  # imports what we import
        self._process = subprocess.Popen(
            # -P: no modules from the current folder
            [sys.executable, "-P", "-m", __name__, target, json.dumps(dict(setup or {}))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            pass_fds=files,
            env={**os.environ, **(environment or {}), **paths},
        )
        self.pid = self._process.pid
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def send(self, value: Any) -> None:
        """A job, or an answer. To a dead process nothing is sent: its listener gets the end."""
        pipe = self._process.stdin
        assert pipe is not None
        with suppress(BrokenPipeError, ValueError):  # dead or stopped
            pipe.write(json.dumps(value).encode() + b"\n")
            pipe.flush()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        """End the process at once, and wait until it is gone. Work that was saved stays."""
        self._process.kill()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _listen(self) -> None:
        pipes = self._process.stdin, self._process.stdout
        assert pipes[0] is not None and pipes[1] is not None
        with pipes[1], self._errors:
            try:
                for line in pipes[1]:
                    ((kind, value),) = json.loads(line).items()
                    if kind == "request" and self._answer is not None:
                        self._answer(value, self.send)
                    else:
                        self._listener(self, Message(kind, value))
            except Exception:  # the listener must get an end
                self._process.kill()
                traceback.print_exc()
            code = self._process.wait()
            self._errors.seek(0)
            lines = self._errors.read().decode(errors="replace").split("\n")
        with suppress(BrokenPipeError):
            pipes[0].close()
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        self._listener(self, Message("ended", Ending(code, last[:LONGEST_REASON])))


@dataclass(frozen=True)
class Finished(Generic[J]):
    """A job that is over: what its function returned, or why it failed."""

    job: J
    result: Any = None
    failure: str = ""  # one line
    ending: Ending | None = None  # of a process that died doing it


def run_jobs(
    start: Callable[[Listener], Worker],
    jobs: Iterable[tuple[J, Any]],
    at_once: int,
    *,
    begin: Callable[[J], None] = lambda job: None,
    report: Callable[[J, Any], None] = lambda job, value: None,
    timeout: float = math.inf,
) -> Generator[Finished[J]]:
    """Every job, in the order they finish, by `at_once` workers that `start` makes.

    A job is a pair: what the caller knows it by, and what the worker is sent. A worker that says nothing for
    `timeout` seconds is stopped, and its job fails.
    """
    waiting = iter(jobs)
    messages: SimpleQueue[tuple[Worker, Message]] = SimpleQueue()
    workers: set[Worker] = set()
    busy: dict[Worker, J] = {}
    last_message: dict[Worker, float] = {}

    def give_next_job(worker: Worker | None) -> None:
        if (following := next(waiting, None)) is None:
            return
        job, order = following
        begin(job)
        if worker is None:
            worker = start(lambda sender, message: messages.put((sender, message)))
            workers.add(worker)
        busy[worker], last_message[worker] = job, time.monotonic()
        worker.send(order)

    try:
        for _ in range(at_once):
            give_next_job(None)
        while busy:
            try:
                received = [messages.get(timeout=min(1.0, timeout))]
            except Empty:
                received = []
            for worker, message in received:
                if worker not in busy:
                    continue  # it was stopped
                last_message[worker] = time.monotonic()
                if message.kind == "report":
                    report(busy[worker], message.value)
                else:
                    yield _finished(busy.pop(worker), message)
                    give_next_job(worker if message.kind != "ended" else None)
            for worker in [*busy]:
                if time.monotonic() - last_message[worker] > timeout:
                    worker.stop()
                    failure = f"it made no progress for {timeout / 60:.0f} minutes"
                    yield Finished(busy.pop(worker), failure=failure)
                    give_next_job(None)
    finally:
        for worker in workers:
            worker.stop()


def bound_resources() -> None:
    """Bound what this process may take: a hostile file must not exhaust the machine."""
    for limit, value in (("AS", MEMORY), ("FSIZE", WRITTEN), ("CORE", 0)):
        resource.setrlimit(getattr(resource, f"RLIMIT_{limit}"), (value, value))


def available_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _finished(job: J, message: Message) -> Finished[J]:
    if message.kind == "result":
        return Finished(job, message.value)
    if message.kind == "failure":
        return Finished(job, failure=message.value)
    return Finished(job, failure=str(message.value), ending=message.value)


class Parent:
    """The process that started this one."""

    def __init__(self) -> None:
        self._messages = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)  # what a library prints must not pass for a message
        # Lines must come in the order they were written: the last one tells why a child died.
        sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
        self._received: SimpleQueue[Any] = SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def receive(self) -> Any:
        return self._received.get()

    def report(self, value: Any) -> None:
        """How far the job is; also a sign of life."""
        self.send("report", value)

    def request(self, value: Any) -> Any:
        """Ask the parent, and wait for its answer."""
        self.send("request", value)
        return self.receive()

    def send(self, kind: str, value: Any) -> None:
        self._messages.write(json.dumps({kind: value}) + "\n")

    def _read(self) -> None:
        for line in sys.stdin:
            self._received.put(json.loads(line))
        os._exit(0)  # the parent is gone, or needs this process no more


class Target:
    """The function behind "module:function". The first job loads it, so what is missing fails that job."""

    def __init__(self, target: str, parent: Any, setup: Mapping[str, Any]) -> None:
        """`parent` is what the function reports to: a `Parent`, or what has its methods."""
        self._target, self._parent, self._setup = target, parent, setup
        self._work: Callable[[Any], Any] | None = None

    def do(self, job: Any) -> tuple[str, Any]:
        """The kind of message about the job, and its value: a result, or a failure in one line."""
        try:
            if self._work is None:
                module, _, name = self._target.partition(":")
                self._work = getattr(import_module(module), name)(self._parent, **self._setup)
            return "result", self._work(job)
        except HolmesError as error:
            return "failure", str(error)
        except Exception as error:
            traceback.print_exc()
            return "failure", in_one_line(error)


def main() -> None:
    """A child: do the jobs that come, until there is no parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    target, setup = sys.argv[1], json.loads(sys.argv[2])
    parent = Parent()
    work = Target(target, parent, setup)
    while True:
        parent.send(*work.do(parent.receive()))


if __name__ == "__main__":
    main()
