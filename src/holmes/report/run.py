"""The report of a run: figures, tables and confidence of its best checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from holmes.base.devices import choose_device
from holmes.base.progress import progress_bar
from holmes.config.presets import PRESETS
from holmes.config.schema import HolmesConfig, to_dict
from holmes.data.store import Split, Store
from holmes.errors import HolmesError
from holmes.evaluation.comparison import System, compare_systems
from holmes.evaluation.confidence.measure import STEPS
from holmes.evaluation.confidence.readers import find_reader
from holmes.evaluation.confidence.tables import confidence_grid, uncertainty_grids
from holmes.evaluation.grid import Grid
from holmes.evaluation.intervals import over_seeds
from holmes.evaluation.literature import published_figures
from holmes.evaluation.runs.confidence import run_uncertainty
from holmes.evaluation.runs.evaluate import EvaluatedRun, evaluate_run
from holmes.evaluation.runs.folders import RunFolder, find_runs, store_of
from holmes.evaluation.runs.scores import evaluate_score_file
from holmes.evaluation.split_report import groups_of
from holmes.evaluation.tables import (
    FITTING,
    difference_grids,
    far_cutoffs,
    group_grids,
    report_grids,
    results_grid,
)
from holmes.report.figures.confidence import ConfidencePart, confidence_part, confidence_tables, unmeasured
from holmes.report.figures.report import FigureData, ReportData, ReportedRun
from holmes.report.kinds import PartitionRules, kind_examples, sample_batch
from holmes.report.moments import Seen, find_query, find_video, timelines, transport, typical_video
from holmes.results import summary_of
from holmes.training.logbook import read_metrics
from holmes.training.setup import build_objective, warnings_of

OF_THE_STORE = {f"model.{name}" for name in ("video_width", "text_width", "frames", "clips", "tokens")}
CORRUPTED = 150  # captions that are read again for a page, each corrupted in three ways
Say = Callable[[str], None]  # called with what is being done, for the person who waits


def one_run(folder: Path) -> RunFolder:
    """The run in a folder; a folder with several is refused."""
    runs = find_runs(folder)
    if len(runs) > 1:
        names = ", ".join(run.path.name for run in runs)
        raise HolmesError(f"{folder} holds {len(runs)} runs ({names}); a report is about one of them.")
    return runs[0]


def report_data(
    runs: list[RunFolder],
    store_path: Path | None,
    split_name: str,
    video: str | None,
    query: str | None,
    device_name: str,
    say: Say = lambda line: None,
    also_fits: Path | None = None,
) -> ReportData:
    """Everything the page says, from the best checkpoint of a run, or of two, and a store.

    A file of scores counts as a run. It has no embeddings, so the figures that show them are left out.
    """
    device, store = choose_device(device_name), store_of(runs[0], store_path)
    split = store.split(split_name)
    row = None if query is None else find_query(store, split, query)
    video_position = None if video is None else find_video(store, split, video)

    say(f"evaluating {' and '.join(str(run.path) for run in runs)} on the {split_name} split of {store.path}")
    seen = [evaluate_run(run, store, split_name, device, also_fits) for run in runs]
    figures = None
    if all(one.checkpoint is not None for one in seen):
        config = seen[0].model.config
        models = [Seen.of(one.seen, one.model.config.score) for one in seen]
        figures = figure_data(models, store, split, config, build_objective(config), video_position, row)
    elif video_position is not None or row is not None:
        raise HolmesError("--video and --query choose what is drawn of a model; a file of scores has none.")
    accounts = [reported_run(one) for one in seen]

    found = accounts[0].evaluation
    names = [f"this run, {kind_of(seen[0])}"]
    names += [f"{one.run.path.name}, {kind_of(one)}" for one in seen[1:]]
    ours = {}
    for name, one in zip(names, seen, strict=True):
        ours[name] = summary_of(over_seeds([one.report["metrics"]], one.seen.rank_Q[None], split.owner))
        if one.seen.fitting_Q is not None:
            fits = over_seeds([one.report["metrics_fitting"]], one.seen.fitting_Q[None], split.owner)
            ours[f"{name}, {FITTING}"] = summary_of(fits)
    of = found["collection"] if seen[0].checkpoint is None else found["preset"]
    title = f"Recall on the {split_name} split, %"
    return ReportData(
        run=accounts[0],
        figures=figures,
        results=results_grid(title, ours, published_figures(of), found["collection"], len(split.videos)),
        far=far_cutoffs(len(split.videos)),
        details=[*report_grids("Recall", found)],
        other=accounts[1] if len(accounts) > 1 else None,
        comparison=compared(names, seen) if len(seen) > 1 else (),
    )


def kind_of(found: EvaluatedRun) -> str:
    """What was evaluated: a run by its protocol, a lone checkpoint, or scores."""
    return found.report["protocol"] or ("scores" if found.checkpoint is None else "checkpoint")


def reported_run(found: EvaluatedRun) -> ReportedRun:
    """What the page says of a run beside its figures."""
    if found.checkpoint is None:
        return ReportedRun(found.report, {}, [])
    config = found.model.config
    warnings = warnings_of(config)
    if found.calibration is None:
        warnings.append("no calibration: this model gives no probabilities and no kinds")
    history = read_metrics(found.run.path)
    return ReportedRun(found.report, to_dict(config), history, changed_settings(config), tuple(warnings))


def changed_settings(config: HolmesConfig) -> tuple[str, ...]:
    """The settings that differ from those of the preset, with the preset's value in brackets."""
    if config.name not in PRESETS:
        return ()
    ours, usual = to_dict(config), to_dict(PRESETS[config.name]())
    return tuple(
        f"{section}.{name} = {value} ({usual[section][name]})"
        for section, part in ours.items()
        if isinstance(part, dict)
        for name, value in part.items()
        if value != usual[section][name] and f"{section}.{name}" not in OF_THE_STORE
    )


def compared(names: list[str], seen: list[EvaluatedRun]) -> list[Grid]:
    """Tables of this run against the other on the same draws of videos, also for each group of queries."""
    systems = [
        System(name, one.seen.rank_Q[None], None if one.seen.fitting_Q is None else one.seen.fitting_Q[None])
        for name, one in zip(names, seen, strict=True)
    ]
    split = seen[0].seen.split
    found = compare_systems(systems[::-1], split.owner, groups_of(seen[0].store, split))
    found["videos"] = len(split.videos)
    return [*difference_grids(found), *group_grids(found)]


def confidence_of_file(
    scores: Path, held_out: Path, held_out_split: str, store: Path | None, split: str
) -> ConfidencePart:
    """How far a calibration that is fitted on held-out scores can be trusted."""
    where = store_of(RunFolder(scores, None), store)
    found = evaluate_score_file(scores, where.path, split, held_out, held_out_split)
    return confidence_tables([confidence_grid(found["uncertainty"], f"Confidence of {scores.name}")])


def confidence_of_run(run: RunFolder, store: Path | None, split: str, device: str) -> ConfidencePart:
    """How far the run's confidence can be trusted; or why that is not known."""
    try:
        with progress_bar("measuring the confidence", STEPS) as advance:
            found = run_uncertainty(
                run,
                store_of(run, store),
                split,
                choose_device(device),
                reader_of=find_reader,
                advance=advance,
                most_corrupted=CORRUPTED,
            )
    except HolmesError as error:
        return unmeasured(str(error))
    return confidence_part(found, [*uncertainty_grids(run.path.name, found)])


@torch.inference_mode()
def figure_data(
    models: Sequence[Seen],
    store: Store,
    split: Split,
    config: HolmesConfig,
    rules: PartitionRules,
    video: int | None = None,
    query: int | None = None,
) -> FigureData:
    """What the first model makes of a split; a second one is drawn beside it along the timelines.

    `video` and `query`, positions in the split, choose what the transport and the timelines show; otherwise
    typical ones are taken.
    """
    seen = models[0]
    batch = sample_batch(seen, rules, config.training.batch_videos)
    if video is None:
        video = typical_video(seen, store, split, config.alignment, batch.videos_V.tolist())
    return FigureData(
        planes=(batch.frame, batch.clip),
        batch_videos=len(batch.videos_V),
        examples=kind_examples(seen, batch, store, split),
        transport=transport(seen, store, split, config.alignment, video),
        timelines=timelines([*models], store, split, query),
    )
