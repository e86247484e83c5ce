"""`holmes report`: a page of figures about a run or a file of scores."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holmes.base.printing import printable
from holmes.base.progress import progress_bar
from holmes.cli.options import AlsoFits, Device, SplitToRead, StoreOfRun, say, share_cores
from holmes.errors import HolmesError


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run, a checkpoint, or a file of scores.")],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.html",
            help="The page to write.",
            show_default="RUN/report.html",
        ),
    ] = None,
    store: StoreOfRun = None,
    split: SplitToRead = "test",
    compare: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="A second run to compare it with, such as one with --set intra=0."),
    ] = None,
    video: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="The video whose transport plan is drawn.", show_default="a typical one"
        ),
    ] = None,
    query: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The query whose timeline is drawn.", show_default="three of them"),
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Also save the figures as SVG and PDF.")
    ] = None,
    no_confidence: Annotated[
        bool,
        typer.Option("--no-confidence", help="Leave out the accuracy of the probabilities."),
    ] = False,
    held_out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="With a file of scores: those of held-out queries, to fit a calibration on."
        ),
    ] = None,
    held_out_split: Annotated[str, typer.Option(help="The split of these queries.")] = "val",
    also_fits: AlsoFits = None,
    device: Device = "auto",
) -> None:
    """Write one self-contained page: results, training curves, kinds of query, moments on the timeline."""
    share_cores()
    from holmes.evaluation.score_files import is_score_file
    from holmes.report.figures.confidence import unmeasured
    from holmes.report.figures.page import write_page
    from holmes.report.figures.report import report_pictures, report_sections
    from holmes.report.run import confidence_of_file, confidence_of_run, one_run, report_data

    is_file = is_score_file(run)
    if held_out is not None and not is_file:
        raise HolmesError("--held-out goes with a file of scores; a run has its own calibration.")
    folders = [run] if compare is None else [run, compare]
    runs = [one_run(folder) for folder in folders]
    data = report_data(runs, store, split, video, query, device, say, also_fits)
    target = out or (run.with_suffix(".html") if is_file else run / "report.html")
    if no_confidence:
        confidence = unmeasured("it was not asked for (--no-confidence).")
    elif held_out is not None:
        confidence = confidence_of_file(run, held_out, held_out_split, store, split)
    elif is_file:
        confidence = unmeasured("scores alone give no probability; --held-out FILE gives one.")
    else:
        confidence = confidence_of_run(one_run(run), store, split, device)
    pictures = report_pictures(data)
    with progress_bar("drawing", len(pictures)) as advance:
        sections = report_sections(data, [confidence.section], advance)
    write_page(target, data.title, data.lead, sections)
    if figures is not None:
        for picture in (*pictures.values(), *confidence.pictures):
            picture.save(figures)
    typer.echo(printable(str(target)))
