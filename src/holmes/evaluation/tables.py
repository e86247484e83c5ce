"""Tables of an evaluation: figures beside published ones, groups of queries, comparisons of runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from holmes.evaluation.grid import Grid
from holmes.evaluation.literature import TRAINING_FREE, DataSet
from holmes.evaluation.recall import CUTOFFS
from holmes.results import METRICS

INTERVAL = "  95%"
INTERVAL_NOTE = "95%: bootstrap interval over videos, and over seeds if there are several."
MARK = " †"
MARK_NOTE = "† The best epoch is selected on the evaluation split itself (protocol 'published')."
FITTING = "any video that fits"
FAR = " ‡"  # a cutoff so large that chance alone reaches it often
HEADINGS = {  # of what is measured within the right video
    "clip_hit@1": "best clip is inside",
    "frame_hit@1": "best frame is inside",
    "chance_hit@1": "by chance",
    "mIoU": "mean IoU",
    "even": "spread evenly",
    "flexible": "transport, dustbin",
    "plain": "transport",
    "best_clip": "best clip",
}
Found = dict[str, Any]


def cells(figures: dict[str, Any] | Sequence[float | None]) -> list[str]:
    """R@1 … SumR as text: of a run, over seeds, or as published."""
    if isinstance(figures, dict):
        figures = [figures[name] for name in METRICS]
    return [number(value) for value in figures]


def number(value: float | dict[str, float | None] | None) -> str:
    if value is None:
        return "–"
    if not isinstance(value, dict):
        return f"{value:.1f}"
    mean, deviation = value["mean"], value["deviation"]
    return f"{mean:.1f}" if deviation is None else f"{mean:.1f} ± {deviation:.1f}"


def interval_row(figures: dict[str, Any]) -> list[list[str]]:
    """A row with the 95% intervals under a row of figures; nothing where they are not known."""
    if not all(isinstance(figures[name], dict) and figures[name].get("low") is not None for name in METRICS):
        return []
    return [[INTERVAL, *(bounds(figures[name]["low"], figures[name]["high"]) for name in METRICS)]]


def fitting_rows(found: dict[str, Any]) -> list[list[str]]:
    """Rows under a row of figures: recall of any right video, where further ones are known."""
    figures = found.get("metrics_fitting")
    return [] if figures is None else [[f"  {FITTING}", *cells(figures)], *interval_row(figures)]


def bounds(low: float | None, high: float | None) -> str:
    return "–" if low is None or high is None else f"[{low:.1f}, {high:.1f}]"


def far_cutoffs(videos: int | None) -> list[str]:
    """The recalls whose cutoff is beyond a third of the gallery: they say little."""
    return [f"R@{cutoff}" for cutoff in CUTOFFS if videos is not None and 3 * cutoff > videos]


def recall_grid(
    title: str, videos: int | None, first: Sequence[str] = ("",), names: Sequence[str] = METRICS
) -> Grid:
    """A table of recalls without its rows; those beyond a third of the gallery's `videos` are marked."""
    far = [name for name in far_cutoffs(videos) if name in names]
    grid = Grid(title, [*first, *(f"{name}{FAR}" if name in far else name for name in names)])
    if far:
        grid.notes.append(
            f"{FAR.strip()} The gallery has only {videos:,} videos. High by chance alone: {', '.join(far)}, "
            "and their share of SumR."
        )
    return grid


def results_grid(
    title: str,
    ours: dict[str, dict[str, Any]],
    known: DataSet | None,
    collection: str,
    videos: int | None = None,
) -> Grid:
    """Our rows with their intervals, then what is published for the preset's data set.

    Rows whose epoch was selected on the evaluation split, ours or published, are marked; and so are recalls
    beyond a third of the `videos` of the gallery.
    """
    grid = recall_grid(title, videos)
    for name, figures in ours.items():
        mark = MARK if re.search(r"\bpublished\b", name) else ""
        grid.rows += [[f"{name}{mark}", *cells(figures)], *interval_row(figures)]
    if known is None:
        grid.notes.append("No published figures are known for this collection.")
    else:
        grid.rows.append([f"{'' if known.methods else 'no figure is '}published on {known.title}"])
        for name, sums in known.methods.items():
            mark = "" if name.startswith(TRAINING_FREE) else MARK
            grid.rows.append([f"{name}{mark}", *cells(sums)])
    grid.notes += notes_of(grid.rows, known, collection)
    return grid


def notes_of(rows: Sequence[Sequence[str]], known: DataSet | None, collection: str) -> list[str]:
    """What the intervals and marks of these rows mean, and whether the published rows are comparable."""
    notes = [INTERVAL_NOTE] if any(row[0] == INTERVAL for row in rows) else []
    if any(row[0].endswith(MARK) for row in rows):
        notes.append(MARK_NOTE)
    if known is not None and known.methods and collection != known.collection:
        notes.append(f"The store holds '{collection}', not {known.title}: the rows are not comparable.")
    return notes


def report_grids(title: str, report: dict[str, Any], of: str = "") -> Iterator[Grid]:
    """Everything of an evaluation but the main figures; `of` tells the tables of several settings apart."""
    grid = recall_grid(f"{title} by group", report.get("videos"), ("", "queries"))
    for name, groups in report["by"].items():
        grid.rows.append([f"by {name.replace('_', ' ')}"])
        for group, row in groups.items():
            grid.rows.append([group, f"{row['queries']:,}", *cells(row)])
            if "intervals" in row:
                grid.rows.append([INTERVAL, "", *(bounds(*row["intervals"][metric]) for metric in METRICS)])
            if "metrics_fitting" in row:
                grid.rows.append([f"  {FITTING}", "", *cells(row["metrics_fitting"])])
    yield grid
    for name, heading in (
        ("localisation", "Moment localisation within the right video, %"),
        ("aligned_mass", "Aligned mass inside the true moment, %"),
    ):
        if name in report:
            row = report[name]
            yield Grid(
                heading + of,
                [HEADINGS.get(key, key) for key in row],
                [[f"{row['queries']:,}", *(number(row[key]) for key in row if key != "queries")]],
            )
    if "partition" in report:
        yield partition_grid(report["partition"], f"by training's rule, which knows the right video{of}")


def partition_grid(found: dict[str, Any], how: str) -> Grid:
    grid = Grid(f"Kinds of queries: known (rows) and found (columns) {how}", ["", *found["kinds"], "F1"])
    for kind, row, score in zip(found["kinds"], found["confusion"], found["F1"], strict=True):
        grid.rows.append([kind, *(f"{count:,}" for count in row), f"{score:.2f}"])
    grid.notes.append(f"macro-F1 {found['macro_F1']:.2f}; by chance {found['chance_macro_F1']:.2f}")
    return grid


def comparison_grids(found: dict[str, Any], where: str) -> list[Grid]:
    """The tables: figures, differences, groups, queries won and lost."""
    grids = [figures_grid(found, f"Recall on {where}: {found['queries']:,} queries", "metrics")]
    if found["systems"][0]["metrics_fitting"] is not None:
        grids.append(figures_grid(found, "Recall if any video that fits counts as right", "metrics_fitting"))
    return [*grids, *difference_grids(found), *group_grids(found), *decided_grids(found)]


def figures_grid(found: Found, title: str, which: str) -> Grid:
    grid = recall_grid(title, found.get("videos"), ("", "seeds"))
    for system in found["systems"]:
        parts = [system[which][name] for name in METRICS]
        grid.rows.append([system["name"], str(system["seeds"]), *(f"{part['value']:.1f}" for part in parts)])
        grid.rows.append([INTERVAL, "", *(bounds(part["low"], part["high"]) for part in parts)])
    grid.notes.append(INTERVAL_NOTE)
    return grid


def difference_grids(found: Found) -> list[Grid]:
    """Differences to the first system, of the right video and of any that fits where others are known."""
    grids = [difference_grid(found)]
    if found["systems"][0]["metrics_fitting"] is not None:
        grids.append(difference_grid(found, "difference_fitting", ", if any video that fits counts as right"))
    return grids


def difference_grid(found: Found, which: str = "difference", how: str = " (paired)") -> Grid:
    first, *others = found["systems"]
    grid = recall_grid(f"Difference to {first['name']}{how}", found.get("videos"))
    for system in others:
        parts = [system[which][name] for name in METRICS]
        grid.rows.append([system["name"], *(f"{part['value']:+.1f}{star(part)}" for part in parts)])
        grid.rows.append([INTERVAL, *(bounds(part["low"], part["high"]) for part in parts)])
        grid.rows.append(["  p", *(p_value(part["p"]) for part in parts)])
    grid.notes.append("* p < .05: paired bootstrap over videos, and over seeds where there are several.")
    if any(system["seeds"] == 1 for system in found["systems"]):
        grid.notes.append("With one seed, the intervals leave out the variation between seeds.")
    return grid


def group_grids(found: Found) -> Iterator[Grid]:
    """R@1, R@10 and SumR of each group, the systems under each other, with their differences."""
    first = found["systems"][0]
    names = ("R@1", "R@5", "R@10", "SumR")
    for breakdown, groups in first["by"].items():
        title = f"By {breakdown.replace('_', ' ')}: figures, and difference to {first['name']}"
        grid = recall_grid(title, found.get("videos"), names=names)
        grid.columns = [*grid.columns, "Δ SumR", "p"]
        for group, about in groups.items():
            grid.rows.append([f"{group}, {about['queries']:,} queries"])
            for system in found["systems"]:
                row = system["by"][breakdown][group]
                values = [f"{row['metrics'][name]['value']:.1f}" for name in names]
                change = row["difference"] and row["difference"]["SumR"]
                grid.rows.append([system["name"], *values, *changed(change)])
                if row["metrics_fitting"] is not None:
                    values = [f"{row['metrics_fitting'][name]['value']:.1f}" for name in names]
                    change = row["difference_fitting"] and row["difference_fitting"]["SumR"]
                    grid.rows.append([f"  {FITTING}", *values, *changed(change)])
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
        f"Queries that only one system finds, %, against {first['name']}",
        ["", "won", "lost", "both", "neither"],
    )
    for system in others:
        grid.rows.append([system["name"]])
        for name, row in system["won_and_lost"].items():
            grid.rows.append([name, *(f"{row[part]:.1f}" for part in ("won", "lost", "both", "neither"))])
    yield grid
    for system in found["decided"]:
        title = f"Queries with the largest gains and losses of {system['name']} against {first['name']}"
        listed = Grid(title, ["", "rank", "against"])
        for key in ("won", "lost"):
            listed.rows.append([key])
            listed.rows += [
                [f"{row['text']} ({row['id']})", ranks(row["ranks"]), ranks(row["reference_ranks"])]
                for row in system[key]
            ]
        yield listed


def ranks(numbers: list[int]) -> str:
    return ", ".join(str(number) for number in numbers)


def star(part: dict[str, float]) -> str:
    return "*" if part["p"] < 0.05 else ""


def p_value(p: float) -> str:
    return "<.001" if p < 0.001 else f"{p:.3f}".lstrip("0")
