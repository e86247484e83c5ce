"""A trained run, evaluated: its best checkpoint, on the store it was trained on or on another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holmes.base.devices import choose_device
from holmes.data.bank import FeatureBank
from holmes.data.store import Store
from holmes.encoders.checkpoint import Checkpoint
from holmes.evaluation.intervals import over_seeds
from holmes.evaluation.per_query import QueryTable, query_table
from holmes.evaluation.runs.folders import RunFolder, find_runs, group_runs, refuse_other_features, store_of
from holmes.evaluation.split_report import Evaluated, evaluated_split
from holmes.evidence.calibration import EXTRA, read_calibration
from holmes.results import summary_of
from holmes.training.setup import build_alignments, build_identifier


@dataclass(frozen=True)
class EvaluatedRun:
    """A run's best checkpoint on a split: the split as it sees it, and the report."""

    run: RunFolder
    checkpoint: Checkpoint
    store: Store
    seen: Evaluated
    report: dict[str, Any]

    def queries(self) -> QueryTable:
        """One row per query."""
        calibration = read_calibration(self.checkpoint.extras.get(EXTRA), self.checkpoint.digest)
        temperature = self.checkpoint.config.evidence.inter_temperature
        return query_table(self.seen, self.store, calibration, temperature)


def queries(
    run: Path | str, store: Path | str | None = None, split: str = "test", device: str = "auto"
) -> QueryTable:
    """One row for each query of a split: the rank of its video, its scores, and how sure the model was.

    Args:
        run: A run or a checkpoint.
        store: The store; a run knows its own.
        split: The split of the store.
        device: auto, cpu, cuda or cuda:N.

    Example:
        >>> table = holmes.queries("RUN", device="cpu")
        >>> len(table), min(table.columns["rank"])
        (37, 1)
    """
    (found,) = find_runs(Path(run))[:1]
    where = store_of(found, None if store is None else Path(store))
    return evaluate_run(found, where, split, choose_device(device)).queries()


def evaluate_runs(
    runs: list[RunFolder],
    store: Path | None,
    split: str,
    device: torch.device,
    each: Callable[[EvaluatedRun], None] = lambda found: None,
) -> dict[str, Any]:
    """The report of every run, and the figures of each setting and protocol over its seeds.

    `each` is called with every run as it was seen, of which only the report is kept.
    """
    reports, summary = {}, {}
    for name, some in group_runs(runs).items():
        ranks = []
        for run in some:
            found = evaluate_run(run, store_of(run, store), split, device)
            reports[run.path] = found.report | {"group": name}
            ranks.append(found.seen.rank_Q)
            each(found)
        metrics = [reports[run.path]["metrics"] for run in some]
        summary[name] = summary_of(over_seeds(metrics, np.stack(ranks), found.seen.split.owner))
    return {
        "format": "holmes-evaluation",
        "version": 1,
        "summary": summary,
        "reports": [reports[run.path] for run in runs],
    }


def evaluate_run(run: RunFolder, store: Store, split_name: str, device: torch.device) -> EvaluatedRun:
    """Load a run's best checkpoint and evaluate it."""
    checkpoint = run.open_checkpoint(device)
    config = checkpoint.config
    refuse_other_features(checkpoint, store)
    split = store.split(split_name)
    bank = FeatureBank.of_splits(store, device, [split])
    seen = evaluated_split(
        checkpoint.model,
        bank,
        split,
        config.score,
        build_identifier(config),
        build_alignments(config.alignment),
        config.training.batch_videos,
    )
    report = {
        "run": str(run.path),
        "preset": config.name,
        "protocol": run.protocol,
        "seed": None if run.about is None else run.about["seed"],
        "epoch": checkpoint.extras.get("epoch"),
        "checkpoint": checkpoint.digest,
        "store": str(store.path),
        "collection": store.info.collection,
        "trained_on_this_store": run.about is not None and run.about["data"]["store"] == store.info.digest,
        **seen.report,
    }
    return EvaluatedRun(run, checkpoint, store, seen, report)
