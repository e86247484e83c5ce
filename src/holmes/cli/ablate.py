"""`holmes ablate`: the paper's ablation table, row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holmes.cli.options import Settings, StudyOptions, say, show, study_command

if TYPE_CHECKING:
    from holmes.evaluation.tables import Grid
    from holmes.training.experiments import Study


@study_command
def ablate(
    options: StudyOptions,
    table: Annotated[
        str,
        typer.Option(help="Rows: scales, fusion, calibration, intra, transport, all of these, or baselines."),
    ] = "all",
    settings: Settings = None,
) -> None:
    """Train the rows of the paper's ablation table; run it again to continue.

    Writes table.json, table.md and table.tex.
    """
    from holmes.config.ablations import table as rows_of
    from holmes.files import atomic_file, write_json
    from holmes.training.experiments import ablate as run
    from holmes.training.experiments import leads

    rows_of(table)  # refuses an unknown table before anything is trained
    study, out = options.study(settings), options.out
    rows = run(study, table, say if leads() else lambda line: None)
    if leads():
        grid = ablation_grid(study, rows)
        write_json(out / "table.json", {"format": "holmes-ablation", "version": 1, "rows": rows})
        for name, text in (("table.md", grid.written("md")), ("table.tex", grid.written("latex"))):
            with atomic_file(out / name) as file:
                file.write(text.encode())
        show(grid, form=options.form)


def ablation_grid(study: Study, rows: list[dict[str, Any]]) -> Grid:
    """The paper's layout, each published row under ours."""
    from holmes.config.ablations import TABLE_TITLES
    from holmes.evaluation.literature import METRICS, published_figures
    from holmes.evaluation.tables import (
        INTERVAL,
        INTERVAL_NOTE,
        Grid,
        cells,
        interval_row,
        published_notes,
    )

    known = published_figures(study.config.name)
    title = f"{study.config.name} on {study.store.path.name}, protocol {study.protocols[0].value}"
    grid = Grid(title, ["", *METRICS])
    block = None
    for row in rows:
        if row["block"] != block:
            block = row["block"]
            grid.rows.append([TABLE_TITLES[block]])
        number = f"({row['row']}) " if row["row"] >= 0 else ""  # the paper's
        grid.rows += [[f"{number}{row['title']}", *cells(row["metrics"])], *interval_row(row["metrics"])]
        if known and row["row"] in known.ablation:
            grid.rows.append(["published", *cells(known.ablation[row["row"]])])
    if any(row[0] == INTERVAL for row in grid.rows):
        grid.notes.append(INTERVAL_NOTE)
    if known:
        grid.notes += published_notes(known, study.store.info.collection)
        grid.notes.append(f"The published table ablates {known.ablated}.")
    return grid
