"""`holmes compare`: runs side by side, and whether their differences mean anything."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holmes.cli.options import Device, Form, check_form, parse_protocols, say, show
from holmes.errors import HolmesError

if TYPE_CHECKING:
    from holmes.evaluation.comparison import System
    from holmes.evaluation.tables import Grid
    from holmes.runs.evaluated import EvaluatedRun
    from holmes.runs.folders import RunFolder

LISTED = 10  # queries won and lost that are listed
PICTURED = 3  # of each that are drawn
SHORT = 16  # characters of a name at the end of a line


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN…", help="Runs, or folders of runs over seeds; the first is the reference."
        ),
    ],
    store: Annotated[
        Path | None, typer.Option(help="The store to compare on.", show_default="the runs' own")
    ] = None,
    split: Annotated[str, typer.Option(help="The split to compare on.")] = "test",
    protocol: Annotated[
        str | None,
        typer.Option(help="Only runs that selected their epoch so: honest or published.", show_default="all"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.html", help="A page with the tables, and timelines of queries won and lost."
        ),
    ] = None,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write everything as JSON.")] = None,
    form: Form = None,
    device: Device = "auto",
) -> None:
    """Put runs side by side: recall with intervals, also by kind and length, and paired differences.

    Intervals and p-values come from a bootstrap over videos, and over seeds where there are several: all
    systems meet the same drawn videos. The differences are to the first RUN.
    """
    from holmes.evaluation.breakdown import groups_of
    from holmes.evaluation.comparison import compare_systems
    from holmes.files import write_json

    check_form(form)
    groups = find_systems(runs, protocol)
    systems, firsts = see_systems(groups, store, split, device)
    first = firsts[0]
    members = groups_of(first.store, first.seen.split)
    found = compare_systems(systems, first.seen.split.owner, members)
    found |= {"store": str(first.store.path), "split": split, "decided": decided(systems, firsts)}
    grids = comparison_grids(found, f"{first.store.path.name}, {split} split")
    show(*grids, form=form)
    if json is not None:
        write_json(json, found)
    if out is not None:
        say("drawing")
        write_comparison(out, grids, systems, firsts)
        say(str(out))


def find_systems(paths: list[Path], protocol: str | None) -> dict[str, list[RunFolder]]:
    """Name → runs that differ only by their seed."""
    from holmes.runs.folders import find_runs
    from holmes.runs.groups import group_runs

    protocols = parse_protocols(protocol or "both")
    wanted = protocols[0] if len(protocols) == 1 else None
    systems: dict[str, list[RunFolder]] = {}
    for path in paths:
        groups = group_runs(find_runs(path, wanted))
        for name, some in groups.items():
            whole = path.name or str(path)
            label = whole if len(groups) == 1 else name if len(paths) == 1 else f"{whole}: {name}"
            while label in systems:  # folders of one name in different places
                label += "′"
            systems[label] = some
    if len(systems) < 2:
        raise HolmesError(
            f"there is only one system, {next(iter(systems))}; name two runs, or a folder with more settings."
        )
    return systems


def see_systems(
    groups: dict[str, list[RunFolder]], store: Path | None, split: str, device: str
) -> tuple[list[System], list[EvaluatedRun]]:
    """Every system's ranks; of each the first run as it was seen."""
    import numpy as np

    from holmes.evaluation.comparison import System
    from holmes.runs.evaluated import evaluate_run
    from holmes.runs.folders import store_of
    from holmes.training.device import choose_device

    systems: list[System] = []
    firsts: list[EvaluatedRun] = []
    for name, runs in groups.items():
        ranks, fitting = [], []
        for number, run in enumerate(runs):
            say(f"looking at {run.path}")
            found = evaluate_run(run, store_of(run, store), split, choose_device(device))
            if firsts and found.store.info.digest != firsts[0].store.info.digest:
                raise HolmesError(
                    f"{run.path} was trained on another store than {firsts[0].run.path}; "
                    "say with --store which one to compare on."
                )
            if number == 0:
                firsts.append(found)
            ranks.append(found.seen.rank_Q)
            fitting.append(found.seen.fitting_Q)
        known = [some for some in fitting if some is not None]
        systems.append(System(name, np.stack(ranks), np.stack(known) if known else None))
    return systems, firsts


def decided(systems: list[System], firsts: list[EvaluatedRun]) -> list[dict[str, Any]]:
    """Which queries each further system gains and loses most, with both ranks."""
    from holmes.evaluation.comparison import decided_queries

    store, split = firsts[0].store, firsts[0].seen.split

    def row(ours: System, place: int) -> dict[str, Any]:
        query = int(split.queries[place])
        return {
            "id": store.query_ids[query],
            "text": store.captions[query],
            "ranks": ours.rank_SQ[:, place].tolist(),
            "reference_ranks": systems[0].rank_SQ[:, place].tolist(),
        }

    found = []
    for system in systems[1:]:
        won, lost = decided_queries(system, systems[0], LISTED)
        found.append(
            {
                "name": system.name,
                "won": [row(system, place) for place in won],
                "lost": [row(system, place) for place in lost],
            }
        )
    return found


def comparison_grids(found: dict[str, Any], where: str) -> list[Grid]:
    """The tables: figures, differences, groups, queries won and lost."""
    from holmes.evaluation.comparison_tables import (
        decided_grids,
        difference_grid,
        figures_grid,
        fitting_grid,
        group_grids,
    )

    grids = [figures_grid(found, where), difference_grid(found), *group_grids(found)]
    if found["systems"][0]["metrics_fitting"] is not None:
        grids.insert(1, fitting_grid(found))
    return [*grids, *decided_grids(found)]


def write_comparison(out: Path, grids: list[Grid], systems: list[System], firsts: list[EvaluatedRun]) -> None:
    """A page with the tables, and the timelines of queries won and lost by each further system."""
    from functools import partial

    from holmes.evaluation.comparison import decided_queries
    from holmes.plots.page import Picture, Section, paragraph, table, write_page
    from holmes.plots.timeline import draw_timelines
    from holmes.report.moment_figures import compared_timelines

    sections = [Section("Figures", "".join(table(grid) for grid in grids))]
    for number, system in enumerate(systems[1:], start=1):
        won, lost = decided_queries(system, systems[0], PICTURED)
        pair = [firsts[number], firsts[0]]
        lines = compared_timelines(
            [(one.seen, one.checkpoint.config.score) for one in pair],
            firsts[0].store,
            {**{place: "won" for place in won}, **{place: "lost" for place in lost}},
        )
        title = f"Queries won and lost: {system.name}"
        if not lines:
            sections.append(Section(title, paragraph("No query is placed differently.")))
            continue
        names = [
            name if len(name) <= SHORT else f"{name[: SHORT - 1]}…" for name in (system.name, systems[0].name)
        ]
        caption = (
            "The queries whose video rose and fell most. At every frame the weighted similarity of the frame "
            "and of the clip around it, in the right video and in the best wrong one; the true moment is "
            "shaded, the numbers are the videos' scores. With several seeds the first is drawn."
        )
        picture = Picture(f"decided{number}", title, caption, partial(draw_timelines, lines, names))
        sections.append(Section(title, picture.html()))
    lead = f"{len(systems)} systems, differences to {systems[0].name}."
    write_page(out, "Holmes: a comparison", lead, sections)
