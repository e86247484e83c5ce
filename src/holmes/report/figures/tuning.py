"""A search for settings as a figure: SumR over each setting, and how much each setting matters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from holmes.report.figures.style import LIGHT, Theme, save_figure, value_text

PANEL, HEIGHT, PANELS_PER_ROW = 1.9, 1.7, 4  # inches
# Student's t for a 95% interval, by degrees of freedom.
T_95 = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36}


def over_folds(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean over folds and half of its 95% interval; None for a single fold."""
    count = len(values)
    mean = sum(values) / count
    if count < 2:
        return mean, None
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / (count - 1))
    return mean, T_95.get(count - 1, 1.96) * deviation / math.sqrt(count)


def save_tuning(found: dict[str, Any], folder: Path) -> None:
    """`settings.png` and `settings.svg` of what `trials.json` holds."""
    save_figure(tuning_figure(found), folder, "settings")


def tuning_figure(found: dict[str, Any], theme: Theme = LIGHT) -> Figure:
    names = list(found["settings"])
    columns = min(PANELS_PER_ROW, len(names))
    rows = -(-len(names) // columns)
    with theme.applied():
        tall = 0.22 * len(found["worth"]) + 0.8 if found["worth"] else 0.0
        figure = Figure(figsize=(PANEL * columns, HEIGHT * rows + tall), layout="constrained")
        heights = [HEIGHT * rows, tall] if tall else [HEIGHT * rows]
        parts = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False).flat
        panes = parts[0].subplots(rows, columns, sharey=True, squeeze=False).flat
        for axes in panes[len(names) :]:
            axes.set_axis_off()
        for axes, name in zip(panes, names, strict=False):
            draw_setting(axes, name, found, theme)
        for axes in panes[::columns]:
            axes.set_ylabel("SumR, held out")
        parts[0].suptitle("★ best trial   ■ preset   pale: stopped half way", fontsize=7.5, x=0.02, ha="left")
        if tall:
            draw_worth(parts[1].subplots(), found["worth"], theme)
    return figure


def draw_setting(axes: Axes, name: str, found: dict[str, Any], theme: Theme) -> None:
    """Each trial at its value: its mean over folds, or where it was stopped half way, faint."""
    dimension, own = found["settings"][name], found["preset_values"][name]
    choices = [value_text(value) for value in dimension["values"]] if "values" in dimension else None

    def position(value: Any) -> float:
        return float(choices.index(value_text(value))) if choices is not None else float(value)

    for trial in found["trials"]:
        value = position(trial["changes"].get(name, own))
        best = trial["number"] == found["best"]
        if trial["sums"]:
            colour = theme.series[1] if best or not trial["changes"] else theme.series[0]
            marker = "*" if best else "s" if not trial["changes"] else "o"
            size = 9 if best else 4.5 if not trial["changes"] else 3
            mean = sum(trial["sums"]) / len(trial["sums"])
            axes.plot(value, mean, marker, color=colour, markersize=size, zorder=3 if best else 2, mew=0)
        elif trial["half"] is not None:
            axes.plot(value, trial["half"], "o", color=theme.faint, markersize=2.5, zorder=1, mew=0)
    axes.set_xlabel(name.split(".")[1])
    axes.yaxis.set_major_locator(MaxNLocator(4))
    if choices is not None:
        shown = [text if len(text) < 9 else f"{text.count(',') + 1} values" for text in choices]
        axes.set_xticks(range(len(choices)), shown)
        axes.margins(x=0.15)
    elif dimension["log"]:
        axes.set_xscale("log")
        axes.set_xticks(
            [dimension["low"], dimension["high"]], [f"{dimension[end]:g}" for end in ("low", "high")]
        )
        axes.xaxis.set_minor_locator(NullLocator())


def draw_worth(axes: Axes, worth: dict[str, Sequence[float]], theme: Theme) -> None:
    """What going back to the preset's value costs, setting by setting, the dearest on top."""
    ordered = sorted(worth.items(), key=lambda item: over_folds(item[1])[0])
    for row, (_, values) in enumerate(ordered):
        mean, half_width = over_folds(values)
        axes.barh(row, mean, color=theme.series[0], height=0.6)
        axes.errorbar(mean, row, xerr=half_width or 0, color=theme.ink, elinewidth=0.8, capsize=2)
    axes.axvline(0, color=theme.muted, linewidth=0.6)
    axes.set_yticks(range(len(ordered)), [name.split(".")[1] for name, _ in ordered])
    axes.set_xlabel("SumR lost without this setting")
