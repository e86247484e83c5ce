"""A comparison as tables for people and papers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holmes.evaluation.tables import INTERVAL, INTERVAL_NOTE, Grid, bounds
from holmes.results import METRICS

Found = dict[str, Any]


def comparison_grids(found: dict[str, Any], where: str) -> list[Grid]:
    """The tables: figures, differences, groups, queries won and lost."""
    grids = [figures_grid(found, where), difference_grid(found), *group_grids(found)]
    if found["systems"][0]["metrics_fitting"] is not None:
        grids.insert(1, fitting_grid(found))
    return [*grids, *decided_grids(found)]


def figures_grid(found: Found, where: str) -> Grid:
    grid = Grid(f"Recall on {where}: {found['queries']:,} queries", ["", "seeds", *METRICS])
    for system in found["systems"]:
        metrics = system["metrics"]
        grid.rows.append(
            [system["name"], str(system["seeds"]), *(f"{metrics[name]['value']:.1f}" for name in METRICS)]
        )
        grid.rows.append(
            [INTERVAL, "", *(bounds(metrics[name]["low"], metrics[name]["high"]) for name in METRICS)]
        )
    grid.notes.append(INTERVAL_NOTE)
    return grid


def fitting_grid(found: Found) -> Grid:
    grid = Grid("Recall if any video that fits counts as right", ["", *METRICS])
    for system in found["systems"]:
        metrics = system["metrics_fitting"]
        grid.rows.append([system["name"], *(f"{metrics[name]['value']:.1f}" for name in METRICS)])
        grid.rows.append(
            [INTERVAL, *(bounds(metrics[name]["low"], metrics[name]["high"]) for name in METRICS)]
        )
    return grid


def difference_grid(found: Found) -> Grid:
    first, *others = found["systems"]
    grid = Grid(f"Difference to {first['name']}, on the same draws", ["", *METRICS])
    for system in others:
        parts = [system["difference"][name] for name in METRICS]
        grid.rows.append([system["name"], *(f"{part['value']:+.1f}{star(part)}" for part in parts)])
        grid.rows.append([INTERVAL, *(bounds(part["low"], part["high"]) for part in parts)])
        grid.rows.append(["  p", *(p_value(part["p"]) for part in parts)])
    grid.notes.append("* p < .05: paired bootstrap over videos, and over seeds where there are several.")
    if any(system["seeds"] == 1 for system in found["systems"]):
        grid.notes.append("With one seed, the interval does not include what another seed would change.")
    return grid


def group_grids(found: Found) -> Iterator[Grid]:
    """R@1, R@10 and SumR of each group, the systems under each other, with their differences."""
    first = found["systems"][0]
    names = ("R@1", "R@5", "R@10", "SumR")
    for breakdown, groups in first["by"].items():
        heading = breakdown.replace("_", " ")
        grid = Grid(f"By {heading}: figures, and difference to {first['name']}", ["", *names, "Δ SumR", "p"])
        for group, about in groups.items():
            grid.rows.append([f"{group}, {about['queries']:,} queries"])
            for system in found["systems"]:
                row = system["by"][breakdown][group]
                values = [f"{row['metrics'][name]['value']:.1f}" for name in names]
                change = row["difference"] and row["difference"]["SumR"]
                grid.rows.append([system["name"], *values, *changed(change)])
        yield grid


def changed(part: dict[str, float] | None) -> list[str]:
    if part is None:
        return ["", ""]
    if part["low"] is None:
        return ["–", "–"]
    return [f"{part['value']:+.1f} {bounds(part['low'], part['high'])}", p_value(part["p"])]


def decided_grids(found: Found) -> Iterator[Grid]:
    first, *others = found["systems"]
    grid = Grid(
        f"Queries found by one alone, %, against {first['name']}", ["", "won", "lost", "both", "neither"]
    )
    for system in others:
        grid.rows.append([system["name"]])
        for name, row in system["won_and_lost"].items():
            grid.rows.append([name, *(f"{row[part]:.1f}" for part in ("won", "lost", "both", "neither"))])
    yield grid
    for system in found["decided"]:
        title = f"Queries {system['name']} places best and worst, against {first['name']}"
        listed = Grid(title, ["", "rank", "against"])
        for heading, key in (("won", "won"), ("lost", "lost")):
            listed.rows.append([heading])
            listed.rows += [
                [f"{row['text']} ({row['id']})", ranks(row["ranks"]), ranks(row["reference_ranks"])]
                for row in system[key]
            ]
        yield listed


def ranks(places: list[int]) -> str:
    return ", ".join(str(place) for place in places)


def star(part: dict[str, float]) -> str:
    return "*" if part["p"] < 0.05 else ""


def p_value(p: float) -> str:
    return "<.001" if p < 0.001 else f"{p:.3f}".lstrip("0")
