"""`holmes compare`: runs side by side, and whether their differences mean anything."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holmes.cli.options import (
    AlsoFits,
    Device,
    Form,
    JsonFile,
    OnlyProtocol,
    SplitToRead,
    check_form,
    parse_protocols,
    say,
    show,
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
    """Put runs side by side: recall with intervals, also by kind and length, and paired differences.

    Intervals and p-values come from a bootstrap over videos, and over seeds if there are several; all
    systems are measured on the same drawn videos. Differences are relative to the first RUN.
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
