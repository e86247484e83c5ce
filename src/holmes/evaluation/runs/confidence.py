"""Find or fit the calibration of a trained run, and evaluate its confidence."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch

from holmes.data.bank import FeatureBank
from holmes.data.store import Split, Store
from holmes.errors import HolmesError
from holmes.evaluation.confidence.corruptions import Reader
from holmes.evaluation.confidence.measure import evaluate_uncertainty
from holmes.evaluation.confidence.readers import find_reader
from holmes.evaluation.runs.folders import RunFolder, refuse_other_features, store_of
from holmes.evidence.calibration import EXTRA, read_calibration
from holmes.training.calibrate import calibrate
from holmes.training.protocol import Protocol, calibration_split


class UncalibratedError(HolmesError):
    """A run that cannot say how sure it is."""


def add_uncertainty(
    found: dict[str, Any],
    runs: list[RunFolder],
    store: Path | None,
    split: str,
    device: torch.device,
    other: Path | None = None,
    abstain_below: float | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> None:
    """`uncertainty` and its details in every report, and the figures over the seeds of a setting."""
    elsewhere = None if other is None else Store.open(other)
    by_group: dict[str, list[Any]] = {}
    for report, run in zip(found["reports"], runs, strict=True):
        tell(f"measuring the confidence of {run.path}")
        try:
            report |= run_uncertainty(
                run, store_of(run, store), split, device, elsewhere, find_reader, abstain_below
            )
        except UncalibratedError as error:
            if len(runs) == 1:
                raise
            tell(f"left out: {error}")
            continue
        by_group.setdefault(report["group"], []).append(report["uncertainty"])
    if not by_group:
        raise HolmesError("none of these runs has a calibration; train one with --protocol honest.")
    means = {name: mean_figures(reports) for name, reports in by_group.items()}
    found["uncertainty"] = means.get("honest", next(iter(means.values())))
    found["uncertainty_by_protocol"] = means


def run_uncertainty(
    run: RunFolder,
    store: Store,
    split_name: str,
    device: torch.device,
    other: Store | None = None,
    reader_of: Callable[[Store], Reader | None] = lambda store: None,
    abstain_below: float | None = None,
    **options: Any,
) -> dict[str, Any]:
    """`evaluate_uncertainty` of a run's best checkpoint on a split of a store."""
    checkpoint = run.open_checkpoint(device)
    refuse_other_features(checkpoint, store)
    calibration = read_calibration(checkpoint.extras.get(EXTRA), checkpoint.digest)
    held, split = held_out_videos(run, store, checkpoint.config.training.held_out), store.split(split_name)
    bank = FeatureBank.of_splits(store, device, [split, *([held] if held else [])])
    if calibration is None and held is not None:
        calibration = calibrate(run.checkpoint, checkpoint, bank, held)
    if calibration is None:
        why = "no videos were held out" if held is None else "too few videos were held out"
        raise UncalibratedError(
            f"{run.path} has no calibration, and {why} to fit one; "
            "train it with --protocol honest, and a larger held_out if the collection is small."
        )
    if held is not None and np.isin(split.videos, held.videos).any():
        raise HolmesError(
            f"{run.path} was calibrated on videos of the split '{split_name}'; "
            "measure on another, such as test."
        )
    reader = reader_of(store)
    if other is not None and reader is None:
        refuse_other_text(checkpoint.config.model.text_width, other)
    return evaluate_uncertainty(
        checkpoint, bank, split, calibration, held, other, reader, abstain_below, **options
    )


def held_out_videos(run: RunFolder, store: Store, held_out: float) -> Split | None:
    """The videos a run was calibrated on, if this is the store it was trained on."""
    if run.about is None or run.about["data"]["store"] != store.info.digest:
        return None
    return calibration_split(store, Protocol(run.about["data"]["protocol"]), held_out, run.about["seed"])


def refuse_other_text(width: int, other: Store) -> None:
    if other.info.text_width != width:
        raise HolmesError(
            f"the queries of {other.path} have text features of width {other.info.text_width}, the model "
            f"takes {width}; name a store with the same text features."
        )


def mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def mean_figures(reports: list[dict[str, Any]]) -> dict[str, Any]:
    """`uncertainty` over several runs: values and interval bounds averaged."""
    first = reports[0]
    return {
        name: {
            figure: {part: mean(report[name][figure][part] for report in reports) for part in parts}
            for figure, parts in figures.items()
            if all(figure in report[name] for report in reports)
        }
        for name, figures in first.items()
    }
