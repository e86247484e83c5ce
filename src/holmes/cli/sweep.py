"""`holmes sweep`: how much a parameter matters."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from holmes.cli.options import (
    Compile,
    Device,
    Preset,
    ProtocolName,
    Seeds,
    Settings,
    StoreToRead,
    make_study,
    say,
    show,
)
from holmes.errors import HolmesError


def sweep(
    store: StoreToRead,
    preset: Preset,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="A folder for the runs and the curves.")],
    parameter: Annotated[str, typer.Option(help="tau, beta, dustbin or all.")] = "all",
    seeds: Seeds = "0",
    protocol: ProtocolName = "honest",
    settings: Settings = None,
    device: Device = "auto",
    compiled: Compile = None,
) -> None:
    """Train at several values of a parameter and draw SumR over it; run it again to go on.

    Writes sweep.json, and sweep.png and sweep.svg with a curve for every parameter swept in FOLDER so far.
    """
    from holmes.config.ablations import SWEEPS
    from holmes.config.ablations import sweep as rows_of
    from holmes.evaluation.tables import Grid, number
    from holmes.files import write_json
    from holmes.plots.sweep import save_sweeps
    from holmes.training.experiments import leads
    from holmes.training.experiments import sweep as run

    names = list(SWEEPS) if parameter == "all" else [parameter]
    for name in names:
        rows_of(name)  # refuses an unknown parameter before anything is trained
    study = make_study(store, preset, settings, out, seeds, protocol, device, compiled)
    found = {name: run(study, name, say if leads() else lambda line: None) for name in names}
    if not leads():
        return
    path = out / "sweep.json"
    before = read_sweeps(path) if path.exists() else {}
    sweeps = {name: (before | found)[name] for name in SWEEPS if name in before | found}
    write_json(path, {"format": "holmes-sweep", "version": 1, "sweeps": sweeps})
    save_sweeps(sweeps, out)
    for name, swept in found.items():
        rows = [
            [f"{point['value']:g}{' (preset)' * (point['value'] == swept['default'])}", number(total)]
            for point in swept["points"]
            for total in [point["metrics"]["SumR"]]
        ]
        show(Grid(f"SumR over {name} ({swept['setting']})", [name, "SumR"], rows))


def read_sweeps(path: Path) -> dict[str, Any]:
    """What was swept before; a damaged file is no reason to lose what has just been trained."""
    from holmes.files import read_json

    try:
        return dict(read_json(path)["sweeps"])
    except (HolmesError, TypeError, KeyError, ValueError):
        say(f"{path} is damaged and is written anew, with this sweep alone")
        return {}
