"""What `--plan` prints: the data that was found, and the runs with about how long they take here."""

from __future__ import annotations

from holmes.evaluation.grid import Grid
from holmes.reproduce.estimate import epoch_seconds, in_words, measured_seconds
from holmes.reproduce.finding import Findings, FoundCollection
from holmes.reproduce.plan import PlannedRun, Request
from holmes.reproduce.published import CHECKPOINTS_AT

DATA_COLUMNS = ("", "videos", "the field's", "queries", "the field's")


def plan_grids(request: Request, findings: Findings, plan: list[PlannedRun]) -> list[Grid]:
    return [data_grid(request, findings), runs_grid(request, plan)]


def data_grid(request: Request, findings: Findings) -> Grid:
    """The data sets, split by split, beside the field's sizes."""
    grid = Grid(f"Data sets in {request.data}", DATA_COLUMNS)
    for name in request.collections:
        found = findings.collections.get(name)
        if found is None:
            grid.rows.append([f"{name}: not found"])
            continue
        state = "" if found.usable else ", not usable"
        grid.rows.append([f"{found.about.title} in {found.tree.where}: {found.form or 'no features'}{state}"])
        grid.rows += split_rows(found)
    if findings.checkpoints:
        names = ", ".join(path.name for path in findings.checkpoints[:8])
        grid.notes.append(f"Checkpoints to try first: {names}.")
    else:
        grid.notes.append(
            "No published checkpoint here. Evaluated on your features, one tells at once whether they are "
            f"the field's: {CHECKPOINTS_AT}."
        )
    return grid


def split_rows(found: FoundCollection) -> list[list[str]]:
    """The videos and queries of each split, and the field's."""
    rows = []
    for split, (videos, queries) in found.sizes.items():
        usual = found.about.sizes.get(split)
        theirs = ["–", "–"] if usual is None else [f"{count:,}" for count in usual]
        rows.append([split, f"{videos:,}", theirs[0], f"{queries:,}", theirs[1]])
    return rows


def runs_grid(request: Request, plan: list[PlannedRun]) -> Grid:
    """One row per preset: how many runs, of how many epochs, and the time that is left."""
    grid = Grid("Runs", ["", "tables", "runs", "done", "epochs", "an epoch", "left"])
    total = 0.0
    for preset in dict.fromkeys(run.preset for run in plan):
        runs = [run for run in plan if run.preset == preset]
        measured = [measured_seconds(run.folder(request.out)) for run in runs]
        known = [seconds for seconds in measured if seconds is not None]
        seconds = known[0] if known else epoch_seconds(runs[0].config, runs[0].collection, request.device)
        left = sum(run.config.training.epochs for run in runs if not run.done(request.out)) * seconds
        total += left
        tables = dict.fromkeys(table for run in runs for table in run.tables)
        epochs = sorted({run.config.training.epochs for run in runs})
        grid.rows.append(
            [
                preset,
                ", ".join(tables),
                str(len(runs)),
                str(sum(run.done(request.out) for run in runs)),
                " or ".join(map(str, epochs)),
                f"{'' if known else 'about '}{in_words(seconds)}",
                in_words(left),
            ]
        )
    grid.rows.append(["all", "", str(len(plan)), "", "", "", in_words(total)])
    grid.notes.append(
        "Times are of this device, at the field's sizes, one run after the other; runs often stop early."
    )
    return grid
