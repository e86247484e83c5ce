"""`holmes ablate`: the paper's ablation table, row by row."""

from __future__ import annotations

from typing import Annotated

import typer

from holmes.cli.options import Settings, StudyOptions, say, show, with_options, written


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
