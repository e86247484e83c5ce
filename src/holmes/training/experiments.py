"""Many runs as one: seeds, protocols, rows of an ablation table, values of a sweep.

Every run has a folder of its own and a finished one is not repeated, so any of these can be stopped and gone
on with by the same call.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holmes.config import ablations
from holmes.config.ablations import FULL, Ablation
from holmes.config.schema import HolmesConfig
from holmes.data.store import Store
from holmes.errors import HolmesError
from holmes.evaluation.spread import Spread, spread
from holmes.files import write_json
from holmes.parallel import process_group
from holmes.training.device import choose_device
from holmes.training.protocol import Protocol
from holmes.training.resume import RUN
from holmes.training.run import RunOptions, train

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

    def train(self, config: HolmesConfig, name: str, protocol: Protocol) -> list[dict[str, Any]]:
        """A run with every seed, in `{name}-seed{N}`."""
        return [
            train(self.store, config, self.out / f"{name}-seed{seed}", seed, protocol, self.options)
            for seed in self.seeds
        ]


def leads() -> bool:
    """Whether this process is the one that writes and prints, before any process group exists."""
    return os.environ.get("RANK", "0") == "0"


def train_seeds(study: Study) -> dict[str, Any]:
    """Every protocol with every seed in `{protocol}-seed{N}`; mean and deviation in `summary.json`."""
    if (study.out / RUN).exists():
        raise HolmesError(f"{study.out} holds a single run; give another --out for several.")
    found = {}
    with process_group(choose_device(study.options.device)):
        for protocol in study.protocols:
            runs = study.train(study.config, protocol.value, protocol)
            found[protocol.value] = {"runs": runs, "metrics": spread([run["metrics"] for run in runs])}
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
) -> list[dict[str, Spread]]:
    """Train each row with every seed; the figures of each row over seeds."""
    training = study.config.training
    if len(study.protocols) > 1:
        raise HolmesError("a table has one protocol; choose --protocol honest or published.")
    if training.epochs <= training.warm_up_epochs:
        raise HolmesError(
            f"with {training.epochs} epochs and {training.warm_up_epochs} of stage 1 the rows would not "
            "differ: stage 2 is never reached. Raise epochs, or lower --set warm_up_epochs."
        )
    done: dict[str, dict[str, Spread]] = {}
    with process_group(choose_device(study.options.device)):
        for position, row in enumerate(rows):
            folder = folder_of(row, study.config)
            if folder not in done:
                say(f"row {position + 1} of {len(rows)}: {row.title}")
                runs = study.train(row.apply(study.config), folder, study.protocols[0])
                done[folder] = spread([run["metrics"] for run in runs])
    return [done[folder_of(row, study.config)] for row in rows]


def folder_of(row: Ablation, config: HolmesConfig) -> str:
    """Rows that change nothing share the full method's run, whatever table or sweep they are in."""
    if row.apply(config) == config:
        return "full"
    return "-".join(f"{name.split('.')[1]}={plain(value)}" for name, value in row.changes.items())


def plain(value: Any) -> str:
    return "+".join(map(str, value)) if isinstance(value, tuple) else str(value)


def ablate(study: Study, table: str, say: Callable[[str], None] = lambda line: None) -> list[dict[str, Any]]:
    """The full method and the rows of a table: row, title, block and figures of each."""
    block = {row.row: name for name, rows in ablations.TABLES.items() for row in rows}
    rows = [FULL, *ablations.table(table)]
    figures = run_rows(study, rows, say)
    return [
        {"row": row.row, "title": row.title, "block": block.get(row.row), "metrics": found}
        for row, found in zip(rows, figures, strict=True)
    ]


def sweep(study: Study, parameter: str, say: Callable[[str], None] = lambda line: None) -> dict[str, Any]:
    """Figures at each value of a parameter, and at the preset's own value."""
    rows = ablations.sweep(parameter)
    setting = ablations.SWEEPS[parameter][0]
    section, name = setting.split(".")
    default = getattr(getattr(study.config, section), name)
    by_value = {row.changes[setting]: row for row in rows} | {default: FULL}
    values = sorted(by_value)
    figures = run_rows(study, [by_value[value] for value in values], say)
    points = [{"value": value, "metrics": found} for value, found in zip(values, figures, strict=True)]
    return {"parameter": parameter, "setting": setting, "default": default, "points": points}
