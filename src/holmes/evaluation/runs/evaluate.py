"""Evaluate the best checkpoint of a run, on its own store or another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from holmes.base.devices import choose_device
from holmes.data.bank import FeatureBank
from holmes.data.store import Split, Store
from holmes.encoders.checkpoint import Checkpoint
from holmes.errors import HolmesError
from holmes.evaluation.intervals import draw_videos, over_seeds, recall_intervals
from holmes.evaluation.per_query import QueryTable, query_table
from holmes.evaluation.runs.folders import RunFolder, find_runs, group_runs, refuse_other_features, store_of
from holmes.evaluation.score_files import is_score_file, read_also_fits, read_scores
from holmes.evaluation.split_report import Evaluated, agreement_of, evaluated_split, groups_of, ranked_split
from holmes.evidence.calibration import EXTRA, Calibration, read_calibration
from holmes.results import METRICS, evaluation_file, summary_of
from holmes.training.setup import build_alignments, build_identifier

SCORES = "scores"  # in place of a preset


@dataclass(frozen=True)
class EvaluatedRun:
    """A run's best checkpoint on a split: the split as it sees it, and the report."""

    run: RunFolder
    checkpoint: Checkpoint | None  # None for scores from outside
    store: Store
    seen: Evaluated
    report: dict[str, Any]
    calibration: Calibration | None = None

    def queries(self) -> QueryTable:
        """One row per query."""
        temperature = None if self.checkpoint is None else self.checkpoint.config.evidence.inter_temperature
        return query_table(self.seen, self.store, self.calibration, temperature)

    @property
    def model(self) -> Checkpoint:
        """The checkpoint; scores from outside are refused."""
        if self.checkpoint is None:
            raise HolmesError(f"{self.run.path} holds scores, not a model; this needs a run or a checkpoint.")
        return self.checkpoint


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
    also_fits: Path | None = None,
) -> dict[str, Any]:
    """The report of every run, and the figures of each setting and protocol over its seeds.

    `each` is called with every run as it was seen, of which only the report is kept. `also_fits` is a file
    that says which further videos fit a query.
    """
    reports, summary, fitting, together = {}, {}, {}, {}
    for name, some in group_runs(runs).items():
        seen: list[EvaluatedRun] = []
        for run in some:
            found = evaluate_run(run, store_of(run, store), split, device, also_fits)
            reports[run.path] = found.report | {"group": name}
            # Everything but ranks and report is large: it is not kept for the seeds that follow.
            seen.append(replace(found, checkpoint=None, seen=replace(found.seen, encoded=None)))
            each(found)
        summary[name] = summary_of(over_seeds([one.report["metrics"] for one in seen], *ranks_of(seen)))
        if all(one.seen.fitting_Q is not None for one in seen):
            fits = [one.report["metrics_fitting"] for one in seen]
            fitting[name] = summary_of(over_seeds(fits, *ranks_of(seen, fitting=True)))
        if len(seen) > 1:
            together[name] = report_over_seeds(seen)
    return evaluation_file(summary, [reports[run.path] for run in runs], fitting, together)


def ranks_of(seen: list[EvaluatedRun], fitting: bool = False) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The ranks of every seed, S × Q, and the video of each query."""
    ranks = [one.seen.fitting_Q if fitting else one.seen.rank_Q for one in seen]
    return np.stack([rank_Q for rank_Q in ranks if rank_Q is not None]), seen[0].seen.split.owner


def report_over_seeds(seen: list[EvaluatedRun]) -> dict[str, Any]:
    """The report of a setting: means and deviations over its seeds, intervals over videos and seeds."""
    first, split = seen[0].report, seen[0].seen.split
    rank_SQ, owner_Q = ranks_of(seen)
    fits = "metrics_fitting" in first
    fitting_SQ = ranks_of(seen, fitting=True)[0] if fits else rank_SQ
    draws = draw_videos(owner_Q)
    by: dict[str, dict[str, dict[str, Any]]] = {}

    def intervals(rank_SQ: NDArray[np.int64], member_Q: NDArray[np.bool_]) -> dict[str, list[float | None]]:
        drawn = recall_intervals(rank_SQ, draws, member_Q)
        return {metric: found.bounds() for metric, found in drawn.items()}

    for name, groups in groups_of(seen[0].store, split).items():
        by[name] = {}
        for group, member_Q in groups.items():
            rows = [one.report["by"][name][group] for one in seen]
            by[name][group] = {
                "queries": int(member_Q.sum()),
                **spread_of(rows, METRICS),
                "intervals": intervals(rank_SQ, member_Q),
            }
            if fits:
                by[name][group] |= {
                    "metrics_fitting": spread_of([row["metrics_fitting"] for row in rows], METRICS),
                    "intervals_fitting": intervals(fitting_SQ, member_Q),
                }
    report = {"videos": first["videos"], "queries": first["queries"], "seeds": len(seen), "by": by}
    for part, ranks_SQ in (("metrics", rank_SQ), ("metrics_fitting", fitting_SQ)):
        if part in first:
            bounds = recall_intervals(ranks_SQ, draws)
            report[part] = spread_of([one.report[part] for one in seen], METRICS)
            report[part.replace("metrics", "intervals")] = {name: e.bounds() for name, e in bounds.items()}
    for part in ("localisation", "aligned_mass"):
        if part in first:
            values = [one.report[part] for one in seen]
            names = [name for name in values[0] if name != "queries"]
            report[part] = {"queries": values[0]["queries"], **spread_of(values, names)}
    if "partition" in first:
        confusions = np.array([one.report["partition"]["confusion"] for one in seen])
        report["partition"] = agreement_of(confusions.sum(0))
    return report


def spread_of(values: Sequence[Mapping[str, float | None]], names: Sequence[str]) -> dict[str, Any]:
    """Mean and deviation of each number; None where a seed has none."""
    found: dict[str, Any] = {}
    for name in names:
        numbers = [each[name] for each in values]
        known = [number for number in numbers if number is not None]
        spread = {"mean": fmean(known), "deviation": stdev(known)} if len(known) == len(numbers) else None
        found[name] = spread
    return found


def evaluate_scores(
    run: RunFolder,
    scores_QV: NDArray[Any],
    digest: str,
    store: Store,
    split: Split,
    also_fits: Path | None = None,
    calibration: Calibration | None = None,
) -> EvaluatedRun:
    """Scores from outside, or of a method that is not trained, as a run like any other."""
    further = None if also_fits is None else read_also_fits(also_fits, store)
    seen = ranked_split(torch.from_numpy(np.ascontiguousarray(scores_QV)), store, split, further)
    about = {
        "run": str(run.path),
        "preset": SCORES,
        "protocol": None,
        "seed": None,
        "epoch": None,
        "checkpoint": digest,
        "store": str(store.path),
        "collection": store.info.collection,
        "trained_on_this_store": False,
    }
    return EvaluatedRun(run, None, store, seen, about | seen.report, calibration)


def evaluate_run(
    run: RunFolder, store: Store, split_name: str, device: torch.device, also_fits: Path | None = None
) -> EvaluatedRun:
    """Load a run's best checkpoint and evaluate it; a file of scores is evaluated as it is."""
    if is_score_file(run.path):
        file, split = read_scores(run.path), store.split(split_name)
        return evaluate_scores(run, file.aligned(store, split), file.digest, store, split, also_fits)
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
        None if also_fits is None else read_also_fits(also_fits, store),
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
    calibration = read_calibration(checkpoint.extras.get(EXTRA), checkpoint.digest)
    return EvaluatedRun(run, checkpoint, store, seen, report, calibration)
