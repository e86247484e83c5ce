"""`holmes evaluate` and `holmes compare`: recall of trained models, and differences between runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holmes.cli.options import (
    AlsoFits,
    Device,
    Form,
    JsonFile,
    OnlyProtocol,
    SplitToRead,
    check_form,
    counted,
    parse_protocols,
    say,
    share_cores,
    show,
)
from holmes.errors import HolmesError

if TYPE_CHECKING:
    from holmes.evaluation.grid import Grid
    from holmes.evaluation.runs.evaluate import EvaluatedRun


def evaluate(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN",
            help="A run, a folder of runs over seeds, a checkpoint, or a published file; "
            "with --scores or --method the STORE.",
        ),
    ],
    on: Annotated[
        Path | None,
        typer.Argument(metavar="STORE", help="The store to evaluate on.", show_default="the run's own"),
    ] = None,
    store: Annotated[
        Path | None, typer.Option(help="The same, as an option.", show_default="the run's own")
    ] = None,
    split: SplitToRead = "test",
    protocol: OnlyProtocol = None,
    uncertainty: Annotated[
        bool,
        typer.Option("--uncertainty", help="Also measure how accurate the model's probabilities are."),
    ] = False,
    abstain_below: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            metavar="P",
            help="With --uncertainty: accuracy if less probable hits are withheld.",
        ),
    ] = None,
    other: Annotated[
        Path | None,
        typer.Option(
            metavar="STORE", help="With --uncertainty: a store whose queries have no answer in this one."
        ),
    ] = None,
    queries: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.jsonl|.parquet",
            help="Write one row per query: rank, scores, kind, u, ξ, c, probability, best moment, lengths.",
        ),
    ] = None,
    scores: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Evaluate a score matrix from any code: .npy, .npz, .h5 or .parquet, queries × videos.",
        ),
    ] = None,
    held_out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="With --scores: those of held-out queries, to fit a calibration on."
        ),
    ] = None,
    held_out_split: Annotated[
        str, typer.Option(metavar="SPLIT", help="The split that --held-out is about.")
    ] = "val",
    method: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Evaluate a method without training on a store of a joint model: zero_shot or tf_prvr.",
        ),
    ] = None,
    save_scores: Annotated[
        Path | None,
        typer.Option(metavar="FILE.npz", help="With --method: write its score matrix."),
    ] = None,
    also_fits: AlsoFits = None,
    json: JsonFile = None,
    form: Form = None,
    device: Device = "auto",
) -> None:
    """Measure recall, also by kind and length of query, and how well moments are found.

    Runs that differ only in their seed are averaged; other settings get rows of their own.
    """
    share_cores()
    from holmes.base.devices import choose_device
    from holmes.base.files import write_json
    from holmes.evaluation.per_query import QueryTable, writer_of
    from holmes.evaluation.runs.evaluate import evaluate_runs
    from holmes.evaluation.runs.folders import RunFolder, find_runs
    from holmes.evaluation.runs.scores import evaluate_score_file, evaluate_training_free

    check_form(form)
    if on is not None and store is not None and on != store:
        raise HolmesError(f"two stores are named, {on} and {store}; name one.")
    store = on or store
    if queries is not None:
        writer_of(queries)  # refuses an unknown ending before anything is computed
    protocols = parse_protocols(protocol or "both")
    measured = uncertainty or abstain_below is not None or other is not None
    if held_out is not None and scores is None:
        raise HolmesError("--held-out goes with --scores; a run has its own calibration.")
    if save_scores is not None and method is None:
        raise HolmesError("--save-scores goes with --method, such as --method zero_shot.")
    if scores is not None or method is not None:
        if scores is not None and method is not None:
            raise HolmesError("--scores and --method each name what to evaluate; give one of them.")
        if measured:
            raise HolmesError(
                "--uncertainty, --abstain-below and --other need a model; for scores, --held-out FILE "
                "measures the confidence."
            )
        if store is not None:
            raise HolmesError(f"two stores are named, {run} and {store}; name one.")
        run, store = scores or Path(method or ""), run
    runs = [RunFolder(run, None)] if method else find_runs(run, protocols[0] if len(protocols) == 1 else None)
    tables: list[QueryTable] = []

    def keep(evaluated: EvaluatedRun) -> None:
        if queries is not None:
            table = evaluated.queries()
            tables.append(table.with_column("run", evaluated.run.path.name) if len(runs) > 1 else table)

    if method is not None and store is not None:
        found = evaluate_training_free(method, store, split, save_scores, also_fits, keep)
    elif scores is not None and store is not None:
        found = evaluate_score_file(scores, store, split, held_out, held_out_split, also_fits, keep)
    else:
        found = evaluate_runs(runs, store, split, choose_device(device), keep, also_fits)
    if measured:
        from holmes.evaluation.runs.confidence import add_uncertainty

        add_uncertainty(found, runs, store, split, choose_device(device), other, abstain_below, tell=say)
    grids = [*figure_tables(found, run, split), *confidence_tables(found)]
    show(*grids, form=form)
    if queries is not None:
        QueryTable.joined(tables).save(queries)
        say(f"wrote {queries}: {counted(sum(map(len, tables)), 'row')}")
    if json is not None:
        write_json(json, found)


def figure_tables(found: dict[str, Any], run: Path, split: str) -> Iterator[Grid]:
    """Our figures beside published ones, then each setting by group."""
    from holmes.evaluation.literature import published_figures
    from holmes.evaluation.runs.evaluate import SCORES
    from holmes.evaluation.tables import FITTING, report_grids, results_grid

    first, ours = found["reports"][0], {}
    from_outside = first["preset"] == SCORES
    for name, figures in found["summary"].items():
        label = name if from_outside else f"ours, {name}"
        ours[label] = figures
        if name in found.get("summary_fitting", {}):
            ours[f"{label}, {FITTING}"] = found["summary_fitting"][name]
    title = f"{run} on {Path(first['store']).name}, {split} split"
    known = published_figures(first["collection"] if from_outside else first["preset"])
    yield results_grid(title, ours, known, first["collection"], first["videos"])
    for name in found["summary"]:
        of = f", {name}" if len(found["summary"]) > 1 else ""
        report = found.get("over_seeds", {}).get(name)
        if report is not None:
            yield from report_grids(f"{name}, {report['seeds']} seeds", report, of)
        else:  # a setting with a single run
            report = next(report for report in found["reports"] if report["group"] == name)
            yield from report_grids(Path(report["run"]).name, report, of)


def confidence_tables(found: dict[str, Any]) -> Iterator[Grid]:
    """How far the confidence of the first run can be trusted, where that was measured."""
    from holmes.evaluation.confidence.tables import confidence_grid, uncertainty_grids

    measured = [report for report in found["reports"] if "uncertainty" in report]
    if not measured:
        return
    first, name = measured[0], Path(measured[0]["run"]).name
    if "uncertainty_details" in first:
        yield from uncertainty_grids(name, first)
    else:
        yield confidence_grid(first["uncertainty"], f"Confidence of {name}")
    if len(measured) > 1:
        say(
            f"the figures of the other {len(measured) - 1} runs and the means are in the JSON that "
            "--json writes"
        )


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN…", help="Runs, or folders of runs over seeds; the first is the reference."
        ),
    ],
    store: Annotated[
        Path | None, typer.Option(help="The store to compare on.", show_default="the runs' own")
    ] = None,
    split: SplitToRead = "test",
    protocol: OnlyProtocol = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.html",
            help="Also write a page with the tables and the timelines of queries won and lost.",
        ),
    ] = None,
    also_fits: AlsoFits = None,
    json: JsonFile = None,
    form: Form = None,
    device: Device = "auto",
) -> None:
    """Compare runs: recall with intervals, also by kind and length, and paired differences.

    Intervals and p-values come from a bootstrap over videos, and over seeds if there are several; all
    systems are measured on the same draws. Differences are relative to the first RUN.
    """
    from holmes.base.devices import choose_device
    from holmes.base.files import write_json
    from holmes.evaluation.runs.compare import compare_runs, find_systems
    from holmes.evaluation.tables import comparison_grids

    check_form(form)
    protocols = parse_protocols(protocol or "both")
    groups = find_systems(runs, protocols[0] if len(protocols) == 1 else None)
    compared = compare_runs(groups, store, split, choose_device(device), say, also_fits)
    grids = comparison_grids(compared.report, f"{compared.firsts[0].store.path.name}, {split} split")
    show(*grids, form=form)
    if json is not None:
        write_json(json, compared.report)
    if out is not None:
        from holmes.report.comparison import write_comparison

        say("drawing")
        write_comparison(out, grids, compared)
        say(str(out))
