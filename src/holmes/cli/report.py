"""`holmes report`: a run as one page of figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holmes.base.printing import printable
from holmes.cli.options import Device, say


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run, or a checkpoint.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="The page to write.", show_default="RUN/report.html"),
    ] = None,
    store: Annotated[
        Path | None, typer.Option(help="The store to evaluate on.", show_default="the run's own")
    ] = None,
    split: Annotated[str, typer.Option(help="The split to evaluate on.")] = "test",
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
        typer.Option("--no-confidence", help="Leave out how far the confidence can be trusted."),
    ] = False,
    device: Device = "auto",
) -> None:
    """Write one self-contained page: results, training curves, kinds of query, moments on the timeline."""
    from holmes.report.figures.confidence import unmeasured
    from holmes.report.figures.page import write_page
    from holmes.report.figures.report import report_pictures, report_sections
    from holmes.report.run import gather, gather_confidence, one_run

    folders = [run] if compare is None else [run, compare]
    data = gather([one_run(folder) for folder in folders], store, split, video, query, device, say)
    target = run / "report.html" if out is None else out
    if no_confidence:
        confidence = unmeasured("it was not asked for (--no-confidence).")
    else:
        confidence = gather_confidence(one_run(run), store, split, device, say)
    write_page(target, data.title, data.lead, report_sections(data, [confidence.section]))
    if figures is not None:
        for picture in (*report_pictures(data).values(), *confidence.pictures):
            picture.save(figures)
    typer.echo(printable(str(target)))
