"""Queries of each kind with the three videos found first (fig. 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from holmes.report.figures.style import KINDS, LIGHT, WIDTH, Theme, literal, short_number, wrapped

TOP = 3


@dataclass(frozen=True)
class Found:
    """A video of the top, with the query's similarity along it."""

    video: str
    score: float
    verdict: str  # "right", "fits" (another video that is known to fit) or "wrong"
    similarity_F: NDArray[np.floating]
    moment: tuple[float, float] | None = None  # of the right video, as fractions


@dataclass(frozen=True)
class Example:
    caption: str
    kind: int  # as identified
    known_kind: int | None  # where the collection knows it
    uncertainty: float
    consistency: float
    entropy: float
    rank: int  # of the right video
    found: tuple[Found, ...]


def draw_examples(examples: Sequence[Example], theme: Theme = LIGHT) -> Figure:
    """A row for each query: what was asked and how sure, then the top three as strips of similarity."""
    with theme.applied():
        figure = Figure((WIDTH, 0.2 + 0.98 * len(examples)), layout="constrained")
        figure.get_layout_engine().set(h_pad=0.07, w_pad=0.03)  # type: ignore[union-attr, call-arg]
        grid = figure.subplots(len(examples), 1 + TOP, squeeze=False, width_ratios=(1.55, *(1,) * TOP))
        for row, example in zip(grid, examples, strict=True):
            draw_question(row[0], example, theme)
            draw_strips(row[1:], example, theme)
    return figure


def draw_question(axes: Axes, example: Example, theme: Theme) -> None:
    axes.set_axis_off()
    colour = theme.kinds[example.kind]
    label = KINDS[example.kind]
    if example.known_kind is not None and example.known_kind != example.kind:
        label += f" (truly {KINDS[example.known_kind]})"
    axes.text(0, 1.0, label, color=colour, weight="bold", size=7.5, va="top", transform=axes.transAxes)
    axes.text(0, 0.79, wrapped(f"“{example.caption}”", 36, 3), size=7.5, va="top", transform=axes.transAxes)
    numbers = (
        f"u {short_number(example.uncertainty)}   c {example.consistency:.2f}   ξ {example.entropy:.2f}"
        f"   rank {example.rank}"
    )
    axes.text(0, -0.02, numbers, size=7, va="bottom", color=theme.muted, transform=axes.transAxes)


def draw_strips(row: Sequence[Axes], example: Example, theme: Theme) -> None:
    low = min(float(found.similarity_F.min()) for found in example.found)
    high = max(float(found.similarity_F.max()) for found in example.found)
    for axes in row[len(example.found) :]:
        axes.set_axis_off()
    for number, (axes, found) in enumerate(zip(row, example.found, strict=False)):
        colour, sign = {
            "right": (theme.right, "✓"),
            "fits": (theme.right, "≈ fits too"),
            "wrong": (theme.wrong, "✗"),
        }[found.verdict]
        share_F = (np.arange(len(found.similarity_F)) + 0.5) / len(found.similarity_F)
        axes.fill_between(share_F, low, found.similarity_F, color=colour, alpha=0.3, linewidth=0)
        (line,) = axes.plot(share_F, found.similarity_F, color=colour, linewidth=0.9)
        line.set_gid(found.verdict)
        if found.moment is not None:
            axes.axvspan(*found.moment, color=theme.moment, linewidth=0, zorder=0)
        axes.set(xlim=(0, 1), ylim=(low, high + 0.45 * (high - low)), xticks=[], yticks=[])
        axes.spines[:].set_visible(True)
        axes.spines[:].set(color=colour, linewidth=1.2)
        if found.verdict == "fits":
            axes.spines[:].set_linestyle((0, (3, 2)))
        axes.text(0.03, 0.94, f"{number + 1}. {found.score:.2f}", size=7.5, va="top", weight="bold",
                  transform=axes.transAxes)  # fmt: skip
        axes.text(0.97, 0.94, sign, size=7.5, va="top", ha="right", color=colour, weight="bold",
                  transform=axes.transAxes)  # fmt: skip
        axes.set_xlabel(literal(shortened(found.video)), size=6.5, labelpad=2)


def shortened(name: str, most: int = 24) -> str:
    """The end of a long video name tells more than its beginning."""
    return name if len(name) <= most else "…" + name[1 - most :]
