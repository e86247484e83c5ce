"""The page of a comparison: its tables, and timelines of queries won and lost."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from holmes.evaluation.comparison import decided_queries
from holmes.evaluation.grid import Grid
from holmes.evaluation.runs.compare import Comparison
from holmes.report.figures.page import Picture, Section, paragraph, table, write_page
from holmes.report.figures.timeline import draw_timelines
from holmes.report.moments import compared_timelines

PICTURED = 3  # queries won, and as many lost, that are drawn
SHORT = 16  # characters of a name at the end of a line
CAPTION = """The queries whose video gained and lost most ranks. Lines show the weighted similarity of each
frame and the clip around it, in the right video and in the best wrong one. The true moment is shaded, and the
numbers are the videos' scores. With several seeds, the first is drawn."""


def write_comparison(out: Path, grids: list[Grid], compared: Comparison) -> None:
    """A page with the tables, and the timelines of queries won and lost by each further system."""
    systems = compared.systems
    sections = [Section("Figures", "".join(table(grid) for grid in grids))]
    sections += [decided_section(compared, number) for number in range(1, len(systems))]
    lead = f"{len(systems)} systems, differences to {systems[0].name}."
    write_page(out, "Holmes: a comparison", lead, sections)


def decided_section(compared: Comparison, number: int) -> Section:
    """The queries that a system wins and loses most against the first."""
    system, reference = compared.systems[number], compared.systems[0]
    won, lost = decided_queries(system, reference, PICTURED)
    pair = [compared.firsts[number], compared.firsts[0]]
    title = f"Queries won and lost: {system.name}"
    if any(one.checkpoint is None for one in pair):
        return Section(title, paragraph("Score files have no timelines."))
    lines = compared_timelines(
        [(one.seen, one.model.config.score) for one in pair],
        compared.firsts[0].store,
        {**{query: "won" for query in won}, **{query: "lost" for query in lost}},
    )
    if not lines:
        return Section(title, paragraph("No query is ranked differently."))
    names = [
        name if len(name) <= SHORT else f"{name[: SHORT - 1]}…" for name in (system.name, reference.name)
    ]
    picture = Picture(f"decided{number}", title, CAPTION, partial(draw_timelines, lines, names))
    return Section(title, picture.html())
