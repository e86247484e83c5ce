"""Ablations and sweeps: `sweep.json`, and tables with the published rows beside ours."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

from holmes.base.manifests import FileFormat
from holmes.base.printing import shown
from holmes.base.validation import AtMost, Within, build
from holmes.config.ablations import SWEEPS, TABLE_TITLES
from holmes.errors import HolmesError
from holmes.evaluation.grid import Grid
from holmes.evaluation.literature import published_figures
from holmes.evaluation.tables import (
    MARK,
    cells,
    fitting_rows,
    interval_row,
    notes_of,
    recall_grid,
)
from holmes.report.figures.style import value_text
from holmes.training.experiments import Study
from holmes.training.protocol import Protocol

FORMAT = FileFormat("holmes-sweep", 2, "a sweep", "sweep again", without_checksum=(1,))
Name = Annotated[str, AtMost(200)]
Number = Annotated[float, Within(-1e9, 1e9)]


@dataclass(frozen=True)
class SweptFigure:
    """A figure over seeds."""

    mean: Number
    deviation: Annotated[float, Within(0, 1e9)] | None = None  # None for a single run
    low: Number | None = None
    high: Number | None = None


@dataclass(frozen=True)
class Point:
    """The figures at one value."""

    value: Any
    metrics: dict[Name, SweptFigure]
    metrics_fitting: dict[Name, SweptFigure] | None = None  # of any right video, where others are known

    def __post_init__(self) -> None:
        _check_value(self.value)
        _check_metrics(self.metrics)
        _check_metrics(self.metrics_fitting or self.metrics)


@dataclass(frozen=True)
class Line:
    """One setting at several values."""

    parameter: Name
    setting: Name
    default: Any
    points: list[Point]

    def __post_init__(self) -> None:
        _check_value(self.default)
        if not self.points:
            raise HolmesError("it has no points.")


@dataclass(frozen=True)
class GridPoint:
    """The figures at one combination of values."""

    values: dict[Name, Any]
    metrics: dict[Name, SweptFigure]
    metrics_fitting: dict[Name, SweptFigure] | None = None

    def __post_init__(self) -> None:
        for value in self.values.values():
            _check_value(value)
        _check_metrics(self.metrics)
        _check_metrics(self.metrics_fitting or self.metrics)


@dataclass(frozen=True)
class Plane:
    """Several settings at all combinations of their values."""

    settings: list[Name]
    default: dict[Name, Any]
    points: list[GridPoint]

    def __post_init__(self) -> None:
        corners = [tuple(str(corner.values.get(name)) for name in self.settings) for corner in self.points]
        sides = [len(set(values)) for values in zip(*corners, strict=True)]
        whole = all(corner.values.keys() == set(self.settings) for corner in self.points)
        expected = math.prod(sides)
        if not self.settings or not whole or len(set(corners)) != expected or len(corners) != expected:
            raise HolmesError("its points are not all combinations of the settings' values.")


@dataclass(frozen=True)
class Swept:
    """All that was swept in a folder."""

    sweeps: dict[Name, Line] = field(default_factory=dict)
    grids: dict[Name, Plane] = field(default_factory=dict)


def read_sweeps(path: Path) -> dict[str, Any]:
    """What was swept before; a damaged file is refused."""
    return asdict(FORMAT.read(path, Swept)) if path.exists() else asdict(Swept())


def write_sweeps(path: Path, swept: dict[str, Any]) -> None:
    FORMAT.write(path, swept)


def _check_metrics(metrics: dict[str, SweptFigure]) -> None:
    if "SumR" not in metrics:
        raise HolmesError("its metrics lack SumR.")


def _check_value(value: Any) -> None:
    """A value of a setting: a number, a short text, true, false, nothing, or a few of these."""
    items = value if isinstance(value, list | tuple) else [value]
    if len(items) > 64 or not all(isinstance(item, str | int | float | None) for item in items):
        raise HolmesError(f"{shown(value)} is not the value of a setting.")
    for item in items:
        if isinstance(item, str):
            build(Name, item, "value")
        elif item is not None and not isinstance(item, bool):
            build(Number, item, "value")


def ablation_tables(study: Study, rows: list[dict[str, Any]]) -> list[Grid]:
    """A table for each protocol; for baselines also what each method costs."""
    by_protocol = {
        protocol: [row for row in rows if row["protocol"] == protocol.value] for protocol in study.protocols
    }
    grids = [ablation_table(study, protocol, some) for protocol, some in by_protocol.items()]
    if any(row["block"] == "baselines" for row in rows):
        grids.append(cost_table(by_protocol[study.protocols[0]]))
    return grids


def ablation_table(study: Study, protocol: Protocol, rows: list[dict[str, Any]]) -> Grid:
    """The paper's layout, each published row under ours; rows whose epoch was selected on test are marked."""
    known = published_figures(study.config.name)
    title = f"{study.config.name} on {study.store.path.name}, protocol {protocol.value}"
    grid = recall_grid(title, len(study.store.split("test").videos))
    block, mark = None, MARK if protocol is Protocol.PUBLISHED else ""
    for row in rows:
        if row["block"] != block:
            block = row["block"]
            grid.rows.append([TABLE_TITLES[block]])
        number = f"({row['row']}) " if row["row"] >= 0 else ""  # the paper's
        grid.rows.append([f"{number}{row['title']}{mark}", *cells(row["metrics"])])
        grid.rows += [*interval_row(row["metrics"]), *fitting_rows(row)]
        printed = (known.ablation.get(row["row"]) or known.methods.get(row["title"])) if known else None
        if printed is not None:
            grid.rows.append([f"published{MARK}", *cells(printed)])
    grid.notes += notes_of(grid.rows, known, study.store.info.collection)
    if known:
        grid.notes.append(f"The published table ablates {known.ablated}.")
    return grid


def cost_table(rows: list[dict[str, Any]]) -> Grid:
    """What each method costs; of runs of an earlier version the parameters are not known."""
    grid = Grid("What each method costs", ["", "million parameters", "s/epoch"])
    for row in rows:
        parameters, seconds = row["parameters"], row["seconds_per_epoch"]
        shown_parameters = "–" if parameters is None else f"{parameters / 1e6:.2f}"
        grid.rows.append([row["title"], shown_parameters, "–" if seconds is None else f"{seconds:.3f}"])
    grid.notes.append(
        "s/epoch: the median over the epochs of all seeds, without evaluation. Runs that train side by side "
        "slow each other."
    )
    return grid


def sweep_table(swept: dict[str, Any], videos: int | None = None) -> Grid:
    """One setting, a row for each of its values; `videos` of the gallery."""
    name, default = swept["parameter"], swept["default"]
    title = f"Recall over {name}" + (f" ({swept['setting']})" if name != swept["setting"] else "")
    grid = recall_grid(title, videos, [name])
    for point in swept["points"]:
        label = f"{value_text(point['value'])}{' (preset)' * (point['value'] == default)}"
        grid.rows += [[label, *cells(point["metrics"])], *interval_row(point["metrics"])]
        grid.rows += fitting_rows(point)
    return grid


def grid_table(found: dict[str, Any], videos: int | None = None) -> Grid:
    """Several settings, a row for each combination of their values; `videos` of the gallery."""
    grid = recall_grid(f"Recall over {' and '.join(found['settings'])}", videos, found["settings"])
    others = [""] * (len(found["settings"]) - 1)
    for point in found["points"]:
        labels = [value_text(point["values"][name]) for name in found["settings"]]
        grid.rows.append([*labels, *cells(point["metrics"])])
        under = [*interval_row(point["metrics"]), *fitting_rows(point)]
        grid.rows += [[row[0], *others, *row[1:]] for row in under]
    return grid


def order_in_paper(name: str) -> tuple[int, str]:
    """A key that sorts the paper's parameters first, in its order."""
    known = list(SWEEPS)
    return (known.index(name) if name in known else len(known), name)
