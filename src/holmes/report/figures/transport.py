"""The alignment of queries and clips, with and without the dustbin (fig. 5).

M queries of one video, C clips
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from holmes.report.figures.style import LIGHT, WIDTH, Theme, wrapped

Floats = NDArray[np.floating]
MOST = 8  # queries drawn; all of them take part in the transport


@dataclass(frozen=True)
class Transport:
    """The alignments of one video's queries. Rows are distributions over its clips."""

    video: str
    captions: Sequence[str]
    moments_M2: Floats  # fractions of the video, NaN where unknown
    plain_MC: Floats
    flexible_MC: Floats
    dustbin_C: Floats  # the share of each clip's mass that the dustbin takes


def draw_transport(transport: Transport, theme: Theme = LIGHT) -> Figure:
    """Standard transport beside the flexible one, and under it what the dustbin takes."""
    order_M = np.argsort(np.nan_to_num(transport.moments_M2[:, 0]), kind="stable")[:MOST]
    plans = {"Standard transport": transport.plain_MC, "Flexible transport": transport.flexible_MC}
    highest = max(float(plan_MC[order_M].max()) for plan_MC in plans.values())
    heat = LinearSegmentedColormap.from_list("heat", theme.heat)
    rows = len(order_M)
    with theme.applied():
        figure = Figure((WIDTH, 1.15 + 0.36 * rows), layout="constrained")
        grid = figure.subplots(2, 2, height_ratios=(rows, 1.5))
        for column, (name, plan_MC) in enumerate(plans.items()):
            axes = grid[0, column]
            picture = axes.imshow(
                100 * plan_MC[order_M], aspect="auto", cmap=heat, vmin=0, vmax=100 * highest,
                interpolation="nearest",
            )  # fmt: skip
            picture.set_gid(name)
            axes.set_title(name)
            axes.spines[:].set_visible(False)
            axes.set(xticks=[], yticks=[])
            axes.tick_params(length=0)
            outline_moments(axes, transport.moments_M2[order_M], plan_MC[order_M], theme)
        captions = [wrapped(transport.captions[query], 34, 2) for query in order_M]
        grid[0, 0].set_yticks(range(rows), captions, size=7)
        draw_dustbin(grid[1, 1], transport.dustbin_C, theme)
        grid[1, 0].set_axis_off()
        bar = figure.colorbar(
            picture, cax=grid[1, 0].inset_axes((0.0, 0.5, 1.0, 0.16)), orientation="horizontal"
        )
        bar.set_label("share of the query's mass on a clip, %", size=7.5)
        bar.outline.set_visible(False)
    return figure


def outline_moments(axes: Axes, moments_M2: Floats, plan_MC: Floats, theme: Theme) -> None:
    """A frame around each query's true moment, and how much of its mass lies within."""
    clips = plan_MC.shape[1]
    inside = mass_inside(plan_MC, moments_M2)
    for row, (start, end) in enumerate(moments_M2):
        if np.isnan(start):
            continue
        box = Rectangle(
            (start * clips - 0.5, row - 0.44), (end - start) * clips, 0.88,
            fill=False, edgecolor=theme.series[1], linewidth=1.1,
        )  # fmt: skip
        axes.add_patch(box)
        axes.text(clips - 0.2, row, f"{100 * inside[row]:.0f} %", size=7, va="center", color=theme.series[1])


def draw_dustbin(axes: Axes, dustbin_C: Floats, theme: Theme) -> None:
    clips = len(dustbin_C)
    edges = np.arange(clips + 1) - 0.5
    axes.stairs(100 * dustbin_C, edges, baseline=None, color=theme.ink, linewidth=1).set_gid("dustbin")
    axes.set_xlim(edges[0], edges[-1])
    mean = 100 * float(dustbin_C.mean())
    axes.axhline(mean, color=theme.muted, linewidth=0.7, linestyle=(0, (1, 2)))
    axes.annotate(f"mean {mean:.0f} %", (clips - 0.2, mean), size=7, va="center", annotation_clip=False)
    ticks = np.linspace(0, clips - 1, 5).round().astype(int)
    axes.set_xticks(ticks, [str(tick + 1) for tick in ticks])
    axes.yaxis.set_major_locator(MaxNLocator(3))
    axes.set(xlabel="clip", ylabel="dustbin\ntakes, %")


def mass_inside(plan_MC: Floats, moments_M2: Floats) -> Floats:
    """The share of each row that lies in its moment; a clip on the border counts by its part."""
    edges = np.arange(plan_MC.shape[1] + 1) / plan_MC.shape[1]
    start_M1, end_M1 = moments_M2[:, :1], moments_M2[:, 1:]
    covered_MC = np.minimum(edges[1:], end_M1) - np.maximum(edges[:-1], start_M1)
    inside_M: Floats = (plan_MC * covered_MC.clip(min=0) * plan_MC.shape[1]).sum(1)
    return inside_M
