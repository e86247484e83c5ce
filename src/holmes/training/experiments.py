"""Many runs as one experiment: seeds, protocols, ablation rows, swept values.

Every run has a folder of its own and a finished one is not repeated, so any of these can be stopped and gone
on with by the same call.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from holmes.base.devices import choose_device
from holmes.base.files import write_json
from holmes.base.parallel import process_group
from holmes.config import ablations
from holmes.config.ablations import FULL, Ablation
from holmes.config.schema import HolmesConfig
from holmes.config.search_space import setting_of
from holmes.data.store import Store
from holmes.errors import HolmesError
from holmes.evaluation.intervals import read_ranks, saved_summary
from holmes.results import TrainingResult
from holmes.training.logbook import read_metrics
from holmes.training.protocol import Protocol
from holmes.training.resume import LOCK, RANKS, RUN
from holmes.training.run import RunOptions
from holmes.training.side_by_side import QueuedRun, train_all

SUMMARY = "summary.json"


@dataclass(frozen=True)
class Study:
    """What all runs of an experiment share."""

    store: Store
    config: HolmesConfig
    out: Path
    seeds: Sequence[int] = (0,)
    protocols: Sequence[Protocol] = (Protocol.HONEST,)
    options: RunOptions = RunOptions()  # noqa: RUF009 - frozen
    jobs: int = 1  # runs at once; 0 takes as many as fit

    def train(
        self,
        settings: Mapping[str, tuple[HolmesConfig, Protocol]],
        say: Callable[[str], None] = lambda line: None,
        titles: Mapping[str, str] | None = None,
    ) -> dict[str, list[TrainingResult]]:
        """All settings with every seed, in `{name}-seed{N}`: name → the results of its seeds."""
        if leads():
            refuse_foreign_study(self.out)
        jobs = {
            (name, seed): QueuedRun(
                f"{name}-seed{seed}", self.store, config, self.out / f"{name}-seed{seed}", seed, protocol
            )
            for name, (config, protocol) in settings.items()
            for seed in self.seeds
        }
        firsts = {f"{name}-seed{self.seeds[0]}": title for name, title in (titles or {}).items()}

        def begin(job: QueuedRun) -> None:
            if job.name in firsts:
                say(firsts[job.name])

        results = dict(zip(jobs, train_all([*jobs.values()], self.options, self.jobs, begin), strict=True))
        return {name: [results[name, seed] for seed in self.seeds] for name in settings}

    def figures(self, name: str, runs: Sequence[TrainingResult]) -> dict[str, dict[str, Any]]:
        """Over the seeds of one setting: mean, deviation, and the interval over videos and seeds."""
        read = [read_ranks(self.out / f"{name}-seed{seed}" / RANKS) for seed in self.seeds]
        return saved_summary([run.metrics for run in runs], read)

    def costs(self, name: str, runs: Sequence[TrainingResult]) -> dict[str, float | None]:
        """Of one setting: parameters, and the seconds that an epoch of its runs takes, without evaluation."""
        epochs = [epoch for seed in self.seeds for epoch in read_metrics(self.out / f"{name}-seed{seed}")]
        found = [epoch.get("speed", {}).get("train_seconds") for epoch in epochs]
        seconds = [value for value in found if isinstance(value, float)]
        return {
            "parameters": runs[0].parameters,
            "seconds_per_epoch": statistics.median(seconds) if seconds else None,
        }


def refuse_foreign_study(folder: Path) -> None:
    """Refuse a folder with other files: many runs go into a new folder, or into one that has some."""
    found = folder.glob("[!.]*") if folder.is_dir() else []
    others = sorted(path.name for path in found if not has_only_begun(path))
    if others and not any(folder.glob(f"*/{RUN}")):
        raise HolmesError(
            f"{folder} is not empty and contains no runs (it has {others[0]!r}"
            f"{' and others' if len(others) > 1 else ''}); give a new folder with --out."
        )


def has_only_begun(path: Path) -> bool:
    """Whether this is the folder of a run that was killed before it recorded what it is."""
    return path.is_dir() and all(inside.name == LOCK or inside.name[0] == "." for inside in path.iterdir())


def leads() -> bool:
    """Whether this process is the one that writes and prints, before any process group exists."""
    return os.environ.get("RANK", "0") == "0"


def train_seeds(study: Study) -> dict[str, Any]:
    """Every protocol with every seed in `{protocol}-seed{N}`; mean and deviation in `summary.json`."""
    if (study.out / RUN).exists():
        raise HolmesError(f"{study.out} contains a single run; give another --out for several.")
    with process_group(choose_device(study.options.device)):
        runs = study.train({protocol.value: (study.config, protocol) for protocol in study.protocols})
    found = {
        name: {"runs": [run.to_file() for run in some], **study.figures(name, some)}
        for name, some in runs.items()
    }
    summary = {
        "format": "holmes-summary",
        "version": 1,
        "preset": study.config.name,
        "collection": study.store.info.collection,
        "seeds": list(study.seeds),
        "protocols": found,
    }
    if leads():
        write_json(study.out / SUMMARY, summary)
    return summary


def run_rows(
    study: Study, rows: Sequence[Ablation], say: Callable[[str], None] = lambda line: None
) -> list[dict[str, Any]]:
    """Train each row with every seed: its metrics over seeds and its costs, one protocol after the other."""
    refuse_rows_of_stage_2_only(study.config, rows)
    folders: list[str] = []
    titles: dict[str, str] = {}
    settings: dict[str, tuple[HolmesConfig, Protocol]] = {}
    several = len(study.protocols) > 1
    for protocol, (position, row) in product(study.protocols, enumerate(rows)):
        folder = f"{protocol.value}-" * several + folder_of(row, study.config)
        folders.append(folder)
        settings[folder] = row.apply(study.config), protocol
        title = f"row {position + 1} of {len(rows)}: {row.title}" + f", {protocol.value}" * several
        titles.setdefault(folder, title)
    with process_group(choose_device(study.options.device)):
        runs = study.train(settings, say, titles)
    return [
        {**study.figures(folder, runs[folder]), **study.costs(folder, runs[folder])} for folder in folders
    ]


def recalls(found: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a row without its costs."""
    return {name: found[name] for name in ("metrics", "metrics_fitting") if name in found}


def refuse_several_protocols(study: Study) -> None:
    if len(study.protocols) > 1:
        raise HolmesError("a sweep has one protocol; choose --protocol honest or published.")


def refuse_rows_of_stage_2_only(config: HolmesConfig, rows: Sequence[Ablation]) -> None:
    """Refuse a schedule without stage 2: calibration and alignment work there, and rows would be the same."""
    training = config.training
    changed = {name for row in rows for name in row.changes}
    elsewhere = [name for name in changed if name.split(".")[0] not in ("evidence", "alignment")]
    if training.epochs <= training.warm_up_epochs and set(elsewhere) <= {"loss.intra"}:
        raise HolmesError(
            f"with {training.epochs} epochs and {training.warm_up_epochs} of stage 1 the rows would not "
            "differ: stage 2 is never reached. Raise epochs, or lower --set warm_up_epochs."
        )


def folder_of(row: Ablation, config: HolmesConfig) -> str:
    """Rows that change nothing share the full method's run, whatever table or sweep they are in."""
    if row.apply(config) == config:
        return "full"
    return row.folder or "-".join(
        f"{name.split('.')[1]}={in_file_name(value)}" for name, value in row.changes.items()
    )


def in_file_name(value: Any) -> str:
    return "+".join(map(str, value)) if isinstance(value, tuple) else str(value)


def ablate(study: Study, table: str, say: Callable[[str], None] = lambda line: None) -> list[dict[str, Any]]:
    """The full method and the rows of a table: row, title, block, protocol, figures and costs of each."""
    block = {row.row: name for name, rows in ablations.TABLES.items() for row in rows}
    rows = [FULL, *ablations.table(table)]
    trained = run_rows(study, rows, say)
    return [
        {
            "row": row.row,
            "title": row.title,
            "block": block.get(row.row),
            "protocol": protocol.value,
            **found,
        }
        for (protocol, row), found in zip(product(study.protocols, rows), trained, strict=True)
    ]


def sweep(
    study: Study,
    axes: Mapping[str, tuple[str, Sequence[Any]]],
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, dict[str, Any]]:
    """Sweep one setting after the other: name → figures at each of its values and at the preset's own.

    `axes` has a setting and its values for each name; all of them are trained together.
    """
    refuse_several_protocols(study)
    swept = {}
    for name, (setting, values) in axes.items():
        default = setting_of(study.config, setting)
        by_value = {value: Ablation(0, f"{name} = {value}", {setting: value}) for value in values}
        by_value |= {default: FULL}
        if all(isinstance(value, int | float) for value in by_value):
            by_value = dict(sorted(by_value.items()))
        swept[name] = (setting, default, by_value)
    trained = iter(run_rows(study, [row for *_, rows in swept.values() for row in rows.values()], say))
    return {
        name: {
            "parameter": name,
            "setting": setting,
            "default": default,
            "points": [{"value": value, **recalls(next(trained))} for value in rows],
        }
        for name, (setting, default, rows) in swept.items()
    }


def grid(
    study: Study, axes: Mapping[str, Sequence[Any]], say: Callable[[str], None] = lambda line: None
) -> dict[str, Any]:
    """Figures at every combination of some settings' values."""
    refuse_several_protocols(study)
    combinations = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    rows = [
        Ablation(0, ", ".join(f"{name} = {value}" for name, value in changes.items()), changes)
        for changes in combinations
    ]
    trained = run_rows(study, rows, say)
    return {
        "settings": list(axes),
        "default": {setting: setting_of(study.config, setting) for setting in axes},
        "points": [
            {"values": changes, **recalls(found)}
            for changes, found in zip(combinations, trained, strict=True)
        ],
    }
