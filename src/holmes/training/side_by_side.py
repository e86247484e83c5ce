"""Train several runs at once on one machine, in child processes.

A run of a small collection uses a tenth of a GPU, and a small model one core. Every run has its own folder
and continues where it stopped, so all of them can be interrupted and started again like a single run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from holmes.base.devices import device_named
from holmes.base.processes import Child, Parent, run_jobs
from holmes.config.names import FILES
from holmes.config.schema import HolmesConfig, from_dict, to_dict
from holmes.data.store import Store
from holmes.errors import HolmesError
from holmes.results import TrainingResult
from holmes.training.display import StudyDisplay
from holmes.training.protocol import Protocol
from holmes.training.resume import RESULT
from holmes.training.run import RunOptions, train

GIB = 1 << 30
AUTO = 0  # as many as fit
WORKER = "holmes.training.side_by_side:training_worker"
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
    display: StudyDisplay | None = None,
) -> list[TrainingResult]:
    """The results of all jobs, in their order. `at_once` 0 takes as many processes as fit.

    `display` shows all of them, however they run; without one, each run has its own.

    Side by side, a run that fails does not stop the others; in the end the first failure is raised. One after
    the other they run in this process, `begin` is told of each, and the first failure ends it.
    """
    alone = int(os.environ.get("WORLD_SIZE", "1")) == 1
    if at_once > 1 and not alone:
        raise HolmesError("--jobs runs processes side by side on one device; leave it out with torchrun.")
    left = [job for job in jobs if not (job.out / RESULT).exists()]
    processes = min(
        at_once or (runs_that_fit([(job.store, job.config) for job in left], options.device) if alone else 1),
        len(left),
    )
    if processes > 1:
        _train_at_once(left, options, processes, display)
    results = []
    for job in jobs:  # what is finished is only checked and read
        if processes <= 1:
            begin(job)
        shown = display if processes <= 1 and job in left else None
        results.append(_train_here(job, options, shown))
    return results


def _train_here(job: QueuedRun, options: RunOptions, display: StudyDisplay | None) -> TrainingResult:
    """Train a run in this process."""
    if display is None:
        return train(job.store, job.config, job.out, job.seed, job.protocol, options)
    display.begin(job.name, job.config.training.epochs)
    result = train(
        job.store,
        job.config,
        job.out,
        job.seed,
        job.protocol,
        replace(options, progress=False),
        lambda entry: display.epoch(job.name, entry),
    )
    display.end(job.name, f"SumR {result.metrics['SumR']:.1f}")
    return result


def runs_that_fit(runs: Sequence[tuple[Store, HolmesConfig]], device: str, most: int = MOST_AT_ONCE) -> int:
    """On a GPU, by its free memory and the machine's cores; on a CPU one, since a run takes all cores."""
    where = device_named(device)
    if where.type != "cuda" or not runs:
        return 1
    free = torch.cuda.mem_get_info(where)[0]
    largest = max(gpu_memory(store, config) for store, config in runs)
    return max(1, min(most, os.cpu_count() or 1, int(free // largest)))


def gpu_memory(store: Store, config: HolmesConfig) -> float:
    """A generous guess at the bytes that a run takes on a GPU: features, activations, and the libraries."""
    model, batch = config.model, config.training.batch_videos
    activations = batch * (model.frames + model.clips) * len(model.gaussian_widths) * model.width * 2
    return 2 * store.info.bytes + 40 * activations + 2 * GIB


def threads_each(processes: int) -> dict[str, str]:
    """The environment of processes that share the machine's cores; what is already set stays."""
    cores = str(max(1, (os.cpu_count() or 1) // processes))
    return {name: os.environ.get(name, cores) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}


def load_own_parts(files: Sequence[str]) -> None:
    """Load a user's own losses, encoders and so on in this process, unless they are loaded."""
    for path in files:
        if Path(path) not in FILES:
            import_module("holmes.extend").load(path)


def _train_at_once(
    jobs: Sequence[QueuedRun], options: RunOptions, processes: int, given: StudyDisplay | None = None
) -> None:
    """Train in child processes; a run that fails is named in the end."""
    start = partial(Child, WORKER, environment=threads_each(processes))
    failures: dict[str, str] = {}  # name of the run → why
    with nullcontext(given) if given else StudyDisplay(len(jobs), options.progress) as display:
        display.say(f"{len(jobs)} runs, {processes} at once")
        for finished in run_jobs(
            start,
            ((job, job.order(options)) for job in jobs),
            processes,
            begin=lambda job: display.begin(job.name, job.config.training.epochs),
            report=lambda job, entry: display.epoch(job.name, entry),
        ):
            name, why = finished.job.name, finished.failure
            if finished.ending is not None and finished.ending.signal:
                why += "; if memory was short, lower --jobs"
            if why:
                failures[name] = why
            display.end(name, f"failed: {why}" if why else f"SumR {finished.result['metrics']['SumR']:.1f}")
    if failures:
        first, why = next(iter(failures.items()))
        raise HolmesError(
            f"{len(failures)} of {len(jobs)} runs failed; {first}: {why.rstrip('.')}. "
            "The others are kept. Fix this and run the same command again."
        )


def training_worker(parent: Parent) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """What trains one run in a child process: its order → its result."""

    def work(order: dict[str, Any]) -> dict[str, Any]:
        load_own_parts(order["use"])
        result = train(
            Path(order["store"]),
            from_dict(order["config"]),
            Path(order["out"]),
            order["seed"],
            order["protocol"],
            RunOptions(**order["options"]),
            parent.report,
        )
        return result.to_file()

    return work
