"""What a report is made of: plain numbers and tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holmes.report.figures.examples import Example
from holmes.report.figures.page import Tabular
from holmes.report.figures.plane import BranchPlane
from holmes.report.figures.timeline import TimelinePair
from holmes.report.figures.transport import Transport


@dataclass(frozen=True)
class FigureData:
    """What the figures show of a run on a split."""

    planes: tuple[BranchPlane, ...]
    batch_videos: int  # judged together on the planes
    examples: list[Example]
    transport: Transport
    timelines: list[TimelinePair]  # empty where no moment is known


@dataclass(frozen=True)
class ReportedRun:
    """What is known of a run."""

    evaluation: dict[str, Any]  # what `holmes evaluate --json` writes for a run
    config: dict[str, Any]
    history: list[dict[str, Any]]  # the lines of metrics.jsonl; empty for a lone checkpoint


@dataclass(frozen=True)
class ReportData:
    """Everything the page says."""

    run: ReportedRun
    figures: FigureData
    results: Tabular  # our figures with the published ones
    details: Sequence[Tabular] = ()
    other: ReportedRun | None = None  # a second run, drawn beside it along the timelines
    comparison: Sequence[Tabular] = ()  # tables that compare it with the other

    @property
    def title(self) -> str:
        return f"Holmes: {self.run.evaluation['preset']} on {self.run.evaluation['collection']}"

    @property
    def lead(self) -> str:
        found = self.run.evaluation
        return (
            f"SumR {found['metrics']['SumR']:.1f} on the {found['split']} split: "
            f"{found['queries']:,} queries, {found['videos']:,} videos."
        )

    @property
    def run_names(self) -> tuple[str, ...]:
        """What the lines of the runs are called where they are drawn together."""
        if self.other is None:
            return ("score",)
        if self.run.config["loss"]["intra"] and not self.other.config["loss"]["intra"]:
            return ("with L_intra", "without")
        return ("this run", "other run")
