"""Score files, and methods without training, as runs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from holmes.data.store import Split, Store
from holmes.encoders.tf_prvr import best_frame_scores, moment_scores, moments_of
from holmes.errors import HolmesError, unknown
from holmes.evaluation.confidence.answered import answers_of
from holmes.evaluation.confidence.measure import REPEATS, drawn_figures, with_intervals
from holmes.evaluation.confidence.readers import find_joint_model
from holmes.evaluation.intervals import bootstrap_counts, over_seeds
from holmes.evaluation.runs.evaluate import EvaluatedRun, evaluate_scores
from holmes.evaluation.runs.folders import RunFolder
from holmes.evaluation.score_files import read_scores, save_scores
from holmes.evidence.fitting import fit_calibration
from holmes.records import Scores
from holmes.results import evaluation_file, summary_of
from holmes.training.calibrate import fitting_videos

Each = Callable[[EvaluatedRun], None]
Videos = list[NDArray[np.floating]]
Encode = Callable[[Sequence[str]], NDArray[np.float32]]  # sentences to a joint model's vectors
METHODS: dict[str, Callable[[NDArray[np.float32], Videos], NDArray[np.float32]]] = {
    "zero_shot": best_frame_scores,
    "tf_prvr": lambda query_QD, videos: moment_scores(query_QD, [moments_of(frames) for frames in videos]),
}
SPREAD = 0.1  # scores are judged with the deviation that cosines have, whatever their units


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
            "others than it is measured on. Name another split with --held-out-split."
        )
    held_matrix, owner_Q = read_scores(held_out).aligned(store, held), torch.from_numpy(held.owner)
    mean, unit = held_matrix.mean(), (held_matrix.std() or 1.0) / SPREAD
    before, scores = (twice((each - mean) / unit) for each in (held_matrix, matrix))
    calibration = fit_calibration(before, owner_Q, 0.5, 0.5, file.digest, fitting_videos(store, held))
    if calibration is None:
        raise HolmesError(
            f"{held_out}: no calibration can be fitted; its queries are too few, or none finds its video."
        )
    found = evaluate_scores(RunFolder(path, None), matrix, file.digest, store, split, also_fits, calibration)
    answers = answers_of(scores, torch.from_numpy(split.owner), calibration)
    values = drawn_figures(
        answers, answers_of(before, owner_Q, calibration), bootstrap_counts(split.owner, REPEATS)
    )
    report = found.report | {"uncertainty": with_intervals(values)}
    found = replace(found, seen=replace(found.seen, scores=scores), report=report)
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
    matrix = training_free_scores(store, split, method, find_joint_model(store))
    if save is not None:
        save_scores(save, matrix, store, split)
    digest = hashlib.sha256(np.ascontiguousarray(matrix).tobytes()).hexdigest()
    found = evaluate_scores(RunFolder(Path(method), None), matrix, digest, store, split, also_fits)
    each(found)
    return as_evaluation(found)


def as_evaluation(found: EvaluatedRun) -> dict[str, Any]:
    """The same form that `evaluate_runs` has."""
    name, seen, report = found.run.path.name, found.seen, found.report
    summary = {name: summary_of(over_seeds([report["metrics"]], seen.rank_Q[None], seen.split.owner))}
    fitting = {}
    if seen.fitting_Q is not None:
        drawn = over_seeds([report["metrics_fitting"]], seen.fitting_Q[None], seen.split.owner)
        fitting[name] = summary_of(drawn)
    return evaluation_file(summary, [report | {"group": name}], fitting, {})


def twice(matrix: NDArray[np.float64]) -> Scores:
    """Scores without branches: both are the same."""
    score_QV = torch.from_numpy(np.ascontiguousarray(matrix))
    return Scores(score_QV, score_QV)


def training_free_scores(
    store: Store, split: Split, method: str, encode: Encode | None = None
) -> NDArray[np.float32]:
    """Q × V by a method that is not trained. The store must hold vectors of one joint model.

    A query is one vector. Where a store has several tokens of it, `encode` makes one of each sentence.
    """
    if method not in METHODS:
        raise unknown("method", method, METHODS)
    info, starts = store.info, store.token_offsets
    if info.video_width != info.text_width:
        raise HolmesError(
            f"{store.path} has frames of width {info.video_width} and text of width {info.text_width}; "
            f"'{method}' compares them as they are, so both must come from one joint model, such as CLIP."
        )
    if (np.diff(starts)[split.queries] == 1).all():
        query_QD = np.asarray(store.tokens[starts[split.queries]], np.float32)
    elif encode is not None:
        query_QD = np.asarray(encode([store.captions[query] for query in split.queries]), np.float32)
    else:
        raise HolmesError(
            f"{store.path} has several token vectors of a query, and does not name one joint model of its "
            f"frames and sentences; '{method}' needs one sentence vector each. Make the store with 'holmes "
            "data caption --text MODEL', with the model that the frames were extracted with."
        )
    frames = [
        np.asarray(store.frames[slice(*store.frame_offsets[video : video + 2])], np.float32)
        for video in split.videos
    ]
    return METHODS[method](query_QD, frames)
