"""`holmes report`: a run as one page of figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holmes.cli.options import Device, say
from holmes.errors import HolmesError
from holmes.printable import printable

if TYPE_CHECKING:
    from holmes.evaluation.tables import Grid
    from holmes.plots.confidence_figures import Sureness
    from holmes.plots.report_data import ReportData
    from holmes.runs.evaluated import Revisited, RunFolder


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run, or a checkpoint.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="The page.", show_default="RUN/report.html")
    ] = None,
    store: Annotated[
        Path | None, typer.Option(help="The store to look at.", show_default="the run's own")
    ] = None,
    split: Annotated[str, typer.Option(help="The split to look at.")] = "test",
    compare: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="A second run to set beside it, such as one with --set intra=0."),
    ] = None,
    video: Annotated[
        str | None, typer.Option(metavar="ID", help="The transport's video.", show_default="a typical one")
    ] = None,
    query: Annotated[
        str | None, typer.Option(metavar="ID", help="The timeline's query.", show_default="three of them")
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Save the figures as SVG and PDF too.")
    ] = None,
    device: Device = "auto",
) -> None:
    """Write one self-contained page: results, training curves, kinds of query, moments on the timeline."""
    from holmes.plots.page import write_page
    from holmes.plots.report_pictures import report_pictures
    from holmes.plots.report_sections import report_sections

    folders = [run] if compare is None else [run, compare]
    data = gather([one_run(folder) for folder in folders], store, split, video, query, device)
    target = run / "report.html" if out is None else out
    sureness = look_at_confidence(one_run(run), store, split, device)
    write_page(target, data.title, data.lead, report_sections(data, [sureness.section]))
    if figures is not None:
        for picture in (*report_pictures(data).values(), *sureness.pictures):
            picture.save(figures)
    typer.echo(printable(str(target)))


def look_at_confidence(run: RunFolder, store: Path | None, split: str, device: str) -> Sureness:
    """How far the run's confidence can be trusted; or why that is not known."""
    from holmes.confidence.confidence_tables import uncertainty_grids
    from holmes.confidence.readers import find_reader
    from holmes.plots.confidence_figures import no_sureness, sureness
    from holmes.runs.evaluated import store_of
    from holmes.runs.run_confidence import run_uncertainty
    from holmes.training.device import choose_device

    say("measuring the confidence")
    try:
        found = run_uncertainty(
            run,
            store_of(run, store),
            split,
            choose_device(device),
            find_reader=find_reader,
        )
    except HolmesError as error:
        return no_sureness(str(error))
    return sureness(found, [*uncertainty_grids(run.path.name, found)])


def one_run(folder: Path) -> RunFolder:
    from holmes.runs.evaluated import find_runs

    runs = find_runs(folder)
    if len(runs) > 1:
        names = ", ".join(run.path.name for run in runs)
        raise HolmesError(f"{folder} holds {len(runs)} runs ({names}); a report is about one of them.")
    return runs[0]


def gather(
    runs: list[RunFolder],
    store_path: Path | None,
    split_name: str,
    video: str | None,
    query: str | None,
    device_name: str,
) -> ReportData:
    """Everything the page says, from the best checkpoint of a run, or of two, and a store."""
    import torch

    from holmes.config.schema import to_dict
    from holmes.data.bank import FeatureBank
    from holmes.encoders.checkpoint import load_checkpoint
    from holmes.evaluation.intervals import spread_with_intervals
    from holmes.evaluation.literature import published
    from holmes.evaluation.tables import report_grids, results_grid
    from holmes.plots.report_data import Account, ReportData
    from holmes.report.figure_data import figure_data
    from holmes.runs.evaluated import refuse_other_widths, revisit, store_of
    from holmes.training.assemble import build_objective
    from holmes.training.device import choose_device
    from holmes.training.logbook import read_metrics

    device, store = choose_device(device_name), store_of(runs[0], store_path)
    split = store.split(split_name)
    checkpoints = [load_checkpoint(run.checkpoint, str(device)) for run in runs]
    for checkpoint in checkpoints:
        refuse_other_widths(checkpoint, store)

    say(f"looking at the {split_name} split of {store.path}")
    bank = FeatureBank(
        store, device, splits=[split], dtype=torch.float16 if device.type == "cuda" else torch.float32
    )
    objective = build_objective(checkpoints[0].config)
    figures = figure_data(checkpoints, bank, split, objective, video, query)

    say(f"evaluating {' and '.join(str(run.path) for run in runs)}")
    seen = [revisit(run, store, split_name, device) for run in runs]
    accounts = [
        Account(one.report, to_dict(checkpoint.config), read_metrics(run.path))
        for one, checkpoint, run in zip(seen, checkpoints, runs, strict=True)
    ]

    say("drawing")
    found = accounts[0].evaluation
    names = [f"this run, {found['protocol'] or 'checkpoint'}"]
    names += [f"{one.run.path.name}, {one.report['protocol'] or 'checkpoint'}" for one in seen[1:]]
    ours = {
        name: spread_with_intervals([one.report["metrics"]], one.seen.rank_Q[None], split.owner)
        for name, one in zip(names, seen, strict=True)
    }
    title = f"Recall on the {split_name} split, %"
    return ReportData(
        run=accounts[0],
        figures=figures,
        results=results_grid(title, ours, published(found["preset"]), found["collection"]),
        details=[*report_grids("Recall", found)],
        other=accounts[1] if len(accounts) > 1 else None,
        comparison=compared(names, seen) if len(seen) > 1 else (),
    )


def compared(names: list[str], seen: list[Revisited]) -> list[Grid]:
    """This run against the other, on the same draws of videos; and each group of queries."""
    from holmes.evaluation.breakdown import groups_of
    from holmes.evaluation.comparison import System, compare_systems
    from holmes.evaluation.comparison_tables import difference_grid, group_grids

    systems = [System(name, one.seen.rank_Q[None]) for name, one in zip(names, seen, strict=True)]
    split = seen[0].seen.split
    found = compare_systems(systems[::-1], split.owner, groups_of(seen[0].store, split))
    return [difference_grid(found), *group_grids(found)]
