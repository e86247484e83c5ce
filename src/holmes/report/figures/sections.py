"""What a report says, in order: read this file to see the page. Where data is missing, the page says so."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from holmes.report.figures.data import ReportData
from holmes.report.figures.page import Section, facts, folded, paragraph, table
from holmes.report.figures.pictures import GROUPINGS, report_pictures

PROTOCOLS = {
    "honest": "honest: the epoch is selected on a held-out part of train, the test split is looked at once",
    "published": "published: the epoch is selected on the test split itself, as the field does",
}
NO_HISTORY = "the run has no metrics.jsonl; a lone checkpoint does not remember its training."


def report_sections(data: ReportData, more: Sequence[Section] = ()) -> list[Section]:
    """The page from top to bottom; `more` is for what else is known, such as how sure the answers are."""
    pictures = report_pictures(data)

    def shown(name: str, why_not: str = "") -> str:
        return pictures[name].html() if name in pictures else left_out(why_not)

    training = shown("progress") + shown("losses") if data.run.history else left_out(NO_HISTORY)
    recall = (shown("recall") if "recall" in pictures else "") + unknown_groupings(data)
    moments = shown("timeline", "the timelines; no moment of this split is known.") + shown("transport")
    return [
        Section("The run", the_run(data)),
        Section("Results", results(data)),
        Section("Training", training),
        Section("Which queries find their video", recall),
        Section("Kinds of query", shown("plane") + shown("examples")),
        *more,
        Section("Moments", moments),
        Section("Speed", speed(data)),
    ]


def the_run(data: ReportData) -> str:
    found = data.run.evaluation
    values = {
        "settings": f"preset {found['preset']}",
        "seed": "unknown" if found["seed"] is None else str(found["seed"]),
        "protocol": PROTOCOLS.get(found["protocol"] or "", "unknown: a lone checkpoint"),
        "epoch": "unknown" if found["epoch"] is None else f"{found['epoch']}, the best one",
        "data": f"{found['collection']}, {found['store']}",
        "checkpoint": found["checkpoint"][:16],
    }
    if not found["trained_on_this_store"]:
        values["note"] = "not known to be trained on this store"
    if data.other is not None:
        values["compared with"] = str(data.other.evaluation["run"])
    parts = {name: part for name, part in data.run.config.items() if isinstance(part, dict)}
    every = "".join(
        f"<h3>{name}</h3>" + facts({key: setting(value) for key, value in part.items()})
        for name, part in parts.items()
    )
    return facts(values) + folded("All settings", every)


def results(data: ReportData) -> str:
    ours = [row[0] for row in data.results.rows[:1]]
    every = "".join(table(grid) for grid in data.details)
    against = "".join(table(grid) for grid in data.comparison)
    return table(data.results, ours) + against + (folded("All figures", every) if every else "")


def unknown_groupings(data: ReportData) -> str:
    missing = [title for name, title in GROUPINGS.items() if name not in data.run.evaluation["by"]]
    return left_out(f"recall by {' and by '.join(missing)}, unknown in this store.") if missing else ""


def speed(data: ReportData) -> str:
    if not data.run.history:
        return left_out(NO_HISTORY)
    epochs = [entry["speed"] for entry in data.run.history]

    def typical(name: str) -> float:
        return float(statistics.median(epoch[name] for epoch in epochs))

    total = sum(epoch["train_seconds"] + epoch["evaluate_seconds"] for epoch in epochs)
    values = {
        "training": f"{typical('train_seconds'):.2f} s per epoch, {typical('steps_per_second'):.2f} steps/s",
        "evaluation": f"{typical('evaluate_seconds'):.2f} s on the selection split",
        "all epochs": f"{total:,.0f} s for {len(epochs)} epochs",
    }
    return facts(values) + paragraph("Medians over the epochs, on the machine that trained it.")


def left_out(what: str) -> str:
    return paragraph(f"Left out: {what}")


def setting(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(setting(item) for item in value)
    return f"{value:g}" if isinstance(value, float) else str(value)
