"""A run looked at again: its best checkpoint, on the store it was trained on or on another."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from holmes.data.bank import FeatureBank
from holmes.data.store import Store
from holmes.encoders.checkpoint import MANIFEST, Checkpoint, load_checkpoint
from holmes.errors import HolmesError
from holmes.evaluation.report import evaluate_split
from holmes.evaluation.spread import spread
from holmes.training.assemble import build_alignments, build_identifier
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


def evaluate_runs(
    runs: list[RunFolder], store: Path | None, split: str, device: torch.device
) -> dict[str, Any]:
    """The report of every run, and the figures of each protocol over its seeds."""
    reports = [evaluate_run(run, store_of(run, store), split, device) for run in runs]
    by_protocol: dict[str, list[dict[str, float]]] = {}
    for report in reports:
        by_protocol.setdefault(report["protocol"] or "checkpoint", []).append(report["metrics"])
    summary = {name: spread(metrics) for name, metrics in by_protocol.items()}
    return {"format": "holmes-evaluation", "version": 1, "summary": summary, "reports": reports}


def evaluate_run(run: RunFolder, store: Store, split_name: str, device: torch.device) -> dict[str, Any]:
    """The whole report of a run on a split."""
    checkpoint = load_checkpoint(run.checkpoint, str(device))
    config = checkpoint.config
    refuse_other_widths(checkpoint, store)
    split = store.split(split_name)
    dtype = torch.float16 if device.type == "cuda" else torch.float32
    bank = FeatureBank(store, device, splits=[split], dtype=dtype)
    return {
        "run": str(run.path),
        "preset": config.name,
        "protocol": run.protocol,
        "seed": None if run.about is None else run.about["seed"],
        "epoch": checkpoint.extras.get("epoch"),
        "checkpoint": checkpoint.digest,
        "store": str(store.path),
        "collection": store.info.collection,
        "trained_on_this_store": run.about is not None and run.about["data"]["store"] == store.info.digest,
        **evaluate_split(
            checkpoint.model,
            bank,
            split,
            config.score,
            build_identifier(config),
            build_alignments(config.alignment),
            config.training.batch_videos,
        ),
    }


def refuse_other_widths(checkpoint: Checkpoint, store: Store) -> None:
    model, info = checkpoint.config.model, store.info
    ours, theirs = (model.video_width, model.text_width), (info.video_width, info.text_width)
    if ours != theirs:
        raise HolmesError(
            f"the model takes features of widths {ours[0]} (video) and {ours[1]} (text), {store.path} has "
            f"{theirs[0]} and {theirs[1]}; it needs a store packed from the same features."
        )
