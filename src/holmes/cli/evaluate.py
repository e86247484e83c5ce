"""`holmes evaluate`: how good a trained model is, and where."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holmes.cli.options import Device, parse_protocols, show


def evaluate(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="A run, a folder of runs over seeds, or a checkpoint.")
    ],
    store: Annotated[
        Path | None, typer.Option(help="The store to evaluate on.", show_default="the run's own")
    ] = None,
    split: Annotated[str, typer.Option(help="The split to evaluate on.")] = "test",
    protocol: Annotated[
        str | None,
        typer.Option(help="Only runs that selected their epoch so: honest or published.", show_default="all"),
    ] = None,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write everything as JSON.")] = None,
    device: Device = "auto",
) -> None:
    """Measure recall, also by kind and length of query and by length of moment, and how moments are found."""
    from holmes.evaluation.published import published
    from holmes.evaluation.tables import report_grids, results_grid
    from holmes.files import write_json
    from holmes.training.device import choose_device
    from holmes.training.revisit import evaluate_runs, find_runs

    protocols = parse_protocols(protocol or "both")
    runs = find_runs(run, protocols[0] if len(protocols) == 1 else None)
    found = evaluate_runs(runs, store, split, choose_device(device))
    ours = {f"ours, {name}": figures for name, figures in found["summary"].items()}
    first = found["reports"][0]
    title = f"{run} on {Path(first['store']).name}, {split} split"
    show(results_grid(title, ours, published(first["preset"]), first["collection"]))
    show(*report_grids(Path(first["run"]).name, first))
    if json is not None:
        write_json(json, found)
