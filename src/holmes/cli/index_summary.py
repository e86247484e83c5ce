"""What `holmes index` says when videos have been added, moved or removed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from holmes.cli.options import counted, say, say_files

if TYPE_CHECKING:
    from holmes.index.builder import BuildSummary
    from holmes.index.library import SyncSummary


def report_sync(index: Path, summary: SyncSummary, quiet: bool) -> None:
    if quiet and not summary.changes and not summary.failures:
        return
    say_files(summary.partial, summary.failures)
    _say_known(summary)
    for name in summary.removed:
        say(f"removed {name}")
    for name in summary.away:
        say(
            f"kept {name}: it was not found, but its disk may not be connected; 'holmes index remove' "
            "removes it"
        )
    say(
        f"{counted(summary.added, 'video')} added, {len(summary.moved)} moved, "
        f"{len(summary.removed)} removed, {summary.unchanged} unchanged, "
        f"{len(summary.failures)} failed: {index}"
    )


def _say_known(summary: BuildSummary) -> None:
    for move in summary.moved:
        say(f"moved {move.before} → {move.now}")
    for copy in summary.duplicates:
        say(f"left out {copy.source}: it is the same as {copy.same_as}")


def report(index: Path, summary: BuildSummary) -> None:
    say_files(summary.partial, summary.failures)
    _say_known(summary)
    moved = f"{len(summary.moved)} moved, " if summary.moved else ""
    say(
        f"{counted(summary.added, 'video')} added, {moved}{summary.unchanged} already there, "
        f"{len(summary.failures)} failed: {index}"
    )
    if summary.failures:
        raise typer.Exit(1)


def print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=1))
