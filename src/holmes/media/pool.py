"""Worker processes that do one job at a time and may die doing it: the job fails, another worker continues.

A worker is `python -m MODULE SETUP`. It reads a JSON line for each job and answers with lines: `{}` as a sign
of life, `{"seconds": 90.0, "share": 0.5}` to say how far it is, `{"failure": "…", "note": "…"}` (each empty
when all went well) at the end. It ends when its input does, so workers never outlive us. These are plain
processes, because those of multiprocessing would run the caller's script again. POSIX only: they inherit open
files.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import holmes
from holmes.media.backbones.base import VisualBackbone
from holmes.media.shared_encoder import SERVED_AT_ONCE, SharedMemory, open_shared_memory, serve

# For NumPy's small products. Its threads wait by spinning, and would take the cores from the other workers.
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
PATIENCE = 600.0  # seconds without a sign of life before a worker counts as stuck


@dataclass(frozen=True)
class Outcome:
    source: Path
    failure: str = ""  # one line; empty when all went well
    note: str = ""  # what was wrong with a source that could be used nevertheless
    seconds: float = 0.0  # of video
    fatal: bool = False  # other sources would fail in the same way


@dataclass(frozen=True)
class Sign:
    """A sign of life: how far a source has come."""

    source: Path
    seconds: float = 0.0  # of video
    share: float = 0.0  # of the file, 0 to 1


def run_jobs(
    module: str,
    setup: dict[str, Any],
    sources: list[Path],
    workers: int,
    patience: float = PATIENCE,
    report: Callable[[Sign], None] = lambda sign: None,
    encoder: VisualBackbone | None = None,
) -> Iterator[Outcome]:
    """What became of each source, in the order they finish. `report` hears how far the others are.

    Where there is an `encoder`, workers have none of their own and hand their frames over to it.
    """
    waiting = list(reversed(sources))
    selector = selectors.DefaultSelector()
    busy: set[_Worker] = set()
    service = EncodingService(encoder) if encoder is not None else None

    def give_next_job(worker: _Worker | None) -> None:
        if waiting:
            worker = worker if worker is not None else _Worker(module, setup, selector, report, service)
            busy.add(worker)
            worker.give(waiting.pop())
        elif worker is not None:
            worker.close()

    try:
        for _ in range(workers):
            give_next_job(None)
        while busy:
            ready = [key.data for key, _ in selector.select(timeout=1.0)]
            late = [w for w in busy - set(ready) if time.monotonic() - w.last_sign > patience]
            for worker in [*ready, *late]:
                outcome = worker.kill(patience) if worker in late else worker.listen()
                if outcome is not None:
                    busy.discard(worker)
                    yield outcome
                    give_next_job(worker if worker.lives else None)
    finally:
        for worker in busy:
            worker.kill(0.0)
        selector.close()
        if service is not None:
            service.close()


class EncodingService:
    """Encodes for workers, a few requests at once."""

    def __init__(self, encoder: VisualBackbone) -> None:
        self._encoder, self._threads = encoder, ThreadPoolExecutor(SERVED_AT_ONCE)

    def submit(self, memory: SharedMemory, shapes: Any, reply: Callable[[str], None]) -> None:
        self._threads.submit(lambda: reply(serve(memory, shapes, self._encoder)))

    def close(self) -> None:
        self._threads.shutdown(wait=True)


class _Worker:
    """One process and the job it has."""

    def __init__(
        self,
        module: str,
        setup: dict[str, Any],
        selector: selectors.BaseSelector,
        report: Callable[[Sign], None],
        service: EncodingService | None,
    ) -> None:
        self._service = service
        self._memory_file = open_shared_memory() if service is not None else None
        descriptors = (self._memory_file.fileno(),) if self._memory_file is not None else ()
        if self._memory_file is not None:
            setup = setup | {"memory": self._memory_file.fileno()}
            self._memory = SharedMemory(self._memory_file.fileno())
        places = [str(Path(holmes.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        # What it writes to its error output, to say why it died.
        self._words = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            # -P: no modules from the current folder
            [sys.executable, "-P", "-m", module, json.dumps(setup)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            pass_fds=descriptors,
            bufsize=0,  # a buffer could hold a second line that the selector would never announce
            env={**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(filter(None, places))},
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._jobs, self._answers = self._process.stdin, self._process.stdout
        self._selector, self._report = selector, report
        self._source = Path()
        self.last_sign = time.monotonic()
        selector.register(self._answers, selectors.EVENT_READ, self)

    @property
    def lives(self) -> bool:
        return not self._jobs.closed

    def give(self, source: Path) -> None:
        self._source, self.last_sign = source, time.monotonic()
        with suppress(BrokenPipeError):  # it is dead; reading its answers will tell
            self._jobs.write(json.dumps(str(source)).encode() + b"\n")
            self._jobs.flush()

    def listen(self) -> Outcome | None:
        """Its job's outcome, or nothing yet."""
        self.last_sign = time.monotonic()
        line = self._answers.readline()
        if not line:
            return self._crashed()
        answer = json.loads(line)
        if "encode" in answer and self._service is not None:
            self._service.submit(self._memory, answer["encode"], self._reply)
            return None
        if "failure" in answer:
            return Outcome(self._source, **answer)
        if answer:
            self._report(Sign(self._source, **answer))
        return None

    def _reply(self, failure: str) -> None:
        with suppress(BrokenPipeError, ValueError):  # it is dead or closed; reading its answers will tell
            self._jobs.write(json.dumps({"failure": failure}).encode() + b"\n")
            self._jobs.flush()

    def kill(self, patience: float) -> Outcome:
        self._process.kill()
        self.close()
        return Outcome(self._source, f"it made no progress for {patience / 60:.0f} minutes")

    def close(self) -> None:
        with suppress(KeyError, ValueError):
            self._selector.unregister(self._answers)
        with suppress(BrokenPipeError):
            self._jobs.close()
        self._process.wait()
        self._answers.close()
        self._words.close()
        if self._memory_file is not None:
            self._memory_file.close()

    def _crashed(self) -> Outcome:
        code = self._process.wait()
        self._words.seek(0)
        words = self._words.read().decode(errors="replace").strip().splitlines()
        self.close()
        if code < 0:
            return Outcome(self._source, f"the decoder or the encoder crashed ({signal.Signals(-code).name})")
        return Outcome(self._source, f"the worker ended with code {code}: {(words or ['no word'])[-1][:200]}")
