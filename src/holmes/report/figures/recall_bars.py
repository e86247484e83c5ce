"""Recall of groups of queries, with 95% intervals."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from holmes.report.figures.style import LIGHT, WIDTH, Theme

CUTOFFS = ("R@1", "R@5", "R@10", "R@100")
Groups = Mapping[str, Mapping[str, Any]]  # group → "queries", R@K in percent, and their "intervals"


def draw_recall(groupings: Mapping[str, Groups], theme: Theme = LIGHT, far: Collection[str] = ()) -> Figure:
    """A block for each grouping, a column for each cut-off (those in `far` marked), a bar for each group."""
    rows = [len(groups) for groups in groupings.values()]
    with theme.applied():
        figure = Figure((WIDTH, 0.5 + 0.45 * len(rows) + 0.24 * sum(rows)), layout="constrained")
        grid = figure.subplots(len(rows), len(CUTOFFS), squeeze=False, sharex="col", height_ratios=rows)
        for axes_row, (title, groups) in zip(grid, groupings.items(), strict=True):
            names = [f"{name}  ({int(group['queries']):,})" for name, group in groups.items()]
            for axes, cutoff in zip(axes_row, CUTOFFS, strict=True):
                draw_bars(axes, groups, cutoff, theme)
                axes.set_yticks([])
            axes_row[0].set_yticks(range(len(names)), names)
            axes_row[0].set_ylabel(title, weight="bold")
        for axes, cutoff in zip(grid[0], CUTOFFS, strict=True):
            axes.set_title(f"{cutoff} ‡" if cutoff in far else cutoff)
        figure.align_ylabels(grid[:, 0])
        figure.supxlabel("queries found, %   (whiskers: 95 % interval)", size=8)
    return figure


def draw_bars(axes: Axes, groups: Groups, cutoff: str, theme: Theme) -> None:
    positions = range(len(groups))
    values = [group[cutoff] for group in groups.values()]
    bars = axes.barh(positions, values, height=0.66, color=theme.series[0], alpha=0.85)
    for bar in bars:
        bar.set_gid(cutoff)
    for position, value, group in zip(positions, values, groups.values(), strict=True):
        low, high = group["intervals"][cutoff]
        if low is not None:  # a handful of videos has no interval
            whisker = axes.hlines(position, low, high, color=theme.ink, linewidth=0.8)
            whisker.set_gid(f"{cutoff} interval")
        axes.text((high or value) + 2, position, f"{value:.1f}", va="center", size=7)
    axes.set(xlim=(0, 122), xticks=(0, 50, 100), ylim=(len(groups) - 0.5, -0.5))
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
