"""Which runs the tables need, each once: data set, preset, changes, protocol, seed, folder."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from holmes.config.ablations import FULL, SWEEPS, Ablation
from holmes.config.ablations import table as ablation_rows
from holmes.config.baseline_presets import METHODS
from holmes.config.presets import PRESETS, preset
from holmes.config.schema import HolmesConfig, with_changes
from holmes.config.search_space import setting_of
from holmes.errors import HolmesError, unknown
from holmes.evaluation.grid import Grid
from holmes.reproduce.estimate import epoch_seconds, in_words, measured_seconds
from holmes.reproduce.finding import Findings, FoundCollection
from holmes.reproduce.published import CHECKPOINTS_AT, COLLECTIONS
from holmes.training.experiments import folder_of, in_file_name, refuse_rows_of_stage_2_only
from holmes.training.protocol import Protocol
from holmes.training.resume import RESULT

TABLES = ("main", "efficiency", "ablation", "sweeps", "figures")
ABLATED = {"activitynet": "activitynet", "charades": "charades", "tvr": "tvr_dual"}  # as in the paper
SWEPT = "tvr_dual"
TIMED = ("gmmformer", "hlformer", "gmmformer_v2")  # the paper's efficiency table, besides ours
TIMED_ON = "activitynet"
TIMED_EPOCHS = 3  # the first one warms up
RUNS, STORES = "runs", "stores"
DATA_COLUMNS = ("", "videos", "the field's", "queries", "the field's")


@dataclass(frozen=True)
class Request:
    """What was asked for."""

    data: Path
    out: Path
    tables: tuple[str, ...] = ("main",)
    collections: tuple[str, ...] = tuple(COLLECTIONS)
    seeds: tuple[int, ...] = (0,)
    settings: Mapping[str, Any] = field(default_factory=dict)
    plus: bool = False
    baselines: bool = False
    jobs: int = 1
    device: str = "auto"

    def __post_init__(self) -> None:
        for what, given, known in (
            ("table", self.tables, TABLES),
            ("data set", self.collections, tuple(COLLECTIONS)),
        ):
            for name in given:
                if name not in known:
                    raise unknown(what, name, known)


@dataclass(frozen=True)
class PlannedRun:
    """One training, in RESULTS/runs/NAME; `changes` are those of an ablation or a sweep."""

    name: str
    collection: str
    preset: str
    config: HolmesConfig
    protocol: Protocol
    seed: int
    changes: dict[str, Any] = field(default_factory=dict)
    tables: tuple[str, ...] = ()

    def folder(self, out: Path) -> Path:
        return out / RUNS / self.name

    def done(self, out: Path) -> bool:
        return (self.folder(out) / RESULT).exists()

    def command(self, request: Request) -> str:
        """The command that repeats this run alone."""
        settings = {**request.settings, **self.changes}
        parts = [
            "holmes", "train", str(request.out / STORES / self.collection), "--preset", self.preset,
            "--protocol", self.protocol.value, "--seed", str(self.seed), "--out", self.name,
        ]  # fmt: skip
        for name, value in settings.items():
            parts += ["--set", f"{name}={in_setting(value)}"]
        return shlex.join(parts)


def in_setting(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def make_plan(request: Request, available: Iterable[str]) -> list[PlannedRun]:
    """Every run once, those of the main table first; only for data sets that are there."""
    here = [name for name in request.collections if name in available]
    makers = {
        "main": main_runs,
        "figures": main_runs,
        "ablation": ablation_runs,
        "sweeps": sweep_runs,
        "efficiency": efficiency_runs,
    }
    plan: dict[str, PlannedRun] = {}
    for table in (name for name in makers if name in request.tables):
        for run in makers[table](request, here):
            known = plan.setdefault(run.name, run)
            if table not in known.tables:
                plan[run.name] = replace(known, tables=(*known.tables, table))
    return [*plan.values()]


def main_presets(request: Request, collection: str) -> list[str]:
    own = COLLECTIONS[collection].presets
    better = [f"{name}_plus" for name in own] if request.plus else []
    others = [f"{method}_{collection}" for method in METHODS] if request.baselines else []
    return [*own, *better, *(name for name in others if name in PRESETS)]


def main_runs(request: Request, here: list[str]) -> Iterator[PlannedRun]:
    for collection in here:
        for name in main_presets(request, collection):
            for protocol in (Protocol.PUBLISHED, Protocol.HONEST):
                yield from with_seeds(request, collection, name, protocol)


def ablation_runs(request: Request, here: list[str]) -> Iterator[PlannedRun]:
    rows = [FULL, *ablation_rows("all")]
    for collection in here:
        name = ABLATED[collection]
        refuse_rows_of_stage_2_only(configured(request, name), rows)
        for row in rows:
            yield from with_seeds(request, collection, name, Protocol.PUBLISHED, row)


def sweep_runs(request: Request, here: list[str]) -> Iterator[PlannedRun]:
    if "tvr" in here:
        rows = [row for some in sweep_rows(configured(request, SWEPT)).values() for row in some.values()]
        refuse_rows_of_stage_2_only(configured(request, SWEPT), rows)
        for row in rows:
            yield from with_seeds(request, "tvr", SWEPT, Protocol.PUBLISHED, row)


def sweep_rows(config: HolmesConfig) -> dict[str, dict[float, Ablation]]:
    """Parameter → value → the row that sets it, the preset's own value included, in ascending order."""
    swept = {}
    for name, (setting, values) in SWEEPS.items():
        rows = {value: Ablation(0, f"{name} = {value:g}", {setting: value}) for value in values}
        rows[setting_of(config, setting)] = FULL
        swept[name] = dict(sorted(rows.items()))
    return swept


def efficiency_runs(request: Request, here: list[str]) -> Iterator[PlannedRun]:
    """A few epochs of each method of the paper's table: they are timed, not compared."""
    if TIMED_ON in here:
        timed = {"training.epochs": TIMED_EPOCHS, "training.warm_up_epochs": 0}
        row = Ablation(0, "timed", timed, "timed")
        for name in (*(f"{method}_{TIMED_ON}" for method in TIMED), TIMED_ON):
            yield from with_seeds(
                replace(request, seeds=request.seeds[:1]), TIMED_ON, name, Protocol.PUBLISHED, row
            )


def configured(request: Request, name: str) -> HolmesConfig:
    return with_changes(preset(name), dict(request.settings))


def with_seeds(
    request: Request, collection: str, name: str, protocol: Protocol, row: Ablation = FULL
) -> Iterator[PlannedRun]:
    config = configured(request, name)
    for seed in request.seeds:
        changed = row.apply(config)
        yield PlannedRun(
            run_name(name, protocol, row, config, seed),
            collection, name, changed, protocol, seed, dict(row.changes) if changed != config else {},
        )  # fmt: skip


def run_name(name: str, protocol: Protocol, row: Ablation, config: HolmesConfig, seed: int) -> str:
    """Rows that change nothing share the run of the main table."""
    variant = "" if row.apply(config) == config else f"-{in_file_name(folder_of(row, config))}"
    return f"{name}-{protocol.value}{variant}-seed{seed}"


def refuse_empty(request: Request, plan: list[PlannedRun], here: Iterable[str]) -> None:
    if plan:
        return
    needs = {"sweeps": "tvr", "efficiency": TIMED_ON}
    why = ", ".join(f"{table} needs {needs[table]}" for table in request.tables if table in needs)
    found = ", ".join(here) or "none"
    raise HolmesError(
        f"nothing to run: {why or 'no data set was chosen'} (usable in {request.data}: {found})."
    )


def plan_grids(request: Request, findings: Findings, plan: list[PlannedRun]) -> list[Grid]:
    """What `--plan` prints: the data that was found, and the runs with about how long they take here."""
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
            "There is no published checkpoint here. With one, the command can verify your features before "
            f"training: {CHECKPOINTS_AT}."
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
    for name in dict.fromkeys(run.preset for run in plan):
        runs = [run for run in plan if run.preset == name]
        measured = [measured_seconds(run.folder(request.out)) for run in runs]
        known = [seconds for seconds in measured if seconds is not None]
        seconds = known[0] if known else epoch_seconds(runs[0].config, runs[0].collection, request.device)
        left = sum(run.config.training.epochs for run in runs if not run.done(request.out)) * seconds
        total += left
        tables = dict.fromkeys(table for run in runs for table in run.tables)
        epochs = sorted({run.config.training.epochs for run in runs})
        grid.rows.append(
            [
                name,
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
