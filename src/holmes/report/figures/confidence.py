"""Figures on the confidence: risk and coverage, predicted and observed probability, gallery sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from holmes.report.figures.page import Picture, Section, Tabular, paragraph, table
from holmes.report.figures.style import LIGHT, WIDTH, Theme

OURS = "confidence"
METHODS = {
    OURS: "ours",
    "top1_score": "top-1 score",
    "margin": "margin",
    "softmax_entropy": "softmax entropy",
    "dropout_agreement": "MC-dropout",
}
LEAST_COVERAGE = 0.02  # below this share, the curve is too noisy
TITLE = "How sure the answers are"
CAPTION = """Left: the share of wrong answers if only the most confident ones are given; lower is
better. Right: queries in ten groups of equal size, by predicted probability. On the diagonal, predictions
are exact. Whiskers are 95 % intervals."""


@dataclass(frozen=True)
class ConfidencePart:
    """The part of a report on how far to trust the confidence."""

    section: Section
    pictures: tuple[Picture, ...] = ()


def confidence_part(found: Mapping[str, Any], grids: Sequence[Tabular]) -> ConfidencePart:
    picture = Picture("confidence", TITLE, CAPTION, partial(draw_confidence, found["uncertainty_details"]))
    tables = "".join(table(grid, ours=("our confidence",)) for grid in grids)
    return ConfidencePart(Section(TITLE, picture.html() + tables), (picture,))


def confidence_tables(grids: Sequence[Tabular]) -> ConfidencePart:
    """The part without its figure, where only the figures of merit are known."""
    return ConfidencePart(Section(TITLE, "".join(table(grid, ours=("our confidence",)) for grid in grids)))


def unmeasured(why: str) -> ConfidencePart:
    return ConfidencePart(Section(TITLE, paragraph(f"Not measured: {why}")))


def draw_confidence(details: Mapping[str, Any], theme: Theme = LIGHT) -> Figure:
    """Risk-coverage curves of all confidences, and the reliability of ours."""
    with theme.applied():
        figure = Figure((WIDTH, 2.9), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
        draw_risk_coverage(left, details["risk_coverage"], theme)
        draw_reliability(right, details["reliability"], theme)
    return figure


def draw_risk_coverage(axes: Axes, curves: Mapping[str, Any], theme: Theme) -> None:
    axes.set_title("Share of wrong answers")
    axes.set(
        xlabel="share of queries answered, most confident first", ylabel="share of wrong answers", xlim=(0, 1)
    )
    colours = dict(zip(METHODS, (*theme.series, theme.muted), strict=True))
    for name in reversed([name for name in METHODS if name in curves]):
        coverage, risk = np.array(curves[name]["coverage"]), np.array(curves[name]["risk"])
        shown = coverage >= LEAST_COVERAGE
        width = 2.0 if name == OURS else 1.1
        (line,) = axes.plot(
            coverage[shown], risk[shown], color=colours[name], linewidth=width, label=METHODS[name]
        )
        line.set_gid(name)
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], frameon=False, loc="lower right", fontsize=7.5)


def draw_reliability(axes: Axes, bins: Mapping[str, Any], theme: Theme) -> None:
    axes.set_title("Predicted and observed probability")
    reach = 0.0
    for (name, label), colour in zip(
        (("top1", "first hit"), ("top10", "among ten")), theme.series, strict=False
    ):
        said, true = np.array(bins[name]["said"]), np.array(bins[name]["true"])
        half = 1.96 * np.sqrt(true * (1 - true) / np.array(bins[name]["queries"]))
        axes.vlines(said, true - half, true + half, color=colour, linewidth=0.8)
        (line,) = axes.plot(said, true, "o", color=colour, markersize=3.5, label=label)
        line.set_gid(name)
        reach = max(reach, float(said.max()), float((true + half).max()))
    reach = min(1.0, 1.05 * reach)
    axes.plot((0, reach), (0, reach), color=theme.faint, linewidth=1, zorder=0)
    axes.set(xlabel="predicted", ylabel="observed", xlim=(0, reach), ylim=(0, reach))
    axes.legend(frameon=False, loc="upper left", fontsize=7.5, handletextpad=0.2)
