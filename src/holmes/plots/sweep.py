"""SumR over a swept parameter: one panel for each, the preset's own value marked."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from holmes.files import atomic_file
from holmes.plots.style import LIGHT, Theme, svg

SYMBOLS = {"tau": "temperature τ", "beta": "threshold β", "dustbin": "dustbin ratio"}
PANEL, HEIGHT = 2.35, 2.0  # inches


def save_sweeps(sweeps: dict[str, dict[str, Any]], folder: Path) -> None:
    """`sweep.png` and `sweep.svg` of what `sweep.json` holds."""
    figure = sweep_figure(sweeps)
    picture = io.BytesIO()
    with LIGHT.applied():
        figure.savefig(picture, format="png", dpi=200)
    for name, content in (("sweep.png", picture.getvalue()), ("sweep.svg", svg(figure))):
        with atomic_file(folder / name) as file:
            file.write(content)


def sweep_figure(sweeps: dict[str, dict[str, Any]], theme: Theme = LIGHT) -> Figure:
    with theme.applied():
        figure = Figure(figsize=(PANEL * len(sweeps), HEIGHT), layout="constrained")
        widths = [len(swept["points"]) for swept in sweeps.values()]
        panels = figure.subplots(1, len(sweeps), sharey=True, squeeze=False, width_ratios=widths)[0]
        for axes, (name, swept) in zip(panels, sweeps.items(), strict=True):
            draw_curve(axes, name, swept, theme)
        panels[0].set_ylabel("SumR")
    return figure


def draw_curve(axes: Axes, name: str, swept: dict[str, Any], theme: Theme) -> None:
    """Values stand at equal distances, as they were chosen; a bar is the deviation over seeds."""
    values = [point["value"] for point in swept["points"]]
    totals = [point["metrics"]["SumR"] for point in swept["points"]]
    means = [total["mean"] for total in totals]
    places = range(len(values))
    colour = theme.series[0]
    if all(total["deviation"] is not None for total in totals):
        bars = [total["deviation"] for total in totals]
        axes.errorbar(places, means, bars, color=colour, elinewidth=0.8, capsize=2, fmt="none")
    axes.plot(places, means, color=colour, marker="o", markersize=3.5)
    axes.set_xticks(places, [f"{value:g}" for value in values])
    axes.set_xlabel(SYMBOLS.get(name, name))
    axes.grid(axis="y", color=theme.faint, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.margins(x=0.06, y=0.15)
    if swept["default"] in values:
        own = values.index(swept["default"])
        axes.plot(own, means[own], marker="o", markersize=5.5, color=theme.series[1], zorder=3)
        axes.get_xticklabels()[own].set_fontweight("bold")
