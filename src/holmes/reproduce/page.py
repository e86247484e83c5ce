"""Write RESULTS/index.html, the tables as LaTeX, and the origin of every row."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from functools import partial
from html import escape
from typing import Any
from urllib.parse import quote

import torch
from matplotlib.figure import Figure

from holmes import __version__
from holmes.base.files import atomic_file, write_json
from holmes.data.manifest import FEATURES as FEATURE_FILES
from holmes.data.store import Store
from holmes.evaluation.grid import Grid
from holmes.evaluation.literature import STABLE
from holmes.report.experiments import sweep_table
from holmes.report.figures.page import Picture, Section, facts, folded, paragraph, table, write_page
from holmes.report.figures.style import WIDTH, Theme, literal
from holmes.report.figures.sweep_curves import sweep_figure
from holmes.reproduce.finding import Findings, missing_lines
from holmes.reproduce.on_track import Standing, explained, left_at, off_track_message, standings
from holmes.reproduce.plan import DATA_COLUMNS, split_rows
from holmes.reproduce.published import COLLECTIONS, Curve, curves
from holmes.reproduce.tables import (
    Reproduction,
    ablation_grid,
    efficiency_grid,
    main_grid,
    stable_notes,
    summary_grid,
    swept,
)
from holmes.training.logbook import read_metrics

Runs = Mapping[str, Sequence[Standing]]  # the run's name → its epochs
Remarks = dict[str, tuple[str, ...]]  # collection → where it differs from the field's copy
PAGE, PROVENANCE, LATEX, REPORTS = "index.html", "provenance.json", "tables", "reports"


def write_results(
    outcome: Reproduction, findings: Findings, stores: dict[str, Store], device: str
) -> dict[str, Grid]:
    """Write the page, its tables as LaTeX and the provenance; the tables by name."""
    out, grids = outcome.request.out, result_grids(outcome, stores)
    for name, grid in grids.items():
        with atomic_file(out / LATEX / f"{name}.tex") as file:
            file.write(grid.written("latex").encode())
    origin = provenance(outcome, stores, device)
    write_json(out / PROVENANCE, origin)
    remarks = {name: found.remarks for name, found in findings.collections.items()}
    done = sum(run.name in outcome.results for run in outcome.plan)
    lead = f"{done} of {len(outcome.plan)} runs, on {device}. LaTeX of every table: {LATEX}/."
    sections = [
        *table_sections(outcome, grids, remarks),
        data_section(outcome, findings, stores),
        provenance_section(origin),
    ]
    write_page(out / PAGE, "The paper, reproduced", lead, sections)
    return grids


def result_grids(outcome: Reproduction, stores: dict[str, Store]) -> dict[str, Grid]:
    tables, grids = outcome.request.tables, dict[str, Grid]()
    for name in stores:
        if {"main", "figures"} & {*tables} or outcome.released:
            grids[f"main-{name}"] = main_grid(outcome, name)
    if grids:
        grids = {"summary": summary_grid(outcome, [*stores]), **grids}
    if "efficiency" in tables and (grid := efficiency_grid(outcome)) is not None:
        grids["efficiency"] = grid
    if "ablation" in tables:
        for name in stores:
            if (grid := ablation_grid(outcome, name)) is not None:
                grids[f"ablation-{name}"] = grid
    if "sweeps" in tables:
        for name, line in swept(outcome).items():
            grids[f"sweep-{name}"] = sweep_table(line)
            grids[f"sweep-{name}"].notes += stable_notes([name])
    return grids


def table_sections(outcome: Reproduction, grids: dict[str, Grid], remarks: Remarks) -> list[Section]:
    sections = []
    for start, title in (
        ("summary", "Summary"),
        ("main-", "Main table"),
        ("efficiency", "Efficiency"),
        ("ablation-", "Ablations"),
        ("sweep-", "Sweeps"),
    ):
        some = [grid for name, grid in grids.items() if name.startswith(start)]
        html = "".join(
            table(grid, [row[0] for row in grid.rows if row[0].startswith("ours")]) for grid in some
        )
        if start == "sweep-" and some:
            html = sweep_picture(outcome).html() + html
        if start == "summary" and some:
            html += verdicts(outcome)
        if html:
            sections.append(Section(title, html))
        if start == "main-" and (pictures := curve_pictures(outcome)):
            sections.append(Section("Beside the published runs", off_track(outcome, remarks) + pictures))
    links = report_links(outcome)
    return [*sections, *([Section("Figures", links)] if links else [])]


def verdicts(outcome: Reproduction) -> str:
    return "".join(paragraph(released.verdict()) for released in outcome.released)


def sweep_picture(outcome: Reproduction) -> Picture:
    found = swept(outcome)
    caption = f"Published protocol. Shaded: {' '.join(stable_notes([*found]))}"
    return Picture(
        "sweeps", "SumR over τ, β and the dustbin ratio on TVR", caption, partial(draw_sweeps, found)
    )


def run_standings(outcome: Reproduction) -> dict[str, Runs]:
    """Preset → the epochs of its main runs beside the published run."""
    found: dict[str, dict[str, Any]] = {}
    for run in outcome.plan:
        known = run.preset in curves() and not run.changes
        if known and (entries := read_metrics(run.folder(outcome.request.out))):
            found.setdefault(run.preset, {})[run.name] = standings(run.preset, run.protocol, entries)
    return dict(found)


def curve_pictures(outcome: Reproduction) -> str:
    caption = (
        "Grey: the published run, and the range that other seeds may have. Runs of the honest protocol "
        "select on other videos, so only their loss can be compared."
    )
    return "".join(
        Picture(
            f"curve-{preset}",
            f"{preset}, epoch by epoch",
            caption,
            partial(draw_curves, curves()[preset], runs),
        ).html()
        for preset, runs in run_standings(outcome).items()
    )


def off_track(outcome: Reproduction, remarks: Remarks) -> str:
    """Which runs have left the published ones, and why they may have."""
    lines, settings = [], [*outcome.request.settings]
    collections = {run.name: run.collection for run in outcome.plan}
    for runs in run_standings(outcome).values():
        for name, found in runs.items():
            if (at := left_at(found)) is not None:
                lines.append(off_track_message(name, at, settings, remarks.get(collections[name], ())))
    return "".join(map(paragraph, lines or ["Every run is within the expected range of its published run."]))


def report_links(outcome: Reproduction) -> str:
    pages = sorted((outcome.request.out / REPORTS).glob("*.html"))
    items = [
        f'<li><a href="{quote(f"{REPORTS}/{page.name}")}">{escape(page.stem)}</a></li>' for page in pages
    ]
    return f"<ul>{''.join(items)}</ul>" if items else ""


def data_section(outcome: Reproduction, findings: Findings, stores: dict[str, Store]) -> Section:
    """What was found, split by split, beside the field's sizes."""
    grid = Grid("Data sets", DATA_COLUMNS)
    for name in stores:
        found = findings.collections[name]
        grid.rows.append([f"{found.about.title}: {found.form} {found.visual}, {found.text}"])
        grid.rows += split_rows(found)
    lines = missing_lines(findings, outcome.request.collections)
    return Section("Data", table(grid) + "".join(map(paragraph, lines)))


def provenance(outcome: Reproduction, stores: dict[str, Store], device: str) -> dict[str, Any]:
    """Digests of features, versions, and the command that repeats each run."""
    return {
        "holmes": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": device,
        "settings": dict(outcome.request.settings),
        "stores": {
            name: {
                "digest": store.info.digest,
                "features": {file: store.info.files[file].sha256 for file in FEATURE_FILES},
                "splits": store.info.splits,
            }
            for name, store in stores.items()
        },
        "checkpoints": {released.file: released.digest for released in outcome.released},
        "runs": {
            run.name: {
                "tables": [*run.tables],
                "command": run.command(outcome.request),
                "metrics": outcome.results[run.name].metrics if run.name in outcome.results else None,
            }
            for run in outcome.plan
        },
    }


def provenance_section(origin: dict[str, Any]) -> Section:
    versions = {name: str(origin[name]) for name in ("holmes", "torch", "python", "device")}
    features = {
        f"{COLLECTIONS[name].title}, {file}": digest
        for name, store in origin["stores"].items()
        for file, digest in store["features"].items()
    }
    commands = "".join(
        f"<dt>{escape(name)}</dt><dd><code>{escape(run['command'])}</code></dd>"
        for name, run in origin["runs"].items()
    )
    html = facts(versions) + folded("SHA-256 of the packed features", facts(features))
    html += folded("The command that repeats each run", f"<dl>{commands}</dl>")
    return Section("Provenance", html + paragraph(f"All of it: {PROVENANCE}."))


def draw_curves(curve: Curve, runs: Runs, theme: Theme) -> Figure:
    """SumR and loss after each epoch, the published run in grey with the band that seeds explain."""
    with theme.applied():
        figure = Figure((WIDTH, 2.7), layout="constrained")
        total, loss = figure.subplots(1, 2)
        epochs = range(1, len(curve.SumR) + 1)
        total.plot(epochs, curve.SumR, color=theme.muted, label="published run")
        loss.plot(epochs, curve.loss, color=theme.muted, label="published run")
        for number, (name, epochs_of) in enumerate(runs.items()):
            colour = theme.series[number % len(theme.series)]
            numbers = [each.epoch for each in epochs_of]
            marker = "o" if len(numbers) < 4 else ""
            style = {"color": colour, "marker": marker, "markersize": 3, "label": literal(name)}
            if epochs_of and epochs_of[0].SumR is not None:
                total.plot(numbers, [each.SumR or 0.0 for each in epochs_of], **style)
            loss.plot(numbers, [each.loss for each in epochs_of], **style)
        low, high = zip(*(explained(curve, epoch) for epoch in epochs), strict=True)
        total.fill_between(epochs, low, high, color=theme.faint, linewidth=0, zorder=0)
        total.set_title("SumR on test")
        loss.set_title("mean loss")
        for axes in (total, loss):
            axes.set_xlabel("epoch")
            axes.legend(frameon=False, fontsize=6.5)
    return figure


def draw_sweeps(sweeps: dict[str, dict[str, Any]], theme: Theme) -> Figure:
    """Our sweeps; the range in which the paper calls SumR stable is shaded."""
    figure = sweep_figure(sweeps, theme=theme)
    for axes, (name, sweep) in zip(figure.axes, sweeps.items(), strict=False):
        low, high = STABLE[name]
        inside = [number for number, point in enumerate(sweep["points"]) if low <= point["value"] <= high]
        if inside:
            axes.axvspan(inside[0] - 0.2, inside[-1] + 0.2, color=theme.faint, zorder=0, linewidth=0)
    return figure
