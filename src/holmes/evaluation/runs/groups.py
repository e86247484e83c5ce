"""Runs that differ only by their seed belong together; others stand side by side."""

from __future__ import annotations

import json
import re
from typing import Any

from holmes.evaluation.runs.folders import RunFolder


def group_runs(runs: list[RunFolder]) -> dict[str, list[RunFolder]]:
    """Name → the runs of one setting, protocol and store. With a single setting the name is the protocol."""
    groups: dict[str, list[RunFolder]] = {}
    for run in runs:
        groups.setdefault(identity(run), []).append(run)
    settings = {json.dumps(settings_of(some[0]), sort_keys=True) for some in groups.values()}
    names = [name_of(some, several=len(settings) > 1) for some in groups.values()]
    if len(set(names)) < len(names):  # the same name for different things: use the whole path
        names = [f"{some[0].path}, {some[0].protocol or 'checkpoint'}" for some in groups.values()]
    return dict(zip(names, groups.values(), strict=True))


def identity(run: RunFolder) -> str:
    """Equal for runs that differ only by their seed."""
    if run.about is None:
        return str(run.path)
    return json.dumps([settings_of(run), run.about["data"]], sort_keys=True)


def settings_of(run: RunFolder) -> Any:
    return str(run.path) if run.about is None else run.about["config"]


def name_of(runs: list[RunFolder], several: bool) -> str:
    protocol = runs[0].protocol or "checkpoint"
    if not several:
        return protocol
    stems = {re.sub(r"-seed\d+$", "", run.path.resolve().name) for run in runs}
    return f"{sorted(stems)[0]}, {protocol}"
