"""Several runs at once on one machine: processes side by side, each training one run after another.

A run of a small collection uses a tenth of a GPU, and a small model one core. Every run has its own folder
and continues where it stopped, so all of them can be interrupted and started again like a single run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any

import torch

from holmes.base.devices import choose_device
from holmes.config.names import FILES
from holmes.config.schema import HolmesConfig, to_dict
from holmes.data.store import Store
from holmes.errors import HolmesError
from holmes.training.display import StudyDisplay
from holmes.training.protocol import Protocol
from holmes.training.resume import RESULT
from holmes.training.run import RunOptions, train

GIB = 1 << 30
AUTO = 0  # as many as fit
MOST_AT_ONCE = 8  # more processes than this do not make a GPU faster


@dataclass(frozen=True)
class QueuedRun:
    """A run to be trained, and its name on the display."""

    name: str
    store: Store
    config: HolmesConfig
    out: Path
    seed: int
    protocol: Protocol

    def order(self, options: RunOptions) -> dict[str, Any]:
        return {
            "store": str(self.store.path.resolve()),
            "config": to_dict(self.config),
            "out": str(self.out.resolve()),
            "seed": self.seed,
            "protocol": self.protocol.value,
            "options": asdict(replace(options, progress=False)),
            "use": [str(path) for path in FILES],
        }


def train_all(
    jobs: Sequence[QueuedRun],
    options: RunOptions,
    at_once: int = 1,
    begin: Callable[[QueuedRun], None] = lambda job: None,
) -> list[dict[str, Any]]:
    """The results of all jobs, in their order. `at_once` 0 takes as many processes as fit.

    Side by side, a run that fails does not stop the others; in the end the first failure is raised. One after
    the other they run in this process, `begin` is told of each, and the first failure ends it.
    """
    alone = int(os.environ.get("WORLD_SIZE", "1")) == 1
    if at_once > 1 and not alone:
        raise HolmesError("--jobs runs processes side by side on one device; leave it out with torchrun.")
    left = [job for job in jobs if not (job.out / RESULT).exists()]
    processes = min(at_once or (jobs_that_fit(left, options) if alone else 1), len(left))
    if processes > 1:
        workers = Workers(processes)
        try:
            workers.go(left, options)
        finally:
            workers.stop()
    results = []
    for job in jobs:  # what is finished is only checked and read
        if processes <= 1:
            begin(job)
        results.append(train(job.store, job.config, job.out, job.seed, job.protocol, options))
    return results


def jobs_that_fit(jobs: Sequence[QueuedRun], options: RunOptions) -> int:
    """On a GPU, by its free memory and the machine's cores; on a CPU one, since a run takes all cores."""
    device = choose_device(options.device)
    if device.type != "cuda" or not jobs:
        return 1
    free = torch.cuda.mem_get_info(device)[0]
    largest = max(gpu_memory(job) for job in jobs)
    return max(1, min(MOST_AT_ONCE, os.cpu_count() or 1, int(free // largest)))


def gpu_memory(job: QueuedRun) -> float:
    """A generous guess at what a run takes on a GPU: its features, its activations, and the libraries."""
    model, batch = job.config.model, job.config.training.batch_videos
    activations = batch * (model.frames + model.clips) * len(model.gaussian_widths) * model.width * 2
    return 2 * job.store.info.bytes + 40 * activations + 2 * GIB


class Workers:
    """Processes that take the next job when they have finished one."""

    def __init__(self, count: int) -> None:
        cores = str(max(1, (os.cpu_count() or 1) // count))
        threads = {name: os.environ.get(name, cores) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
        paths = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self.events: SimpleQueue[tuple[int, dict[str, Any] | None]] = SimpleQueue()
        self.logs = [tempfile.TemporaryFile("w+") for _ in range(count)]  # noqa: SIM115 - closed by stop
        self.processes = [self._start(log, os.environ | threads | paths) for log in self.logs]
        self.failures: dict[str, str] = {}  # name of the job → why
        for number, process in enumerate(self.processes):
            threading.Thread(target=self._listen, args=(number, process), daemon=True).start()

    def _start(self, log: IO[str], environment: dict[str, str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "holmes.training.study_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment,
            start_new_session=True,  # Ctrl-C is for this process, which passes it on
        )

    def _listen(self, number: int, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.events.put((number, json.loads(line)))
        self.events.put((number, None))

    def go(self, jobs: Sequence[QueuedRun], options: RunOptions) -> None:
        """Give every worker a job, and the next job to whichever has finished."""
        waiting, busy = list(reversed(jobs)), dict[int, QueuedRun]()
        with StudyDisplay(len(jobs), options.progress) as display:
            display.say(f"{len(jobs)} runs, {len(self.processes)} at once")

            def next_job(number: int) -> None:
                if waiting and self.processes[number].poll() is None:
                    job = busy[number] = waiting.pop()
                    display.begin(job.name, job.config.training.epochs)
                    pipe = self.processes[number].stdin
                    assert pipe is not None
                    pipe.write(json.dumps(job.order(options)) + "\n")
                    pipe.flush()

            for number in range(len(self.processes)):
                next_job(number)
            while busy:
                number, event = self.events.get()
                if number not in busy:
                    continue
                job = busy[number]
                if event is not None and "epoch" in event:
                    display.epoch(job.name, event["epoch"])
                    continue
                del busy[number]
                self._note(number, job, event, display)
                next_job(number)
        for job in waiting:  # no worker is left
            self.failures[job.name] = "was not started"
        if self.failures:
            first, why = next(iter(self.failures.items()))
            raise HolmesError(
                f"{len(self.failures)} of {len(jobs)} runs failed; {first}: {why.rstrip('.')}. "
                "The others are kept: mend that and run the same command again."
            )

    def _note(self, number: int, job: QueuedRun, event: dict[str, Any] | None, display: StudyDisplay) -> None:
        if event is not None and "result" in event:
            display.end(job.name, f"SumR {event['result']['metrics']['SumR']:.1f}")
            return
        self.failures[job.name] = self._last_words(number) if event is None else event["error"]
        display.end(job.name, f"failed: {self.failures[job.name]}")

    def _last_words(self, number: int) -> str:
        """Why a process ended: what it wrote last, or the signal."""
        code = self.processes[number].wait()
        self.logs[number].seek(0)
        lines = self.logs[number].read().strip().splitlines()
        if code < 0:
            return f"its process was ended by signal {-code}; if memory was short, lower --jobs"
        return lines[-1] if lines else f"its process ended with code {code}"

    def stop(self) -> None:
        """End what is still running; runs are saved between epochs and lose little."""
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait()
        for log in self.logs:
            log.close()
