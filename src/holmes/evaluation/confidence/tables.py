"""Tables of the evaluation of confidence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holmes.evaluation.grid import Grid
from holmes.evaluation.tables import partition_grid

FIGURES = {"aurc": "AURC ↓", "auroc_top1": "AUROC top 1 ↑", "auroc_top10": "AUROC top 10 ↑", "ece": "ECE ↓"}
NAMES = {
    "confidence": "our confidence",
    "top1_score": "top-1 score",
    "margin": "margin to the second",
    "softmax_entropy": "softmax entropy",
    "softmax_entropy_tuned": "softmax entropy, our temperature",
    "dropout_agreement": "MC-dropout agreement",
    "missing": "P(none)",
    "vacuity": "vacuity",
    "uncertainty": "u",
    "entropy": "ξ",
    "conflict": "δ",
}


def uncertainty_grids(run: str, found: dict[str, Any]) -> Iterator[Grid]:
    """Everything of `evaluate_uncertainty`."""
    details = found["uncertainty_details"]
    yield confidence_grid(found["uncertainty"], f"Confidence of {run}: {details['queries']:,} queries")
    sizes = Grid("Galleries of other sizes", ["videos", "predicted", "observed", "ECE", "AUROC top 1"])
    for row in details["gallery_sizes"]:
        parts = (row["said"], row["right"], row["ece"], row["auroc_top1"])
        sizes.rows.append([f"{row['videos']:,}", *(short(part) for part in parts)])
    yield sizes
    if details["several_fit"] is not None:
        yield several_fit_grid(details["several_fit"])
    yield hard_queries_grid(details["hard_queries"])
    if details["kinds"]["agreement"] is not None:
        yield partition_grid(details["kinds"]["agreement"], "without knowing the right video")
    if details["abstention"] is not None:
        yield abstention_grid(details["abstention"])


def confidence_grid(figures: dict[str, Any], title: str) -> Grid:
    grid = Grid(title, ["", *FIGURES.values()])
    for name, of_one in figures.items():
        grid.rows.append([NAMES.get(name, name), *(interval(of_one.get(figure)) for figure in FIGURES)])
    grid.notes.append("95% intervals of a bootstrap over videos; ECE of a baseline after a logistic curve.")
    return grid


def several_fit_grid(found: dict[str, Any]) -> Grid:
    title = f"AUROC for queries that several videos fit ({found['share']:.0%} of {found['queries']:,})"
    grid = Grid(title, ["", "all", "at equal length"])
    for name, row in found["auroc"].items():
        grid.rows.append([NAMES.get(name, name), interval(row["all"]), interval(row["equal_length"])])
    return grid


def hard_queries_grid(found: dict[str, Any]) -> Grid:
    tasks = found["auroc"]
    grid = Grid("AUROC for hard queries", ["", *(task.replace("_", " ") for task in tasks)])
    for name in next(iter(tasks.values())):
        grid.rows.append([NAMES.get(name, name), *(interval(task[name]) for task in tasks.values())])
    grid.notes.append(f"Corrupted part of the queries: {found['corrupted']}.")
    return grid


def abstention_grid(found: dict[str, float | None]) -> Grid:
    values = [found[name] for name in ("answered", "right_of_answered", "right_of_all")]
    return Grid(
        f"Answering only at a probability of {found['below']:g} or more",
        ["answered", "right, of those answered", "right, of all"],
        [["–" if value is None else f"{value:.1%}" for value in values]],
    )


def interval(value: dict[str, float | None] | None) -> str:
    if value is None or value["value"] is None:
        return "–"
    return f"{short(value['value'])} [{short(value['low'])}, {short(value['high'])}]"


def short(value: float | None) -> str:
    """Three digits without the leading zero."""
    return "–" if value is None else f"{value:.3f}".replace("0.", ".", 1)
