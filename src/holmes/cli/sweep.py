"""`holmes sweep`: how much a setting matters, or several together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holmes.cli.options import StudyOptions, parse_settings, say, show, study_command
from holmes.errors import HolmesError

if TYPE_CHECKING:
    from holmes.evaluation.tables import Grid

SettingsAndValues = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE,…",
        help="A setting and the values to try, such as evidence.beta=.1,.2,.3; several of them make a grid. "
        "A setting with one value holds for all runs. Repeatable.",
    ),
]


@study_command
def sweep(
    options: StudyOptions,
    parameter: Annotated[
        str | None,
        typer.Option(
            help="A parameter that the paper sweeps: tau, beta, dustbin or all.",
            show_default="all, unless --set lists values",
        ),
    ] = None,
    settings: SettingsAndValues = None,
) -> None:
    """Train at several values of one or more settings and draw SumR over them; run it again to continue.

    Writes sweep.json, and sweep.png and sweep.svg with everything swept in FOLDER so far.
    """
    from holmes.config.ablations import SWEEPS
    from holmes.config.ablations import sweep as values_of
    from holmes.config.schema import several_values
    from holmes.files import atomic_file
    from holmes.plots.sweep_curves import save_sweeps
    from holmes.report.sweep_file import write_sweeps
    from holmes.training.experiments import grid, leads
    from holmes.training.experiments import sweep as run

    lists = {name: several_values(name, text) for name, text in parse_settings(settings).items()}
    axes = dict(values for values in lists.values() if len(values[1]) > 1)
    if axes and parameter:
        raise HolmesError("give --parameter, or several values with --set, not both.")
    names = [] if axes else [*SWEEPS] if parameter in (None, "all") else [parameter or ""]
    chosen: dict[str, tuple[str, Sequence[Any]]] = {name: values_of(name) for name in names}
    chosen = chosen or {name: (name, values) for name, values in axes.items()}
    fixed = [f"{name}={text}" for name, text in parse_settings(settings).items() if len(lists[name][1]) == 1]
    study, out = options.study(fixed), options.out
    speak = say if leads() else lambda line: None
    found: dict[str, Any] = {"sweeps": {}, "grids": {}}
    if len(axes) > 1:
        found["grids"][" × ".join(axes)] = grid(study, axes, speak)
    else:
        found["sweeps"] = run(study, chosen, speak)
    if not leads():
        return
    before = swept_before(out / "sweep.json")
    every = {kind: before[kind] | found[kind] for kind in found}
    every["sweeps"] = {name: every["sweeps"][name] for name in sorted(every["sweeps"], key=by_fame)}
    write_sweeps(out / "sweep.json", every)
    save_sweeps(every["sweeps"], every["grids"], out)
    tables = [sweep_table(swept) for swept in found["sweeps"].values()]
    tables += [grid_table(points) for points in found["grids"].values()]
    with atomic_file(out / "sweep.tex") as file:
        file.write("\n".join(table.written("latex") for table in tables).encode())
    show(*tables, form=options.form)


def by_fame(name: str) -> tuple[int, str]:
    """The paper's parameters first, in its order."""
    from holmes.config.ablations import SWEEPS

    known = list(SWEEPS)
    return (known.index(name) if name in known else len(known), name)


def sweep_table(swept: dict[str, Any]) -> Grid:
    from holmes.evaluation.literature import METRICS
    from holmes.evaluation.tables import Grid, cells, interval_row
    from holmes.plots.sweep_curves import spelt

    name, default = swept["parameter"], swept["default"]
    rows = []
    for point in swept["points"]:
        label = f"{spelt(point['value'])}{' (preset)' * (point['value'] == default)}"
        rows += [[label, *cells(point["metrics"])], *interval_row(point["metrics"])]
    title = f"Recall over {name}" + (f" ({swept['setting']})" if name != swept["setting"] else "")
    return Grid(title, [name, *METRICS], rows)


def grid_table(found: dict[str, Any]) -> Grid:
    from holmes.evaluation.literature import METRICS
    from holmes.evaluation.tables import Grid, cells, interval_row
    from holmes.plots.sweep_curves import spelt

    rows, others = [], [""] * (len(found["settings"]) - 1)
    for point in found["points"]:
        labels = [spelt(point["values"][name]) for name in found["settings"]]
        rows.append([*labels, *cells(point["metrics"])])
        rows += [[row[0], *others, *row[1:]] for row in interval_row(point["metrics"])]
    return Grid(f"Recall over {' and '.join(found['settings'])}", [*found["settings"], *METRICS], rows)


def swept_before(path: Path) -> dict[str, Any]:
    """A damaged file is no reason to lose what has just been trained."""
    from holmes.report.sweep_file import read_sweeps

    try:
        return read_sweeps(path)
    except HolmesError:
        say(f"{path} is damaged; it is written anew with this sweep alone")
        return {"sweeps": {}, "grids": {}}
