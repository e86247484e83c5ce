"""`holmes reproduce`: the paper's tables, from the field's feature folders."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holmes.cli.options import (
    Device,
    Jobs,
    Seeds,
    Settings,
    configured,
    parse_seeds,
    parse_settings,
    say,
    show,
)


def reproduce(
    data: Annotated[
        Path,
        typer.Argument(metavar="DATA", help="A folder with the field's features: zip files or unpacked."),
    ],
    out: Annotated[
        Path, typer.Option(metavar="RESULTS", help="A folder for stores, runs, tables, the page.")
    ],
    tables: Annotated[
        str,
        typer.Option(metavar="NAME,NAME,…", help="Of main, efficiency, ablation, sweeps, figures."),
    ] = "main",
    datasets: Annotated[
        str,
        typer.Option(metavar="NAME,NAME,…", help="Of activitynet, charades, tvr.", show_default="all found"),
    ] = "",
    seeds: Seeds = "0",
    plus: Annotated[bool, typer.Option("--plus", help="Also train the recipes beyond the paper.")] = False,
    baselines: Annotated[bool, typer.Option("--baselines", help="Also train the other methods.")] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print what would run and how long it would take; write nothing.")
    ] = False,
    settings: Settings = None,
    jobs: Jobs = 1,
    device: Device = "auto",
) -> None:
    """Reproduce the paper's tables with your features; run it again to continue after an interruption.

    Writes RESULTS/index.html, RESULTS/tables/*.tex and RESULTS/provenance.json.
    """
    from holmes.base.devices import device_named
    from holmes.errors import HolmesError
    from holmes.reproduce.finding import find, missing_lines, refuse_data_as_results
    from holmes.reproduce.plan import Request, make_plan, refuse_empty
    from holmes.reproduce.published import COLLECTIONS

    configured("tvr", settings)  # refuses unknown settings before anything is read
    device_named(device)
    request = Request(
        data=data,
        out=out,
        tables=tuple(tables.split(",")),
        collections=tuple(datasets.split(",")) if datasets else tuple(COLLECTIONS),
        seeds=tuple(parse_seeds(seeds)),
        settings=parse_settings(settings),
        plus=plus,
        baselines=baselines,
        jobs=jobs,
        device=device,
    )
    if (line := refuse_data_as_results(data, out)) is not None:
        say(line)
    findings = find(data, without=out)
    for line in missing_lines(findings, request.collections):
        say(line)
    here = [name for name in request.collections if name in findings.usable]
    if not here:
        raise HolmesError(f"{data} holds no usable data set of {', '.join(request.collections)}.")
    runs = make_plan(request, here)
    refuse_empty(request, runs, here)
    if plan:
        from holmes.reproduce.plan import plan_grids

        show(*plan_grids(request, findings, runs))
        return
    from holmes.reproduce.run import reproduce as run

    grids = run(request, findings, runs, say)
    show(*grids.values())
    typer.echo(str(out / "index.html"))
