"""SumR over each swept setting, with the preset's value marked; grids have one line per row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from holmes.report.figures.style import LIGHT, Theme, save_figure, value_text

SYMBOLS = {"tau": "temperature τ", "beta": "threshold β", "dustbin": "dustbin ratio"}
PANEL, HEIGHT = 2.35, 2.0  # inches
PANELS_PER_ROW = 4


def save_sweeps(sweeps: dict[str, dict[str, Any]], grids: dict[str, dict[str, Any]], folder: Path) -> None:
    """`sweep.png` and `sweep.svg` of what `sweep.json` holds."""
    save_figure(sweep_figure(sweeps, grids), folder, "sweep")


def sweep_figure(
    sweeps: dict[str, dict[str, Any]], grids: dict[str, dict[str, Any]] | None = None, theme: Theme = LIGHT
) -> Figure:
    panels = [*sweeps.items(), *(grids or {}).items()]
    columns = min(PANELS_PER_ROW, len(panels))
    rows = -(-len(panels) // columns)
    with theme.applied():
        figure = Figure(figsize=(PANEL * columns, HEIGHT * rows), layout="constrained")
        panes = figure.subplots(rows, columns, sharey=True, squeeze=False).flat
        for axes in panes[len(panels) :]:
            axes.set_axis_off()
        for axes, (name, found) in zip(panes, panels, strict=False):
            if "settings" in found:
                draw_grid(axes, found, theme)
            else:
                draw_sweep(axes, name, found, theme)
        for axes in panes[::columns]:
            axes.set_ylabel("SumR")
    return figure


def draw_sweep(axes: Axes, name: str, swept: dict[str, Any], theme: Theme) -> None:
    """Values stand at equal distances, as they were chosen; a bar is the deviation over seeds."""
    values = [point["value"] for point in swept["points"]]
    draw_line(axes, [point["metrics"]["SumR"] for point in swept["points"]], theme.series[0])
    prepare(axes, SYMBOLS.get(name, name), values, theme)
    if swept["default"] in values:
        own = values.index(swept["default"])
        mean = swept["points"][own]["metrics"]["SumR"]["mean"]
        axes.plot(own, mean, marker="o", markersize=5.5, color=theme.series[1], zorder=3)
        axes.get_xticklabels()[own].set_fontweight("bold")


def draw_grid(axes: Axes, found: dict[str, Any], theme: Theme) -> None:
    """The first setting along the axis, a line for each combination of the others."""
    first, *others = found["settings"]
    values: list[Any] = []
    lines: dict[str, dict[int, Any]] = {}
    for point in found["points"]:
        value = point["values"][first]
        if value not in values:
            values.append(value)
        label = ", ".join(f"{name.split('.')[-1]} {value_text(point['values'][name])}" for name in others)
        lines.setdefault(label, {})[values.index(value)] = point["metrics"]["SumR"]
    colours = (*theme.series, theme.muted, theme.ink)
    for number, (label, totals) in enumerate(lines.items()):
        ordered = [totals[number] for number in range(len(values))]
        draw_line(axes, ordered, colours[number % len(colours)], label)
    prepare(axes, first, values, theme)
    axes.legend(frameon=False, fontsize=6.5)


def draw_line(axes: Axes, totals: list[dict[str, float | None]], colour: str, label: str = "") -> None:
    means = [float(total["mean"] or 0) for total in totals]
    positions = range(len(means))
    bars = [total["deviation"] for total in totals if total["deviation"] is not None]
    if len(bars) == len(means):
        axes.errorbar(positions, means, bars, color=colour, elinewidth=0.8, capsize=2, fmt="none")
    axes.plot(positions, means, color=colour, marker="o", markersize=3.5, label=label)


def prepare(axes: Axes, label: str, values: list[Any], theme: Theme) -> None:
    axes.set_xticks(range(len(values)), [value_text(value) for value in values])
    axes.set_xlabel(label)
    axes.grid(axis="y", color=theme.faint, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.margins(x=0.06, y=0.15)
