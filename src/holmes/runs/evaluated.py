"""A run looked at again: its best checkpoint, on the store it was trained on or on another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holmes.data.bank import FeatureBank
from holmes.data.store import Store
from holmes.encoders.checkpoint import MANIFEST, Checkpoint, load_checkpoint
from holmes.errors import HolmesError
from holmes.evaluation.intervals import spread_with_intervals
from holmes.evaluation.per_query import QueryTable, query_table
from holmes.evaluation.split_report import Evaluated, evaluated_split
from holmes.evidence.diagnosis import EXTRA, read_calibration
from holmes.runs.groups import group_runs
from holmes.training.assemble import build_alignments, build_identifier
from holmes.training.device import choose_device
from holmes.training.protocol import Protocol
from holmes.training.resume import RUN, read_run


@dataclass(frozen=True)
class RunFolder:
    """A run, or a lone checkpoint, of which nothing but the weights and settings is known."""

    path: Path
    about: dict[str, Any] | None

    @property
    def checkpoint(self) -> Path:
        return self.path if self.about is None else self.path / "best"

    @property
    def protocol(self) -> str | None:
        return None if self.about is None else self.about["data"]["protocol"]


def find_runs(folder: Path, protocol: Protocol | None = None) -> list[RunFolder]:
    """The run in a folder, or those of all seeds under it; only those of a protocol where one is given."""
    if (folder / MANIFEST).exists():
        return [RunFolder(folder, None)]
    manifests = [folder / RUN] if (folder / RUN).exists() else sorted(folder.glob(f"*/{RUN}"))
    runs = [RunFolder(manifest.parent, read_run(manifest)) for manifest in manifests]
    if not runs:
        raise HolmesError(f"{folder} holds neither a run nor a checkpoint; make one with 'holmes train'.")
    chosen = [run for run in runs if protocol is None or run.protocol == protocol.value]
    if not chosen:
        has = ", ".join(sorted({run.protocol or "" for run in runs}))
        raise HolmesError(
            f"{folder} has no run of the protocol '{protocol}', only {has}; train one with --protocol."
        )
    unfinished = [run for run in chosen if not (run.checkpoint / MANIFEST).exists()]
    if unfinished:
        raise HolmesError(f"{unfinished[0].path} has no checkpoint yet; go on with its 'holmes train'.")
    return chosen


def store_of(run: RunFolder, given: Path | None) -> Store:
    """The store that is asked for, or the one the run was trained on."""
    if given is not None:
        return Store.open(given)
    if run.about is None:
        raise HolmesError(f"{run.path} is a checkpoint and remembers no store; give one with --store.")
    path = Path(run.about["store"])
    if not path.exists():
        raise HolmesError(
            f"{run.path} was trained on {path}, which is gone; say with --store where it is now."
        )
    store = Store.open(path)
    if store.info.digest != run.about["data"]["store"]:
        raise HolmesError(
            f"{path} has changed since {run.path} was trained; to evaluate on it, give --store."
        )
    return store


@dataclass(frozen=True)
class Revisited:
    """A run's best checkpoint on a split: what it sees, and the report on it."""

    run: RunFolder
    checkpoint: Checkpoint
    store: Store
    seen: Evaluated
    report: dict[str, Any]

    def queries(self) -> QueryTable:
        """One row a query."""
        calibration = read_calibration(self.checkpoint.extras.get(EXTRA), self.checkpoint.digest)
        temperature = self.checkpoint.config.evidence.inter_temperature
        return query_table(self.seen, self.store, calibration, temperature)


def queries(
    run: Path | str, store: Path | str | None = None, split: str = "test", device: str = "auto"
) -> QueryTable:
    """Everything about every query of a split, from a run or a checkpoint: a table, one row a query."""
    (found,) = find_runs(Path(run))[:1]
    where = store_of(found, None if store is None else Path(store))
    return revisit(found, where, split, choose_device(device)).queries()


def evaluate_runs(
    runs: list[RunFolder],
    store: Path | None,
    split: str,
    device: torch.device,
    each: Callable[[Revisited], None] = lambda found: None,
) -> dict[str, Any]:
    """The report of every run, and the figures of each setting and protocol over its seeds.

    `each` is called with every run as it was seen, of which only the report is kept.
    """
    reports, summary = {}, {}
    for name, some in group_runs(runs).items():
        ranks = []
        for run in some:
            found = revisit(run, store_of(run, store), split, device)
            reports[run.path] = found.report | {"group": name}
            ranks.append(found.seen.rank_Q)
            each(found)
        metrics = [reports[run.path]["metrics"] for run in some]
        summary[name] = spread_with_intervals(metrics, np.stack(ranks), found.seen.split.owner)
    return {
        "format": "holmes-evaluation",
        "version": 1,
        "summary": summary,
        "reports": [reports[run.path] for run in runs],
    }


def evaluate_run(run: RunFolder, store: Store, split_name: str, device: torch.device) -> dict[str, Any]:
    """The whole report of a run on a split."""
    return revisit(run, store, split_name, device).report


def revisit(run: RunFolder, store: Store, split_name: str, device: torch.device) -> Revisited:
    """Load a run's best checkpoint and evaluate it."""
    checkpoint = load_checkpoint(run.checkpoint, str(device))
    config = checkpoint.config
    refuse_other_widths(checkpoint, store)
    split = store.split(split_name)
    dtype = torch.float16 if device.type == "cuda" else torch.float32
    bank = FeatureBank(store, device, splits=[split], dtype=dtype)
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
    return Revisited(run, checkpoint, store, seen, report)


def refuse_other_widths(checkpoint: Checkpoint, store: Store) -> None:
    model, info = checkpoint.config.model, store.info
    ours, theirs = (model.video_width, model.text_width), (info.video_width, info.text_width)
    if ours != theirs:
        raise HolmesError(
            f"the model takes features of widths {ours[0]} (video) and {ours[1]} (text), {store.path} has "
            f"{theirs[0]} and {theirs[1]}; it needs a store packed from the same features."
        )
    for name in ("frames", "clips", "tokens"):
        if getattr(model, name) != getattr(info, name):
            raise HolmesError(
                f"the model takes {getattr(model, name)} {name}, {store.path} was packed with "
                f"{getattr(info, name)}; pack it again with --{name} {getattr(model, name)}."
            )
