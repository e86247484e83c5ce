"""Scores from outside, and methods without training, as runs like any other."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from holmes.data.store import Split, Store
from holmes.errors import HolmesError
from holmes.evaluation.confidence.answered import OURS, as_numpy, score_baselines
from holmes.evaluation.confidence.baselines import logistic_curve
from holmes.evaluation.confidence.measure import REPEATS, comparable
from holmes.evaluation.confidence.metrics import area_under_risk_coverage, auroc, calibration_error
from holmes.evaluation.intervals import bootstrap_counts, estimate, over_seeds
from holmes.evaluation.runs.evaluate import EvaluatedRun, evaluate_scores
from holmes.evaluation.runs.folders import RunFolder
from holmes.evaluation.score_files import read_scores, save_scores
from holmes.evaluation.training_free import training_free_scores
from holmes.evidence.calibration import Calibration
from holmes.evidence.fitting import fit_calibration, judge_all
from holmes.records import Scores
from holmes.results import evaluation_file, summary_of
from holmes.training.calibrate import fitting_videos

Each = Callable[[EvaluatedRun], None]


def evaluate_score_file(
    path: Path,
    store_path: Path,
    split_name: str,
    held_out: Path | None = None,
    held_out_split: str = "val",
    also_fits: Path | None = None,
    each: Each = lambda found: None,
) -> dict[str, Any]:
    """A score file on a split; with held-out scores also how far its confidence can be trusted."""
    store = Store.open(store_path)
    split, file = store.split(split_name), read_scores(path)
    matrix = file.aligned(store, split)
    if held_out is None:
        found = evaluate_scores(RunFolder(path, None), matrix, file.digest, store, split, also_fits)
        each(found)
        return as_evaluation(found)
    held = store.split(held_out_split)
    if np.isin(held.videos, split.videos).any():
        raise HolmesError(
            f"the splits '{held_out_split}' and '{split_name}' share videos; a calibration must be fitted on "
            "others than it is measured on."
        )
    held_out_matrix = read_scores(held_out).aligned(store, held)
    calibration = fit_calibration(
        twice(held_out_matrix),
        torch.from_numpy(held.owner),
        0.5,
        0.5,
        file.digest,
        fitting_videos(store, held),
    )
    if calibration is None:
        raise HolmesError(
            f"{held_out}: no calibration can be fitted; its queries are too few, or none finds its video."
        )
    found = evaluate_scores(RunFolder(path, None), matrix, file.digest, store, split, also_fits, calibration)
    report = found.report | {
        "uncertainty": confidence_of_scores(matrix, split, held_out_matrix, held, calibration)
    }
    found = replace(found, report=report)
    each(found)
    return as_evaluation(found) | {"uncertainty": report["uncertainty"]}


def evaluate_training_free(
    method: str,
    store_path: Path,
    split_name: str,
    save: Path | None = None,
    also_fits: Path | None = None,
    each: Each = lambda found: None,
) -> dict[str, Any]:
    """A method that is not trained, on a store of a joint model's vectors."""
    store = Store.open(store_path)
    split = store.split(split_name)
    matrix = training_free_scores(store, split, method)
    if save is not None:
        save_scores(save, matrix, store, split)
    digest = hashlib.sha256(np.ascontiguousarray(matrix).tobytes()).hexdigest()
    found = evaluate_scores(RunFolder(Path(method), None), matrix, digest, store, split, also_fits)
    each(found)
    return as_evaluation(found)


def as_evaluation(found: EvaluatedRun) -> dict[str, Any]:
    """The same form that `evaluate_runs` has."""
    name, seen, report = "scores", found.seen, found.report
    summary = {name: summary_of(over_seeds([report["metrics"]], seen.rank_Q[None], seen.split.owner))}
    fitting = {}
    if seen.fitting_Q is not None:
        drawn = over_seeds([report["metrics_fitting"]], seen.fitting_Q[None], seen.split.owner)
        fitting[name] = summary_of(drawn)
    return evaluation_file(summary, [report | {"group": name}], fitting, {})


def confidence_of_scores(
    matrix: NDArray[np.float32],
    split: Split,
    held_out_matrix: NDArray[np.float32],
    held: Split,
    calibration: Calibration,
) -> dict[str, Any]:
    """AURC, AUROC and ECE of the calibrated probability, and of what the scores alone give."""
    counts_BQ = bootstrap_counts(split.owner, REPEATS)
    scores, before = twice(matrix), twice(held_out_matrix)
    gallery = judge_all(scores, calibration).gallery
    plain, plain_held = score_baselines(scores, calibration), score_baselines(before, calibration)
    top1 = {OURS: as_numpy(gallery.probability_top(1)), **plain}
    top10 = {OURS: as_numpy(gallery.probability_top(10)), **plain}
    above_Q, held_above_Q = videos_above(matrix, split), videos_above(held_out_matrix, held)
    found = {}
    for name, confidence_Q in top1.items():
        probability_Q = confidence_Q
        if name != OURS:
            curve = logistic_curve(comparable(name, plain_held[name]), held_above_Q == 0)
            probability_Q = curve(comparable(name, confidence_Q))
        figures = {
            "aurc": area_under_risk_coverage(confidence_Q, above_Q == 0, counts_BQ),
            "auroc_top1": auroc(confidence_Q, above_Q == 0, counts_BQ),
            "auroc_top10": auroc(top10[name], above_Q < 10, counts_BQ),
            "ece": calibration_error(probability_Q, above_Q == 0, counts_BQ),
        }
        found[name] = {figure: estimate(values_B).to_json() for figure, values_B in figures.items()}
    return found


def twice(matrix: NDArray[np.float32]) -> Scores:
    """Scores without branches: both are the same."""
    score_QV = torch.from_numpy(np.ascontiguousarray(matrix))
    return Scores(score_QV, score_QV)


def videos_above(matrix: NDArray[np.float32], split: Split) -> NDArray[np.int64]:
    """How many other videos score at least as high as the right one."""
    own_Q1 = np.take_along_axis(matrix, split.owner[:, None], 1)
    return np.asarray((matrix >= own_Q1).sum(1) - 1)
