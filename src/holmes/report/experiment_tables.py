"""Ablations and sweeps as tables for people and papers, published rows beside ours."""

from __future__ import annotations

from typing import Any

from holmes.config.ablations import SWEEPS, TABLE_TITLES
from holmes.evaluation.literature import published_figures
from holmes.evaluation.tables import INTERVAL, INTERVAL_NOTE, Grid, cells, interval_row, published_notes
from holmes.report.figures.sweep_curves import spelt
from holmes.results import METRICS
from holmes.training.experiments import Study


def ablation_table(study: Study, rows: list[dict[str, Any]]) -> Grid:
    """The paper's layout, each published row under ours."""
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


def sweep_table(swept: dict[str, Any]) -> Grid:
    """One setting, a row for each of its values."""
    name, default = swept["parameter"], swept["default"]
    rows = []
    for point in swept["points"]:
        label = f"{spelt(point['value'])}{' (preset)' * (point['value'] == default)}"
        rows += [[label, *cells(point["metrics"])], *interval_row(point["metrics"])]
    title = f"Recall over {name}" + (f" ({swept['setting']})" if name != swept["setting"] else "")
    return Grid(title, [name, *METRICS], rows)


def grid_table(found: dict[str, Any]) -> Grid:
    """Several settings, a row for each combination of their values."""
    rows, others = [], [""] * (len(found["settings"]) - 1)
    for point in found["points"]:
        labels = [spelt(point["values"][name]) for name in found["settings"]]
        rows.append([*labels, *cells(point["metrics"])])
        rows += [[row[0], *others, *row[1:]] for row in interval_row(point["metrics"])]
    return Grid(f"Recall over {' and '.join(found['settings'])}", [*found["settings"], *METRICS], rows)


def place_in_paper(name: str) -> tuple[int, str]:
    """A key that sorts the paper's parameters first, in its order."""
    known = list(SWEEPS)
    return (known.index(name) if name in known else len(known), name)
