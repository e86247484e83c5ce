"""One trial of a search: SumR of some settings on held-out videos, four folds in a process."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holmes.base.devices import choose_device
from holmes.base.parallel import ALONE
from holmes.base.processes import Answer, Child, Finished, Parent, run_jobs
from holmes.config.schema import HolmesConfig, from_dict
from holmes.data.store import Split, Store
from holmes.evaluation.recall import retrieval_metrics
from holmes.training.display import TrainingDisplay
from holmes.training.protocol import Splits
from holmes.training.run import Run, RunOptions
from holmes.training.side_by_side import load_own_parts, threads_each

FOLDS = 4
# Where successive halving looks: half way through the first fold, after it, and after three. At each of these
# rungs the best third of the trials goes on. Optuna counts rungs in powers of three.
HALF_WAY, KEPT = 1, 3
WORKER = "holmes.training.tuning.trials:trial_worker"

Jobs = Iterable[tuple[str, dict[str, Any]]]  # a job's name, and what its process is sent
Report = Callable[[str, Any], None]
# Runs jobs in processes, here or on other machines: (setup, jobs, at once, answer, report) → finished jobs.
Runner = Callable[[dict[str, Any], Jobs, int, Answer, Report], Iterator[Finished[str]]]


def step_after(folds: int) -> int:
    return KEPT * folds


def run_here(
    setup: dict[str, Any], jobs: Jobs, at_once: int, answer: Answer, report: Report
) -> Iterator[Finished[str]]:
    """Processes on this machine."""
    start = partial(Child, WORKER, setup=setup, environment=threads_each(at_once), answer=answer)
    return run_jobs(start, jobs, at_once, report=report)


def trial_worker(parent: Parent, store: str, device: str, use: list[str]) -> Callable[[Any], Any]:
    """What a process does with the trials that it is sent."""
    load_own_parts(use)
    opened, where = Store.open(store), choose_device(device)

    def work(job: dict[str, Any]) -> dict[str, Any]:
        def go_on(step: int, value: float, sums: list[float]) -> bool:
            return bool(parent.request({"name": job["name"], "step": step, "value": value, "sums": sums}))

        config = from_dict(job["config"])
        first = FOLDS * job.get("partition", 0)
        return {"sums": run_trial(opened, config, where, job["sums"], parent.report, go_on, first)}

    return work


def run_trial(
    store: Store,
    config: HolmesConfig,
    device: torch.device,
    sums: Sequence[float],
    report: Callable[[int], None],
    go_on: Callable[[int, float, list[float]], bool],
    first: int = 0,
) -> list[float]:
    """SumR of each fold's held-out videos after its last epoch; fewer folds if `go_on` says no at a rung.

    `first` is the number of the first fold: `FOLDS` and more are of other partitions.
    """
    found, epochs = list(sums), config.training.epochs
    with TrainingDisplay(1, 0, False) as silent:
        for fold in range(first + len(found), first + FOLDS):
            run = fold_run(store, config, device, fold)
            for epoch in range(epochs):
                run.train_epoch(epoch, silent)
                report((fold - first) * epochs + epoch + 1)
                if fold == 0 and epoch + 1 == epochs // 2 and not go_on(HALF_WAY, held_out_sum(run), found):
                    return found
            found.append(held_out_sum(run))
            if run.features:
                run.features.require()  # nothing that was learnt from damaged features counts
            del run
            release_memory(device)
            if len(found) < FOLDS and not go_on(step_after(len(found)), float(np.mean(found)), found):
                return found
    return found


def fold_run(store: Store, config: HolmesConfig, device: torch.device, fold: int) -> Run:
    """A run on three of the four parts of the train split, which leaves nothing on disk."""
    options = RunOptions(device=str(device), progress=False)
    return Run(store, fold_splits(store, fold), config, Path(os.devnull), fold, ALONE, device, options)


def fold_splits(store: Store, fold: int) -> Splits:
    """Train videos alone: every one of them is held out in one of the folds of a partition."""
    train = store.split("train")
    partition, part = divmod(fold, FOLDS)
    order = np.random.default_rng([partition, len(train.videos)]).permutation(len(train.videos))
    held = order[part::FOLDS]
    rest: Split = train.take(np.setdiff1d(order, held), "train-fit")
    kept: Split = train.take(held, "train-held")
    return Splits(fit=rest, select=kept, report=kept)


def held_out_sum(run: Run) -> float:
    return float(retrieval_metrics(run.model, run.bank, run.splits.select, run.config.score, ALONE)["SumR"])


def release_memory(device: torch.device) -> None:
    gc.collect()  # a recorded step holds the memory of its graph
    if device.type == "cuda":
        torch.cuda.empty_cache()
