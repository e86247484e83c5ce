"""The paper's tables with our figures beside the printed ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holmes.config.ablations import FULL, PAPER, SWEEPS, TABLE_TITLES, TABLES, Ablation
from holmes.config.baseline_presets import TITLES
from holmes.evaluation.grid import Grid
from holmes.evaluation.intervals import read_ranks, saved_summary
from holmes.evaluation.literature import EFFICIENCY, STABLE, main_table, published_figures
from holmes.evaluation.tables import FITTING, INTERVAL_NOTE, MARK, bounds, cells, fitting_rows, number
from holmes.reproduce.checkpoints import ReleasedFigures
from holmes.reproduce.efficiency import Times
from holmes.reproduce.plan import (
    ABLATED,
    SWEPT,
    PlannedRun,
    Request,
    configured,
    main_presets,
    run_name,
    sweep_rows,
)
from holmes.reproduce.published import COLLECTIONS
from holmes.results import METRICS, TrainingResult
from holmes.training.protocol import Protocol
from holmes.training.resume import RANKS, RESULT, read_result

Summary = dict[str, dict[str, float | None]]
PROTOCOLS = (Protocol.PUBLISHED, Protocol.HONEST)


@dataclass
class Reproduction:
    """All that has been run so far."""

    request: Request
    plan: list[PlannedRun]
    results: dict[str, TrainingResult] = field(default_factory=dict)  # by the run's name
    released: list[ReleasedFigures] = field(default_factory=list)
    times: dict[str, Times] = field(default_factory=dict)  # preset → efficiency

    def note_done(self) -> None:
        """Read the results of runs that have finished."""
        out = self.request.out
        self.results |= {
            run.name: read_result(run.folder(out) / RESULT)
            for run in self.plan
            if run.name not in self.results and run.done(out)
        }

    def figures(self, preset: str, protocol: Protocol, row: Ablation = FULL) -> Summary | None:
        """One setting over its seeds, with intervals; None where a seed is missing."""
        found = self.summary(preset, protocol, row)
        return None if found is None else found["metrics"]

    def summary(self, preset: str, protocol: Protocol, row: Ablation = FULL) -> dict[str, Summary] | None:
        """The figures, and where further videos are known to be right those of any right one."""
        config = configured(self.request, preset)
        names = [run_name(preset, protocol, row, config, seed) for seed in self.request.seeds]
        if not all(name in self.results for name in names):
            return None
        metrics = [self.results[name].metrics for name in names]
        ranks = [read_ranks(Path(self.results[name].run) / RANKS) for name in names]
        return saved_summary(metrics, ranks)


def printed_name(preset: str) -> str:
    """The row of the paper's main table that a preset reproduces."""
    base = preset.removesuffix("_plus")
    if base == "tvr_dual":
        return "Holmes, dual query"
    method = next(
        (title for name, title in TITLES.items() if base in (f"{name}_{c}" for c in COLLECTIONS)), None
    )
    return method or "Holmes"


def our_name(preset: str, protocol: Protocol) -> str:
    """A row of ours: the method, the recipe, and how its epoch is selected."""
    better = ", better recipe" if preset.endswith("_plus") else ""
    mark = MARK if protocol is Protocol.PUBLISHED else ""
    return f"ours: {printed_name(preset)}{better}, {protocol.value} protocol{mark}"


def summary_grid(outcome: Reproduction, collections: Sequence[str]) -> Grid:
    """One row per preset: SumR printed, by the published checkpoint, and ours with both protocols."""
    columns = ["SumR", "printed", "published checkpoint", "ours, published", "Δ", "ours, honest"]
    grid = Grid("SumR on test", columns)
    for collection in collections:
        known = published_figures(collection)
        assert known is not None
        for preset in main_presets(outcome.request, collection):
            ours = [outcome.figures(preset, protocol) for protocol in PROTOCOLS]
            released = [each.metrics["SumR"] for each in outcome.released if each.preset == preset]
            if released or any(ours):
                printed = known.methods[printed_name(preset)][-1]
                first, honest = ("–" if found is None else number(found["SumR"]) for found in ours)
                change = "–" if ours[0] is None else f"{(ours[0]['SumR']['mean'] or 0) - printed:+.1f}"
                tried = number(released[0]) if released else "–"
                grid.rows.append([preset, number(printed), tried, first, change, honest])
    return grid


def main_grid(outcome: Reproduction, collection: str) -> Grid:
    """The printed rows of one data set, then ours with intervals and the difference to the printed row."""
    about, known = COLLECTIONS[collection], published_figures(collection)
    assert known is not None
    seeds = len(outcome.request.seeds)
    grid = Grid(f"{about.title}: printed and reproduced recall, %", ["", *METRICS, "95% of SumR", "Δ SumR"])
    for block, rows in main_table(known).items():
        grid.rows.append([f"{block} (printed)"])
        grid.rows += [[f"{name}{MARK}", *cells(figures), "", ""] for name, figures in rows.items()]
    grid.rows.append([f"reproduced, {seeds} seed{'s' * (seeds > 1)}"])
    for name in main_presets(outcome.request, collection):
        for protocol in PROTOCOLS:
            summary = outcome.summary(name, protocol)
            if summary is not None:
                found, printed = summary["metrics"], known.methods[printed_name(name)][-1]
                total = found["SumR"]
                grid.rows.append(
                    [
                        our_name(name, protocol),
                        *cells(found),
                        bounds(total["low"], total["high"]),
                        f"{(total['mean'] or 0) - printed:+.1f}",
                    ]
                )
                if fitting := summary.get("metrics_fitting"):
                    total = fitting["SumR"]
                    of_total = bounds(total["low"], total["high"])
                    grid.rows.append([f"  {FITTING}", *cells(fitting), of_total, ""])
    for released in outcome.released:
        if released.collection == collection:
            label = f"published checkpoint {released.file}{MARK}"
            grid.rows.append([label, *cells(released.metrics), "", f"{released.difference:+.1f}"])
    grid.notes += [
        f"{MARK.strip()} The best epoch is selected on the test split itself. The honest protocol selects "
        "on a held-out part of train.",
        "Δ SumR: reproduced minus printed.",
        INTERVAL_NOTE,
    ]
    if outcome.request.settings:
        changed = ", ".join(f"{name}={value}" for name, value in outcome.request.settings.items())
        grid.notes.append(f"Settings changed: {changed}. The rows are not the paper's.")
    return grid


def ablation_grid(outcome: Reproduction, collection: str) -> Grid | None:
    """Rows (0) to (12), ours and printed, and whether both say that the part helps."""
    preset, known = ABLATED[collection], published_figures(collection)
    assert known is not None
    whole = outcome.summary(preset, Protocol.PUBLISHED)
    if whole is None:
        return None
    full = whole["metrics"]
    columns = ["", *METRICS, "Δ ours", "printed", "Δ printed", "same sign"]
    grid = Grid(f"{COLLECTIONS[collection].title}: ablations of {known.ablated}", columns)
    base, printed_base = full["SumR"]["mean"] or 0.0, known.ablation[0][-1]
    grid.rows.append(["(0) Holmes", *cells(full), "", number(printed_base), "", ""])
    grid.rows += [[*fitting, *[""] * 4] for fitting in fitting_rows(whole)[:1]]
    agreeing = equal = counted = 0
    for block in PAPER:
        grid.rows.append([TABLE_TITLES[block]])
        for row in TABLES[block]:
            summary = outcome.summary(preset, Protocol.PUBLISHED, row)
            if summary is None:
                continue
            found = summary["metrics"]
            ours, printed = (found["SumR"]["mean"] or 0.0) - base, known.ablation[row.row][-1] - printed_base
            agreeing, counted = agreeing + (ours * printed > 0), counted + 1
            equal += ours == 0
            same = "–" if ours == 0 else "yes" if ours * printed > 0 else "no"
            texts = [f"{ours:+.1f}", number(known.ablation[row.row][-1]), f"{printed:+.1f}"]
            grid.rows.append([f"({row.row}) {row.title}", *cells(found), *texts, same])
            grid.rows += [[*fitting, *[""] * 4] for fitting in fitting_rows(summary)[:1]]
    ties = f"; {equal} show no difference here" if equal else ""
    grid.notes.append(f"Both agree on the sign in {agreeing} of {counted} rows{ties}.")
    if len(outcome.request.seeds) == 1:
        grid.notes.append("One seed: differences below about 1 SumR can change their sign with another seed.")
    return grid


def efficiency_grid(outcome: Reproduction) -> Grid | None:
    """The printed rows and ours on this device."""
    if not outcome.times:
        return None
    device = next(iter(outcome.times.values())).device
    columns = ["", "train ms/epoch", "parameters, M", "inference ms", "retrieval ms", "SumR"]
    grid = Grid("Efficiency on ActivityNet Captions", columns, [["printed"]])
    for name, values in EFFICIENCY.items():
        grid.rows.append([name, *times_row(values[0], values[1], values[2], values[3]), number(values[4])])
    grid.rows.append([f"measured here, on {device}"])
    for preset, times in outcome.times.items():
        found = outcome.figures(preset, Protocol.PUBLISHED)
        row = times_row(times.train_ms, times.parameters, times.inference_ms, times.retrieval_ms)
        total = "–" if found is None else number(found["SumR"])
        grid.rows.append([f"ours: {printed_name(preset)}", *row, total])
    grid.notes.append(
        "Inference encodes the test videos; retrieval encodes, scores and ranks the test queries. "
        "SumR of ours: published protocol, where that run is part of the main table."
    )
    return grid


def times_row(train: float, parameters: float, inference: float, retrieval: float) -> list[str]:
    return [f"{train:,.0f}", f"{parameters:.2f}", f"{inference:,.0f}", f"{retrieval:,.0f}"]


def swept(outcome: Reproduction) -> dict[str, dict[str, Any]]:
    """The sweeps of TVR as `sweep.json` has them, of the values that are done."""
    config = configured(outcome.request, SWEPT)
    lines = {}
    for name, rows in sweep_rows(config).items():
        setting = SWEEPS[name][0]
        found = {value: outcome.summary(SWEPT, Protocol.PUBLISHED, row) for value, row in rows.items()}
        points = [{"value": value, **each} for value, each in found.items() if each is not None]
        default = next(value for value, row in rows.items() if row is FULL)
        if points:
            lines[name] = {"parameter": name, "setting": setting, "default": default, "points": points}
    return lines


def stable_notes(names: Sequence[str]) -> list[str]:
    """What the paper's text says about each sweep."""
    symbol: Mapping[str, str] = {"tau": "τ", "beta": "β", "dustbin": "z"}
    return [
        f"The paper calls SumR stable for {symbol[name]} in [{STABLE[name][0]:g}, {STABLE[name][1]:g}] and "
        "prints its curve without numbers."
        for name in names
    ]
