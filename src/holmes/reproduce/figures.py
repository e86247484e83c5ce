"""Figures of the page: each run over the published one, and sweeps with the range the paper calls stable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from holmes.evaluation.literature import STABLE
from holmes.report.figures.style import WIDTH, Theme, literal
from holmes.report.figures.sweep_curves import sweep_figure
from holmes.reproduce.on_track import Standing, explained
from holmes.reproduce.published import Curve

Runs = Mapping[str, Sequence[Standing]]  # the run's name → its epochs


def draw_curves(curve: Curve, runs: Runs, theme: Theme) -> Figure:
    """SumR and loss after each epoch, the published run in grey with the band that seeds explain."""
    with theme.applied():
        figure = Figure((WIDTH, 2.7), layout="constrained")
        total, loss = figure.subplots(1, 2)
        epochs = range(1, len(curve.SumR) + 1)
        total.plot(epochs, curve.SumR, color=theme.muted, label="published run")
        loss.plot(epochs, curve.loss, color=theme.muted, label="published run")
        for number, (name, epochs_of) in enumerate(runs.items()):
            colour = theme.series[number % len(theme.series)]
            numbers = [each.epoch for each in epochs_of]
            marker = "o" if len(numbers) < 4 else ""
            style = {"color": colour, "marker": marker, "markersize": 3, "label": literal(name)}
            if epochs_of and epochs_of[0].SumR is not None:
                total.plot(numbers, [each.SumR or 0.0 for each in epochs_of], **style)
            loss.plot(numbers, [each.loss for each in epochs_of], **style)
        low, high = zip(*(explained(curve, epoch) for epoch in epochs), strict=True)
        total.fill_between(epochs, low, high, color=theme.faint, linewidth=0, zorder=0)
        total.set_title("SumR on test")
        loss.set_title("mean loss")
        for axes in (total, loss):
            axes.set_xlabel("epoch")
            axes.legend(frameon=False, fontsize=6.5)
    return figure


def draw_sweeps(sweeps: dict[str, dict[str, Any]], theme: Theme) -> Figure:
    """Our sweeps; the range in which the paper calls SumR stable is shaded."""
    figure = sweep_figure(sweeps, theme=theme)
    for axes, (name, swept) in zip(figure.axes, sweeps.items(), strict=False):
        low, high = STABLE[name]
        inside = [number for number, point in enumerate(swept["points"]) if low <= point["value"] <= high]
        if inside:
            axes.axvspan(inside[0] - 0.2, inside[-1] + 0.2, color=theme.faint, zorder=0, linewidth=0)
    return figure
