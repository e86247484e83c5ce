"""The sections and figures of a report, in order. Missing data is named on the page."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from holmes.report.figures.examples import Example, draw_examples
from holmes.report.figures.page import Picture, Section, Tabular, facts, folded, paragraph, table
from holmes.report.figures.plane import BranchPlane, draw_plane
from holmes.report.figures.recall_bars import draw_recall
from holmes.report.figures.style import KINDS
from holmes.report.figures.timeline import TimelinePair, draw_timelines
from holmes.report.figures.training_curves import draw_losses, draw_progress
from holmes.report.figures.transport import MOST, Transport, draw_transport

PROTOCOLS = {
    "honest": "honest: the epoch is selected on a held-out part of train, the test split is used once",
    "published": "published: the epoch is selected on the test split itself, as the field does",
}
NO_HISTORY = "the run has no metrics.jsonl; a single checkpoint does not store its training history."
ONLY_SCORES = "a file of scores has no training history."
NO_EMBEDDINGS = "a file of scores has no embeddings, which the kinds of queries need."
NO_TIMES = "a file of scores has no scores along the time of a video."
GROUPINGS = {"kind": "kind of query", "moment_ratio": "moment / video"}
PROGRESS = """Left: recall on the split that selects the epoch. Right: shares of the kinds of
training queries."""
STAGE_2 = " The dotted line is the beginning of stage 2."
LOSSES = "Each part of the loss without its weight, averaged over an epoch."
WHAT_STAGE_2_BRINGS = " Stage 2 adds hard negatives, calibrated labels and L_intra."
RECALL = """Share of queries whose video is among the first 1, 5, 10 and 100, with the number of queries of
each group in brackets."""
FAR_RECALL = " ‡ The gallery is so small that this is high by chance alone."
PLANE = """Queries of {videos} random videos. As in training, they are judged together, because u and ξ depend
on the number of videos. Above β_u, a query is under-determined. Left of β_p, it is polysemous. For the
others, ξ decides{cut}. The right panel shows the same queries at the same height."""
CUT = ": those right of the cut are also polysemous"
EXAMPLES = """The queries nearest to the median uncertainty of their kind, with the three best videos of the
split, their scores, and the similarity along each. Green frames are right, dashed ones also fit, orange ones
are wrong. The true moment is shaded. u, c and ξ are those of the branch that decided the kind; rank is that
of the right video."""
TIMELINE = """Lines show the weighted similarity of each frame and the clip around it. The true moment is
shaded, and the numbers are the videos' scores. {chosen}"""
ONE_RUN = "Queries are chosen by how clearly the right video wins: at 90, 50 and 10 % of all queries."
TWO_RUNS = (
    "Queries are chosen by how much larger the right video's lead is in the first run: most, median, least."
)
TRANSPORT = """Rows are the video's queries, columns its clips. Standard transport assigns every clip to some
query. Flexible transport has a dustbin; its share of each clip is drawn below. Frames mark the true moments,
and the number beside each is the share of the query's mass inside."""


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
    config: dict[str, Any]  # empty for a file of scores
    history: list[dict[str, Any]]  # the lines of metrics.jsonl; empty for a lone checkpoint
    changed: tuple[str, ...] = ()  # settings that differ from the preset's
    warnings: tuple[str, ...] = ()  # what training warned of, and what the run lacks


@dataclass(frozen=True)
class ReportData:
    """Everything the page says."""

    run: ReportedRun
    figures: FigureData | None  # None for a file of scores
    results: Tabular  # our figures with the published ones
    far: Sequence[str] = ()  # the recalls that are high by chance alone
    details: Sequence[Tabular] = ()
    other: ReportedRun | None = None  # a second run, drawn beside it along the timelines
    comparison: Sequence[Tabular] = ()  # tables that compare it with the other

    @property
    def title(self) -> str:
        found = self.run.evaluation
        name = found["preset"] if self.run.config else Path(found["run"]).name
        return f"Holmes: {name} on {found['collection']}"

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


def report_sections(
    data: ReportData, more: Sequence[Section] = (), advance: Callable[[int], None] = lambda pictures: None
) -> list[Section]:
    """The page from top to bottom; `more` is for what else is known, such as how sure the answers are.

    `advance` is told of every picture that is drawn, since that takes longest.
    """
    pictures = report_pictures(data)

    def shown(name: str, why_not: str = "") -> str:
        if name not in pictures:
            return omitted(why_not)
        html = pictures[name].html()
        advance(1)
        return html

    recall = (shown("recall") if "recall" in pictures else "") + unknown_groupings(data)
    if data.figures is None:
        kinds, moments = omitted(NO_EMBEDDINGS), omitted(NO_TIMES)
    else:
        kinds = shown("plane") + shown("examples")
        moments = shown("timeline", "the timelines; no moment of this split is known.") + shown("transport")
    training = shown("progress") + shown("losses") if data.run.history else omitted(no_history(data))
    return [
        Section("The run", the_run(data)),
        Section("Results", results(data)),
        Section("Training", training),
        Section("Which queries find their video", recall),
        Section("Kinds of query", kinds),
        *more,
        Section("Moments", moments),
        Section("Speed", speed(data)),
    ]


def the_run(data: ReportData) -> str:
    found = data.run.evaluation
    values = {
        "settings": f"preset {found['preset']}" if data.run.config else "none: scores from a file",
        "seed": "unknown" if found["seed"] is None else str(found["seed"]),
        "protocol": PROTOCOLS.get(found["protocol"] or "", f"unknown: {origin(data)}"),
        "epoch": "unknown" if found["epoch"] is None else f"{found['epoch']}, the best one",
        "data": f"{found['collection']}, {found['store']}",
        "checkpoint" if data.run.config else "digest": found["checkpoint"][:16],
    }
    if data.run.changed:
        values["changed settings"] = "; ".join(data.run.changed)
    if data.run.warnings:
        values["warnings"] = "; ".join(data.run.warnings)
    if not found["trained_on_this_store"]:
        values["note"] = "not known to be trained on this store"
    if data.other is not None:
        values["compared with"] = str(data.other.evaluation["run"])
    parts = {name: part for name, part in data.run.config.items() if isinstance(part, dict)}
    every = "".join(
        f"<h3>{name}</h3>" + facts({key: setting(value) for key, value in part.items()})
        for name, part in parts.items()
    )
    return facts(values) + (folded("All settings", every) if every else "")


def origin(data: ReportData) -> str:
    return "a lone checkpoint" if data.run.config else "a file of scores"


def no_history(data: ReportData) -> str:
    return NO_HISTORY if data.run.config else ONLY_SCORES


def results(data: ReportData) -> str:
    ours = [row[0] for row in data.results.rows[:1]]
    every = "".join(table(grid) for grid in data.details)
    against = "".join(table(grid) for grid in data.comparison)
    return table(data.results, ours) + against + (folded("All figures", every) if every else "")


def unknown_groupings(data: ReportData) -> str:
    missing = [title for name, title in GROUPINGS.items() if name not in data.run.evaluation["by"]]
    return omitted(f"recall by {' and by '.join(missing)}, unknown in this store.") if missing else ""


def speed(data: ReportData) -> str:
    if not data.run.history:
        return omitted(no_history(data))
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


def omitted(what: str) -> str:
    return paragraph(f"Left out: {what}")


def setting(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(setting(item) for item in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def report_pictures(data: ReportData) -> dict[str, Picture]:
    """The figures by name, in the order of the page."""
    return {picture.name: picture for picture in drawn(data)}


def drawn(data: ReportData) -> Iterator[Picture]:
    figures, history = data.figures, data.run.history
    if history:
        both = {1, 2} <= {entry["stage"] for entry in history}  # otherwise there is no line to explain
        progress, losses = PROGRESS + STAGE_2 * both, LOSSES + WHAT_STAGE_2_BRINGS * both
        yield Picture("progress", "Training", progress, partial(draw_progress, history))
        yield Picture("losses", "Parts of the loss", losses, partial(draw_losses, history))
    groupings = known_groupings(data)
    if groupings:
        caption, draw = RECALL + FAR_RECALL * bool(data.far), partial(draw_recall, groupings, far=data.far)
        yield Picture("recall", "Recall by group", caption, draw)
    if figures is None:
        return
    cut = CUT if any(plane.entropy_cut is not None for plane in figures.planes) else ""
    planes = PLANE.format(videos=figures.batch_videos, cut=cut)
    yield Picture("plane", "How kinds of queries are separated", planes, partial(draw_plane, figures.planes))
    yield Picture("examples", "Examples of each kind", EXAMPLES, partial(draw_examples, figures.examples))
    if figures.timelines:
        names = [name.replace("L_intra", r"$L_\mathrm{intra}$") for name in data.run_names]
        draw = partial(draw_timelines, figures.timelines, names)
        yield Picture("timeline", "Similarity along the timeline", timeline_caption(data, figures), draw)
    title = f"Alignment of queries and clips in {figures.transport.video}"
    caption = transport_caption(data, figures.transport)
    yield Picture("transport", title, caption, partial(draw_transport, figures.transport))


def known_groupings(data: ReportData) -> dict[str, dict[str, dict[str, float]]]:
    """Title → group → figures, kinds spelt as people write them."""
    spelt = {name.replace("-", ""): name for name in KINDS}
    known = data.run.evaluation["by"]
    return {
        title: {spelt.get(group, group): row for group, row in known[name].items()}
        for name, title in GROUPINGS.items()
        if name in known
    }


def timeline_caption(data: ReportData, figures: FigureData) -> str:
    one_query = len(figures.timelines) == 1
    chosen = "" if one_query else ONE_RUN if data.other is None else TWO_RUNS
    caption = TIMELINE.format(chosen=chosen)
    ours = data.run.evaluation.get("localisation")
    other = data.other and data.other.evaluation.get("localisation")
    if ours and other:
        caption += (
            f" Over all queries the best clip lies in the true moment for {ours['clip_hit@1']:.1f} % "
            f"({data.run_names[0]}) and {other['clip_hit@1']:.1f} % ({data.run_names[1]}); "
            f"by chance {ours['chance_hit@1']:.1f} %."
        )
    return caption


def transport_caption(data: ReportData, transport: Transport) -> str:
    caption, queries = TRANSPORT, len(transport.captions)
    if queries > MOST:
        caption += f" The first {MOST} of {queries} queries are drawn."
    mass = data.run.evaluation.get("aligned_mass")
    if mass:
        caption += (
            f" Over all queries {mass['flexible']:.1f} % of the mass lies inside the moment with the "
            f"dustbin, {mass['plain']:.1f} % without, {mass['even']:.1f} % if spread evenly."
        )
    return caption
