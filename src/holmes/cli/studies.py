"""`holmes ablate`, `sweep` and `tune`: the ablation table, sweeps of settings, the search for the best."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from holmes.cli.options import (
    Device,
    Form,
    Preset,
    RayAddress,
    Settings,
    StoreToRead,
    StudyOptions,
    check_form,
    configured,
    parse_seeds,
    parse_settings,
    say,
    show,
    with_options,
    written,
)  # fmt: skip
from holmes.errors import HolmesError

SettingsAndValues = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE,…",
        help="A setting and the values to try, such as evidence.beta=.1,.2,.3; several of them make a grid. "
        "A setting with one value holds for all runs. Repeatable.",
    ),
]


@with_options(StudyOptions)
def ablate(
    options: StudyOptions,
    table: Annotated[
        str,
        typer.Option(help="Rows: scales, fusion, calibration, intra, transport, all of these, or baselines."),
    ] = "all",
    settings: Settings = None,
) -> None:
    """Train the rows of the paper's ablation table; run it again to continue.

    Writes table.json, table.md and table.tex; with --protocol both, a table for each protocol.
    """
    from holmes.base.files import atomic_file, write_json
    from holmes.config.ablations import table as rows_of
    from holmes.report.experiments import ablation_tables
    from holmes.training.experiments import ablate as run
    from holmes.training.experiments import leads

    rows_of(table)  # refuses an unknown table before anything is trained
    study, out = options.study(settings), options.out
    rows = run(study, table, say if leads() else lambda line: None)
    if leads():
        grids = ablation_tables(study, rows)
        write_json(out / "table.json", {"format": "holmes-ablation", "version": 1, "rows": rows})
        for name, text in (("table.md", written(grids, "md")), ("table.tex", written(grids, "latex"))):
            with atomic_file(out / name) as file:
                file.write(text.encode())
        show(*grids, form=options.form)


@with_options(StudyOptions)
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
    """Train at several values of one or more settings and plot SumR over them; run it again to continue.

    Writes sweep.json and sweep.tex, and sweep.png and sweep.svg with everything swept in FOLDER so far.
    """
    from holmes.base.files import atomic_file
    from holmes.config.ablations import SWEEPS
    from holmes.config.ablations import sweep as values_of
    from holmes.config.schema import several_values
    from holmes.report.experiments import grid_table, order_in_paper, sweep_table, write_sweeps
    from holmes.report.figures.sweep_curves import save_sweeps
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
    every["sweeps"] = {name: every["sweeps"][name] for name in sorted(every["sweeps"], key=order_in_paper)}
    write_sweeps(out / "sweep.json", every)
    save_sweeps(every["sweeps"], every["grids"], out)
    videos = len(study.store.split("test").videos)
    tables = [sweep_table(swept, videos) for swept in found["sweeps"].values()]
    tables += [grid_table(points, videos) for points in found["grids"].values()]
    with atomic_file(out / "sweep.tex") as file:
        file.write("\n".join(table.written("latex") for table in tables).encode())
    show(*tables, form=options.form)


def swept_before(path: Path) -> dict[str, Any]:
    """A damaged file is no reason to lose what has just been trained."""
    from holmes.report.experiments import read_sweeps

    try:
        return read_sweeps(path)
    except HolmesError:
        say(f"{path} is damaged; it is written anew with this sweep alone")
        return {"sweeps": {}, "grids": {}}


def tune(
    store: StoreToRead,
    preset: Preset,
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="The folder of the search: a new one, or one to continue.")
    ],
    trials: Annotated[int, typer.Option(min=1, help="How many settings to try.")] = 60,
    minutes: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="Stop searching after this long; the final runs come after it.",
            show_default="no limit",
        ),
    ] = None,
    seeds: Annotated[
        str, typer.Option(metavar="N,N,…", help="Seeds of the final runs; 'none' ends with the search.")
    ] = "0",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Fix a setting: it is not searched. Repeatable."),
    ] = None,
    worth: Annotated[
        bool,
        typer.Option("--worth/--no-worth", help="Measure how much each setting of the best trial matters."),
    ] = True,
    jobs: Annotated[
        int,
        typer.Option(
            "--jobs", min=0, metavar="N", help="How many trials to train at once; 0 takes as many as fit."
        ),
    ] = 0,
    ray: RayAddress = None,
    device: Device = "auto",
    form: Form = None,
) -> None:
    """Search for the best settings on held-out training videos, then train and test them once.

    Run the same command again to continue. FOLDER/best.json has the best settings so far, for 'holmes train
    --preset FOLDER/best.json'; settings.png and settings.svg show how much each setting matters.
    """
    from holmes.api import tune as search
    from holmes.base.files import read_json
    from holmes.data.store import Store
    from holmes.evaluation.tables import FITTING, results_grid
    from holmes.report.figures.tuning import save_tuning
    from holmes.report.tuning import settings_table, trials_table
    from holmes.training.run import RunOptions
    from holmes.training.tuning.search import BEST, TRIALS

    check_form(form)
    chosen = () if seeds == "none" else tuple(parse_seeds(seeds))
    found = search(
        store, configured(preset, settings), out, trials=trials, minutes=minutes, jobs=jobs, seeds=chosen,
        fixed=parse_settings(settings), worth=worth, options=RunOptions(device=device),
        ray=ray,
    )  # fmt: skip
    save_tuning(read_json(out / TRIALS), out)
    tables = [trials_table(found), settings_table(found)]
    if found.test is not None:
        title = f"{found.config.name} on {store.name}, test split"
        name = f"tuned, {len(chosen)} seed{'s' * (len(chosen) > 1)}"
        rows = {name: found.test}
        if found.test_fitting is not None:
            rows[f"{name}, {FITTING}"] = found.test_fitting
        videos = len(Store.open(store).split("test").videos)
        tables.append(results_grid(title, rows, None, found.collection, videos))
    show(*tables, form=form)
    say(f"the best settings: {out / BEST}")
