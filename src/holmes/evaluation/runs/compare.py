"""Compare runs: group them into systems, and evaluate them on the same queries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holmes.errors import HolmesError
from holmes.evaluation.comparison import System, compare_systems, decided_queries
from holmes.evaluation.runs.evaluate import EvaluatedRun, evaluate_run
from holmes.evaluation.runs.folders import RunFolder, find_runs, group_runs, store_of
from holmes.evaluation.split_report import groups_of
from holmes.training.protocol import Protocol

LISTED = 10  # queries won and lost that are listed


@dataclass(frozen=True)
class Comparison:
    """Every system's ranks, the first evaluated run of each, and what is to be said of them."""

    systems: list[System]
    firsts: list[EvaluatedRun]
    report: dict[str, Any]


def find_systems(paths: list[Path], protocol: Protocol | None = None) -> dict[str, list[RunFolder]]:
    """Name → runs that differ only by their seed."""
    systems: dict[str, list[RunFolder]] = {}
    for path in paths:
        groups = group_runs(find_runs(path, protocol))
        for name, some in groups.items():
            whole = path.name or str(path)
            label = whole if len(groups) == 1 else name if len(paths) == 1 else f"{whole}: {name}"
            while label in systems:  # folders of the same name in different folders
                label += "′"
            systems[label] = some
    if len(systems) < 2:
        raise HolmesError(
            f"there is only one system, {next(iter(systems))}; name two runs, or a folder with several "
            "settings."
        )
    return systems


def compare_runs(
    groups: dict[str, list[RunFolder]],
    store: Path | None,
    split: str,
    device: torch.device,
    say: Callable[[str], None] = lambda line: None,
    also_fits: Path | None = None,
) -> Comparison:
    """Figures, paired differences to the first system, and the queries that each further one decides."""
    systems, firsts = evaluate_systems(groups, store, split, device, say, also_fits)
    first = firsts[0]
    found = compare_systems(systems, first.seen.split.owner, groups_of(first.store, first.seen.split))
    found |= {
        "store": str(first.store.path),
        "split": split,
        "videos": len(first.seen.split.videos),
        "decided": decided(systems, firsts),
    }
    return Comparison(systems, firsts, found)


def evaluate_systems(
    groups: dict[str, list[RunFolder]],
    store: Path | None,
    split: str,
    device: torch.device,
    say: Callable[[str], None],
    also_fits: Path | None,
) -> tuple[list[System], list[EvaluatedRun]]:
    systems: list[System] = []
    firsts: list[EvaluatedRun] = []
    for name, runs in groups.items():
        ranks, fitting = [], []
        for number, run in enumerate(runs):
            say(f"evaluating {run.path}")
            found = evaluate_run(run, store_of(run, store), split, device, also_fits)
            if firsts and found.store.info.digest != firsts[0].store.info.digest:
                raise HolmesError(
                    f"{run.path} was trained on a different store than {firsts[0].run.path}; "
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
    store, split = firsts[0].store, firsts[0].seen.split

    def row(ours: System, position: int) -> dict[str, Any]:
        query = int(split.queries[position])
        return {
            "id": store.query_ids[query],
            "text": store.captions[query],
            "ranks": ours.rank_SQ[:, position].tolist(),
            "reference_ranks": systems[0].rank_SQ[:, position].tolist(),
        }

    found = []
    for system in systems[1:]:
        won, lost = decided_queries(system, systems[0], LISTED)
        found.append(
            {
                "name": system.name,
                "won": [row(system, position) for position in won],
                "lost": [row(system, position) for position in lost],
            }
        )
    return found
