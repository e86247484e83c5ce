"""`holmes tune`: the settings that suit a collection."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holmes.cli.options import (
    Device,
    Form,
    Preset,
    RayAddress,
    StoreToRead,
    check_form,
    configured,
    parse_seeds,
    parse_settings,
    say,
    show,
)  # fmt: skip


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
        bool, typer.Option("--worth/--no-worth", help="Measure what each setting of the best trial is worth.")
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
    """Search the best settings on held-out training videos, then train and test them once.

    Run the same command again to continue. FOLDER/best.json has the best settings so far, for 'holmes train
    --preset FOLDER/best.json'; settings.png and settings.svg show what each setting is worth.
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
