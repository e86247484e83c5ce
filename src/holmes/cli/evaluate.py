"""`holmes evaluate`: how good a trained model is, and where."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holmes.cli.options import Device, Form, check_form, counted, parse_protocols, say, show
from holmes.errors import HolmesError

if TYPE_CHECKING:
    from holmes.evaluation.runs.evaluate import EvaluatedRun


def evaluate(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="A run, a folder of runs over seeds, a checkpoint, or a published file."
        ),
    ],
    on: Annotated[
        Path | None,
        typer.Argument(metavar="STORE", help="The store to evaluate on.", show_default="the run's own"),
    ] = None,
    store: Annotated[
        Path | None, typer.Option(help="The same, as an option.", show_default="the run's own")
    ] = None,
    split: Annotated[str, typer.Option(help="The split to evaluate on.")] = "test",
    protocol: Annotated[
        str | None,
        typer.Option(help="Only runs of this protocol: honest or published.", show_default="all"),
    ] = None,
    uncertainty: Annotated[
        bool,
        typer.Option("--uncertainty", help="Also measure how far the model's confidence can be trusted."),
    ] = False,
    abstain_below: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            metavar="P",
            help="With --uncertainty: what remains if less probable hits are withheld.",
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
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write everything as JSON.")] = None,
    form: Form = None,
    device: Device = "auto",
) -> None:
    """Measure recall, also by kind and length of query and by length of moment, and how moments are found.

    Runs that differ only in their seed are summarised; other settings are shown side by side.
    """
    from holmes.base.devices import choose_device
    from holmes.base.files import write_json
    from holmes.evaluation.literature import published_figures
    from holmes.evaluation.per_query import QueryTable, writer_of
    from holmes.evaluation.runs.evaluate import evaluate_runs
    from holmes.evaluation.runs.folders import find_runs
    from holmes.evaluation.tables import report_grids, results_grid

    check_form(form)
    if on is not None and store is not None and on != store:
        raise HolmesError(f"two stores are named, {on} and {store}; name one.")
    store = on or store
    if queries is not None:
        writer_of(queries)  # refuses an unknown ending before anything is computed
    protocols = parse_protocols(protocol or "both")
    runs = find_runs(run, protocols[0] if len(protocols) == 1 else None)
    tables: list[QueryTable] = []

    def keep(evaluated: EvaluatedRun) -> None:
        if queries is not None:
            table = evaluated.queries()
            tables.append(table.with_column("run", evaluated.run.path.name) if len(runs) > 1 else table)

    found = evaluate_runs(runs, store, split, choose_device(device), keep)
    if uncertainty or abstain_below is not None or other is not None:
        from holmes.evaluation.runs.confidence import add_uncertainty

        add_uncertainty(found, runs, store, split, choose_device(device), other, abstain_below, tell=say)
    ours = {f"ours, {name}": figures for name, figures in found["summary"].items()}
    first = found["reports"][0]
    title = f"{run} on {Path(first['store']).name}, {split} split"
    grids = [results_grid(title, ours, published_figures(first["preset"]), first["collection"])]
    grids += report_grids(Path(first["run"]).name, first)
    if "uncertainty" in found:
        from holmes.evaluation.confidence.tables import uncertainty_grids

        measured = [report for report in found["reports"] if "uncertainty" in report]
        for report in measured[:1]:
            grids += uncertainty_grids(Path(report["run"]).name, report)
        if len(measured) > 1:
            say(
                f"the figures of the other {len(measured) - 1} runs and the means are in the JSON that "
                "--json writes"
            )
    show(*grids, form=form)
    if queries is not None:
        QueryTable.joined(tables).save(queries)
        say(f"wrote {queries}: {counted(sum(map(len, tables)), 'row')}")
    if json is not None:
        write_json(json, found)
