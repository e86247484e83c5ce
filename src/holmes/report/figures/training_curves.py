"""Training curves, epoch by epoch, from the lines of `metrics.jsonl`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from holmes.report.figures.style import KINDS, LIGHT, WIDTH, Theme, label_line_ends

Entry = dict[str, Any]
CUTOFFS = ("R@100", "R@10", "R@5", "R@1")
KIND_KEYS = ("precise", "polysemous", "underdetermined")  # names as in the logbook
# Panel → its lines: label, and the group and name of its values in an entry.
LOSSES: dict[str, tuple[tuple[str, str, str], ...]] = {
    "total loss": (("", "loss", "total"),),
    "triplet": (("frame", "loss", "triplet_frame"), ("clip", "loss", "triplet_clip")),
    "InfoNCE": (("frame", "loss", "contrastive_frame"), ("clip", "loss", "contrastive_clip")),
    r"$\mathbf{L}_\mathrm{div}$": (("", "loss", "diversity"),),
    r"$\mathbf{L}_\mathrm{inter}$": (
        ("frame", "loss", "inter_frame"),
        ("clip", "loss", "inter_clip"),
        ("fused", "loss", "inter_fused"),
    ),
    r"$\mathbf{L}_\mathrm{intra}$": (("", "loss", "intra"),),
    "gradient norm": (("largest", "gradient_norm", "max"), ("mean", "gradient_norm", "mean")),
    "learning rate": (("", "", "learning_rate"),),
}


def draw_progress(entries: Sequence[Entry], theme: Theme = LIGHT) -> Figure:
    """Recall on the split that selects, and how the kinds of query divide, over the epochs."""
    with theme.applied():
        figure = Figure((WIDTH, 2.7), layout="constrained")
        recall, kinds = figure.subplots(1, 2, width_ratios=(1.35, 1))
        draw_recall_curves(recall, entries, theme)
        draw_kind_shares(kinds, entries, theme)
    return figure


def draw_recall_curves(axes: Axes, entries: Sequence[Entry], theme: Theme) -> None:
    epochs = [entry["epoch"] for entry in entries]
    best = max(entries, key=lambda entry: entry["select"]["SumR"])
    axes.set_title("Recall on the selection split", pad=13)
    axes.set(xlabel="epoch", ylabel="queries found, %", ylim=(0, 104))
    tints = (0.45, 0.6, 0.8, 1.0)
    ends = []
    for name, tint in zip(CUTOFFS, tints, strict=True):
        values = [entry["select"][name] for entry in entries]
        (line,) = axes.plot(epochs, values, color=theme.series[0], alpha=tint, marker=dot(epochs))
        line.set_gid(name)
        ends.append((values[-1], name, theme.series[0]))
    mark_stage(axes, entries, theme)
    axes.axvline(best["epoch"], color=theme.series[1], linewidth=0.8, zorder=0)
    axes.plot(best["epoch"], best["select"]["R@1"], "o", color=theme.series[1], markersize=4)
    late = best["epoch"] > (epochs[0] + epochs[-1]) / 2
    axes.annotate(
        f"best: epoch {best['epoch']}\nSumR {best['select']['SumR']:.1f}",
        (best["epoch"], widest_gap([best["select"][name] for name in CUTOFFS])),
        (-4 if late else 4, 0),
        textcoords="offset points",
        ha="right" if late else "left",
        va="center",
        color=theme.series[1],
        size=7.5,
    )
    label_line_ends(axes, ends)


def draw_kind_shares(axes: Axes, entries: Sequence[Entry], theme: Theme) -> None:
    epochs = [entry["epoch"] for entry in entries]
    shares_KE = 100 * np.array([[entry["kinds"][key] for entry in entries] for key in KIND_KEYS])
    if len(epochs) == 1:  # an area needs two sides
        epochs, shares_KE = [epochs[0] - 0.5, epochs[0] + 0.5], np.repeat(shares_KE, 2, axis=1)
    areas = axes.stackplot(epochs, shares_KE, colors=theme.kinds, alpha=0.85, linewidth=0)
    for kind, area in zip(KINDS, areas, strict=True):
        area.set_gid(kind)
    axes.set_title("Kinds of training query", pad=13)
    axes.set(xlabel="epoch", ylabel="share of queries, %", ylim=(0, 100))
    axes.set_xlim(epochs[0], epochs[-1])
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    mark_stage(axes, entries, theme)
    middle_K = np.cumsum(shares_KE[:, -1]) - shares_KE[:, -1] / 2
    label_line_ends(axes, [*zip(middle_K.tolist(), KINDS, theme.kinds, strict=True)])


def draw_losses(entries: Sequence[Entry], theme: Theme = LIGHT) -> Figure:
    """Every named part of the loss, and the size of the gradient; parts the run leaves out have no panel."""
    panels = {
        title: [line for line in lines if any(line[2] in part(entry, line[1]) for entry in entries)]
        for title, lines in LOSSES.items()
    }
    panels = {title: lines for title, lines in panels.items() if lines}
    columns = 4
    rows = -(-len(panels) // columns)
    with theme.applied():
        figure = Figure((WIDTH, 0.35 + 1.45 * rows), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False)
        for axes in grid.flat[len(panels) :]:
            axes.set_axis_off()
        for axes, (title, lines) in zip(grid.flat, panels.items(), strict=False):
            draw_loss(axes, entries, title, lines, theme)
        for axes in grid.flat[max(0, len(panels) - columns) : len(panels)]:
            axes.set_xlabel("epoch")
    return figure


def draw_loss(
    axes: Axes, entries: Sequence[Entry], title: str, lines: Sequence[tuple[str, str, str]], theme: Theme
) -> None:
    ends = []
    for (label, group, key), colour in zip(lines, theme.series, strict=False):
        known = [entry for entry in entries if key in part(entry, group)]
        epochs, values = [entry["epoch"] for entry in known], [part(entry, group)[key] for entry in known]
        (line,) = axes.plot(epochs, values, color=colour, marker=dot(epochs))
        line.set_gid(key)
        ends.append((values[-1], label, colour))
    axes.set_title(title)
    axes.set_xlim(entries[0]["epoch"] - 0.5, entries[-1]["epoch"] + 0.5)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    mark_stage(axes, entries, theme, named=False)
    label_line_ends(axes, ends, size=7)


def part(entry: Entry, group: str) -> Entry:
    return entry[group] if group else entry


def mark_stage(axes: Axes, entries: Sequence[Entry], theme: Theme, named: bool = True) -> None:
    """A dotted line where stage 2 begins."""
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    stages = [entry["stage"] for entry in entries]
    if 1 not in stages or 2 not in stages:
        return
    start = entries[stages.index(2)]["epoch"] - 0.5
    axes.axvline(start, color=theme.muted, linewidth=0.8, linestyle=(0, (1, 2)))
    if named:
        axes.annotate(
            "stage 2",
            (start, 1),
            (0, 3),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha="center",
            color=theme.muted,
            size=7,
        )


def widest_gap(values: Sequence[float]) -> float:
    """The middle of the widest empty stretch between 0 and 100, where there is room for words."""
    edges = np.sort([0, *values, 100])
    widest = int(np.diff(edges).argmax())
    return float(edges[widest : widest + 2].mean())


def dot(epochs: Sequence[int]) -> str:
    """Draw a few epochs as points too, or a single one would not be seen."""
    return "." if len(epochs) < 4 else ""
