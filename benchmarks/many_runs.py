"""Many small trainings side by side on one device: a worker process takes one after the other.

A small collection uses a tenth of a GPU, so a dozen workers share it. Every finished job is written down at
once; the same command run again does only what is left.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats

from holmes.base.devices import choose_device
from holmes.base.parallel import ALONE
from holmes.config.schema import HolmesConfig
from holmes.data.store import Store
from holmes.training.display import TrainingDisplay
from holmes.training.protocol import Protocol, Splits, choose_splits
from holmes.training.run import Run, RunOptions
from holmes.training.setup import fit_to_store


@dataclass(frozen=True)
class Job:
    """One training: a row of a table, a collection and a seed."""

    row: str
    collection: str
    seed: int
    store: Path
    config: HolmesConfig
    protocol: Protocol = Protocol.PUBLISHED

    @property
    def key(self) -> list[str | int]:
        return [self.row, self.collection, self.seed]


def train_to_the_end(job: Job, device: str) -> Run:
    """A run of all its epochs; nothing is selected, the last epoch counts."""
    torch.set_num_threads(1)
    gc.collect()  # the last run's recorded step and its memory
    if device.startswith("cuda"):
        torch.cuda.empty_cache()
    store = Store.open(job.store)
    config = fit_to_store(job.config, store)
    splits = choose_splits(store, job.protocol, config.training.held_out, job.seed)
    return whole_run(store, config, splits, choose_device(device), job.seed)


def whole_run(store: Store, config: HolmesConfig, splits: Splits, device: torch.device, seed: int) -> Run:
    """A run of all its epochs that leaves nothing on disk."""
    options = RunOptions(device=str(device), progress=False)
    run = Run(store, splits, config, Path(os.devnull), seed, ALONE, device, options)
    with TrainingDisplay(1, 0, False) as silent:
        for epoch in range(config.training.epochs):
            run.train_epoch(epoch, silent)
    return run


def run_jobs(
    jobs: Sequence[Job],
    measure: Callable[[Job, str], dict[str, Any]],
    results: Path,
    workers: int,
    device: str = "auto",
    seconds: float = float("inf"),
) -> list[dict[str, Any]]:
    """What `measure` found for every job, in the order they finished; none is started after `seconds`."""
    results.parent.mkdir(parents=True, exist_ok=True)
    lines = results.read_text().splitlines() if results.exists() else []
    found = [json.loads(line) for line in lines]
    done = {tuple(entry["key"]) for entry in found}
    waiting = [job for job in jobs if tuple(job.key) not in done]
    start = time.monotonic()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context) as pool, open(results, "a") as file:
        futures = {pool.submit(timed, measure, job, device, start + seconds): job for job in waiting}
        for future in as_completed(futures):
            job, entry = futures[future], future.result()
            if entry is None:
                continue
            found.append({"key": job.key, **entry})
            file.write(json.dumps(found[-1]) + "\n")
            file.flush()
            print(f"{' '.join(map(str, job.key))} {time.monotonic() - start:.0f} s", flush=True)
    return found


def timed(
    measure: Callable[[Job, str], dict[str, Any]], job: Job, device: str, deadline: float
) -> dict[str, Any] | None:
    start = time.monotonic()
    if start > deadline:
        return None
    return {**measure(job, device), "seconds": time.monotonic() - start}


def paired(ours: dict[int, float], theirs: dict[int, float]) -> dict[str, float]:
    """Mean difference over the seeds both have, with the half-width of its 95% interval (Student's t)."""
    seeds = sorted(ours.keys() & theirs.keys())
    differences = np.array([ours[seed] - theirs[seed] for seed in seeds])
    if len(differences) < 2:
        return {"difference": float(differences.mean()), "half_width": float("nan"), "seeds": len(seeds)}
    error = differences.std(ddof=1) / np.sqrt(len(differences))
    half_width = stats.t.ppf(0.975, len(differences) - 1) * error
    return {"difference": float(differences.mean()), "half_width": float(half_width), "seeds": len(seeds)}
