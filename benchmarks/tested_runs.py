"""Finished runs on the test split; the options and tables of the scripts that tune."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from worlds import REAL, world_stores

from holmes.base.devices import choose_device
from holmes.base.files import read_json
from holmes.data.bank import FeatureBank
from holmes.data.store import Split, Store
from holmes.encoders.build import build_model
from holmes.encoders.checkpoint import Checkpoint, load_checkpoint
from holmes.evaluation.confidence.answered import as_numpy
from holmes.evaluation.confidence.metrics import area_under_risk_coverage, calibration_error
from holmes.evaluation.intervals import bootstrap_counts
from holmes.evaluation.recall import rank_of_owner, retrieval_metrics
from holmes.evaluation.scoring import encode_split, score_all
from holmes.evaluation.split_report import agreement, partition
from holmes.evidence.calibration import EXTRA, read_calibration
from holmes.evidence.fitting import judge_all
from holmes.training.optimizer import FlatAdam
from holmes.training.resume import StateKeeper
from holmes.training.setup import build_identifier

FIGURES = ("R@1", "R@5", "R@10", "SumR", "ECE", "AURC", "SumR, last epoch")
KINDS = "macro-F1"  # where the store knows the kinds of its queries
SEEDS = "0,1,2,3,4,5,6,7"
TRIALS = 60


@dataclass(frozen=True)
class TestSplit:
    """The test split of a store, on the device once for all runs."""

    store: Store
    split: Split
    bank: FeatureBank

    @classmethod
    def of(cls, path: Path, device: str) -> TestSplit:
        store = Store.open(path)
        split = store.split("test")
        return cls(store, split, FeatureBank.of_splits(store, choose_device(device), [split]))


@torch.inference_mode()
def on_test(folder: Path, held: TestSplit, last_epoch: bool = False) -> dict[str, float]:
    """A finished run's recall, calibration error and area under the risk-coverage curve on the test split.

    `last_epoch` also reads the weights after the last epoch, which takes longer than everything else.
    """
    checkpoint = load_checkpoint(folder / "best", str(held.bank.device))
    encoded = encode_split(checkpoint.model, held.bank, held.split)
    scores = score_all(encoded)
    figures = {
        name: float(value)
        for name, value in read_json(folder / "result.json")["metrics"].items()
        if name in FIGURES
    }
    if last_epoch:
        figures["SumR, last epoch"] = after_last_epoch(folder, checkpoint, held)
    kinds_Q = partition(
        scores, encoded.owner_Q, build_identifier(checkpoint.config), checkpoint.config.training.batch_videos
    )
    if (kinds := agreement(kinds_Q, held.store.kinds_Q[held.split.queries])) is not None:
        figures[KINDS] = kinds["macro_F1"]
    calibration = read_calibration(checkpoint.extras.get(EXTRA), checkpoint.digest)
    if calibration is None:
        return figures | {"ECE": float("nan"), "AURC": float("nan")}
    rank_Q = rank_of_owner(calibration.score(scores), encoded.owner_Q)
    probability_Q = as_numpy(judge_all(scores, calibration).gallery.probability_top(1))
    right_Q = (rank_Q == 1).cpu().numpy()
    once = bootstrap_counts(encoded.owner_Q.cpu().numpy(), repeats=0)
    return figures | {
        "ECE": float(calibration_error(probability_Q, right_Q, once)[0]),
        "AURC": float(area_under_risk_coverage(probability_Q, right_Q, once)[0]),
    }


def after_last_epoch(folder: Path, checkpoint: Checkpoint, held: TestSplit) -> float:
    """SumR on test with the weights after the last epoch, which no held-out video has chosen."""
    saved = StateKeeper(folder).load()
    if saved is None:
        return float("nan")
    model = build_model(checkpoint.config.model).to(held.bank.device).eval()
    FlatAdam(model).values.copy_(saved[1]["values"])
    return float(retrieval_metrics(model, held.bank, held.split, checkpoint.config.score)["SumR"])


def rounded(figures: dict[str, float]) -> dict[str, str]:
    return {
        name: f"{value:.3f}" if name in ("ECE", "AURC") else f"{value:.1f}" for name, value in figures.items()
    }


def markdown(title: str, rows: list[dict[str, Any]]) -> str:
    """A table for the documentation."""
    lines = [
        [str(value) for value in row.values()] for row in (dict(zip(rows[0], rows[0], strict=True)), *rows)
    ]
    lines.insert(1, ["---"] * len(rows[0]))
    return f"{title}\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines) + "\n"


def shared_options(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("benchmarks/results/tuning"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--only", help="one collection")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="fix a setting")
    parser.add_argument("--jobs", type=int, default=5, help="trainings at once (%(default)s)")
    return parser


def stores_of(options: argparse.Namespace, planted: int | None = None) -> dict[str, Path]:
    """The real collections, and the planted world where its number of videos is given; or the one chosen."""
    options.work.mkdir(parents=True, exist_ok=True)
    every = [*REAL, *([] if planted is None else ["planted"])]
    stores: dict[str, Path] = {}
    for name in [options.only] if options.only else every:
        stores |= world_stores(options.work, options.data, planted or 0, name)
    return stores


def again(script: str, options: argparse.Namespace) -> list[str]:
    """The command that runs a script with the same shared options."""
    words = [sys.executable, script, "--work", str(options.work), "--data", str(options.data)]
    words += ["--device", options.device, "--jobs", str(options.jobs)]
    return words + [word for change in options.set for word in ("--set", change)]


def seeds_of(options: argparse.Namespace) -> tuple[int, ...]:
    return tuple(map(int, options.seeds.split(",")))


def changes_of(options: argparse.Namespace) -> dict[str, str]:
    return dict(change.split("=", 1) for change in options.set)
