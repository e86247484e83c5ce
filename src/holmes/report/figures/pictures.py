"""The figures of a report with their captions; those without data are missing."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from holmes.report.figures.data import ReportData
from holmes.report.figures.examples import draw_examples
from holmes.report.figures.page import Picture
from holmes.report.figures.plane import draw_plane
from holmes.report.figures.recall_bars import draw_recall
from holmes.report.figures.style import KINDS
from holmes.report.figures.timeline import draw_timelines
from holmes.report.figures.training_curves import draw_losses, draw_progress
from holmes.report.figures.transport import MOST, draw_transport

GROUPINGS = {"kind": "kind of query", "moment_ratio": "moment / video"}

PROGRESS = """Left: recall on the split that selects the epoch. Right: how the training queries divide into
kinds."""
STAGE_2 = " The dotted line is the beginning of stage 2."
LOSSES = "Each part before its weight, averaged over an epoch."
WHAT_STAGE_2_BRINGS = " Stage 2 brings hard negatives, calibrated labels and L_intra."
RECALL = """Share of the queries that find their video among the first 1, 5, 10 and 100; in brackets how
many queries a group has."""
PLANE = """The queries of {videos} videos drawn at random, judged together as in training, since u and ξ
depend on the number of videos. Above the ceiling β_u a query is under-determined, left of the floor β_p
polysemous; among the others ξ decides{cut}. On the right the same queries at the same height."""
CUT = ": those right of the cut are polysemous too"
EXAMPLES = """The queries nearest to the median uncertainty of their kind, with the three best videos of the
whole split: score, and similarity along the video. Green frames are right, dashed ones are also known
to fit, orange ones are wrong; the true moment is shaded. u, c and ξ are those of the branch that decided the
kind; rank is the place of the right video."""
TIMELINE = """Lines show, at every frame, the weighted similarity of the frame and of the clip around it; the
true moment is shaded, the numbers are the videos' scores. {chosen}"""
ONE_RUN = "Queries are chosen by how clearly the right video wins: at 90, 50 and 10 % of all queries."
TWO_RUNS = (
    "Queries are chosen by how much larger the right video's lead is in the first run: most, median, least."
)
TRANSPORT = """Rows are the video's queries, columns its clips. Standard transport makes every clip serve
some query; the flexible one has a dustbin, and what it takes of each clip is drawn below. Frames mark the
true moments, and the number beside each is the share of the query's mass inside."""


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
        yield Picture("recall", "Recall by group", RECALL, partial(draw_recall, groupings))
    cut = CUT if any(plane.entropy_cut is not None for plane in figures.planes) else ""
    planes = PLANE.format(videos=figures.batch_videos, cut=cut)
    yield Picture("plane", "How kinds are told apart", planes, partial(draw_plane, figures.planes))
    yield Picture("examples", "Examples of each kind", EXAMPLES, partial(draw_examples, figures.examples))
    if figures.timelines:
        names = [name.replace("L_intra", r"$L_\mathrm{intra}$") for name in data.run_names]
        draw = partial(draw_timelines, figures.timelines, names)
        yield Picture("timeline", "Similarity along the timeline", timeline_caption(data), draw)
    title = f"Alignment of queries and clips in {figures.transport.video}"
    yield Picture("transport", title, transport_caption(data), partial(draw_transport, figures.transport))


def known_groupings(data: ReportData) -> dict[str, dict[str, dict[str, float]]]:
    """Title → group → figures, kinds spelt as people write them."""
    spelt = {name.replace("-", ""): name for name in KINDS}
    known = data.run.evaluation["by"]
    return {
        title: {spelt.get(group, group): row for group, row in known[name].items()}
        for name, title in GROUPINGS.items()
        if name in known
    }


def timeline_caption(data: ReportData) -> str:
    one_query = len(data.figures.timelines) == 1
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


def transport_caption(data: ReportData) -> str:
    caption, queries = TRANSPORT, len(data.figures.transport.captions)
    if queries > MOST:
        caption += f" The first {MOST} of {queries} queries are drawn."
    mass = data.run.evaluation.get("aligned_mass")
    if mass:
        caption += (
            f" Over all queries {mass['flexible']:.1f} % of the mass lies inside the moment with the "
            f"dustbin, {mass['plain']:.1f} % without, {mass['even']:.1f} % if spread evenly."
        )
    return caption
