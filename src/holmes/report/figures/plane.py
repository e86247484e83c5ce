"""The plane on which kinds of query are separated (fig. 2b): coarse regions on c-u, then refinement along ξ.

Q queries of one batch of videos
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatterSciNotation, LogLocator, MaxNLocator, NullFormatter
from numpy.typing import NDArray

from holmes.report.figures.style import KIND_MARKERS, KINDS, LIGHT, WIDTH, Theme, short_number

Floats = NDArray[np.floating]


@dataclass(frozen=True)
class BranchPlane:
    """What one branch makes of the queries of a batch, and where it draws its lines."""

    name: str
    consistency_Q: Floats  # c
    uncertainty_Q: Floats  # u
    entropy_Q: Floats  # ξ, nats
    kinds_Q: NDArray[np.integer]
    uncertainty_ceiling: float  # β_u
    consistency_floor: float  # β_p
    entropy_cut: float | None  # the ξ that separates the candidates; None where all are precise, or none is


def draw_plane(branches: tuple[BranchPlane, ...], theme: Theme = LIGHT) -> Figure:
    """A row for each branch: the c-u plane with its regions, and ξ for the same queries at the same u."""
    with theme.applied():
        figure = Figure((WIDTH, 2.75 * len(branches)), layout="constrained")
        grid = figure.subplots(len(branches), 2, squeeze=False, sharey=True, sharex="col")
        grid[0, 0].set(
            xlim=padded([b.consistency_Q for b in branches]),
            ylim=np.exp(padded([np.log([*b.uncertainty_Q, b.uncertainty_ceiling]) for b in branches], 0.15)),
            yscale="log",
        )
        grid[0, 1].set_xlim(padded([b.entropy_Q for b in branches]))
        grid[0, 0].yaxis.set_major_locator(LogLocator(subs=(1, 3)))
        grid[0, 0].yaxis.set_major_formatter(LogFormatterSciNotation(minor_thresholds=(np.inf, np.inf)))
        grid[0, 0].yaxis.set_minor_formatter(NullFormatter())
        for axes in grid[0]:
            axes.xaxis.set_major_locator(MaxNLocator(5))
        for (coarse, refined), branch in zip(grid, branches, strict=True):
            draw_regions(coarse, branch, theme)
            draw_refinement(refined, branch, theme)
            coarse.set_title(f"{branch.name.capitalize()} branch: coarse regions")
            refined.set_title(f"{branch.name.capitalize()} branch: refined along ξ")
            coarse.set_ylabel("uncertainty u")
        grid[-1, 0].set_xlabel("label consistency c")
        grid[-1, 1].set_xlabel("expected entropy ξ, nats")
    return figure


def draw_regions(axes: Axes, branch: BranchPlane, theme: Theme) -> None:
    floor, ceiling = branch.consistency_floor, branch.uncertainty_ceiling
    (c_low, c_high), (u_low, u_high) = axes.get_xlim(), axes.get_ylim()
    precise, polysemous, underdetermined = theme.kinds
    regions = (
        ((c_low, c_high), (ceiling, u_high), underdetermined),
        ((c_low, floor), (u_low, ceiling), polysemous),
        ((floor, c_high), (u_low, ceiling), precise),
    )
    for across, (bottom, top), colour in regions:
        axes.fill_between(across, bottom, top, color=colour, alpha=0.09, linewidth=0, zorder=0)
    axes.hlines(ceiling, c_low, c_high, color=theme.muted, linewidth=0.8)
    axes.vlines(floor, u_low, ceiling, color=theme.muted, linewidth=0.8)
    scatter_kinds(axes, branch.consistency_Q, branch, theme)
    axes.annotate(
        rf"$\beta_u$ = {short_number(ceiling)}",
        (c_high, ceiling),
        (-3, 3),
        textcoords="offset points",
        ha="right",
        size=7,
    )
    name_upright(axes, rf"$\beta_p$ = {short_number(floor)}", floor, u_low)
    names = {
        KINDS[2]: (c_low, u_high, "left", "top"),
        KINDS[1]: (c_low, u_low, "left", "bottom"),
        "ξ decides": (c_high, u_low, "right", "bottom"),
    }
    for (name, (x, y, ha, va)), colour in zip(names.items(), theme.kinds[::-1], strict=True):
        name_region(axes, name, x, y, ha, va, colour)


def draw_refinement(axes: Axes, branch: BranchPlane, theme: Theme) -> None:
    (low, high), (u_low, _) = axes.get_xlim(), axes.get_ylim()
    axes.hlines(branch.uncertainty_ceiling, low, high, color=theme.muted, linewidth=0.8)
    if branch.entropy_cut is not None:
        axes.vlines(branch.entropy_cut, u_low, branch.uncertainty_ceiling, color=theme.muted, linewidth=0.8)
        name_upright(axes, f"ξ = {branch.entropy_cut:.2f}", branch.entropy_cut, u_low)
    scatter_kinds(axes, branch.entropy_Q, branch, theme)


def name_upright(axes: Axes, name: str, x: float, y: float) -> None:
    """A name that climbs along a vertical line, on its left."""
    axes.annotate(
        name, (x, y), (-2, 4), textcoords="offset points", rotation=90, ha="right", va="bottom", size=7,
        bbox={"facecolor": axes.get_facecolor(), "edgecolor": "none", "pad": 0.5, "alpha": 0.7},
    )  # fmt: skip


def scatter_kinds(axes: Axes, values_Q: Floats, branch: BranchPlane, theme: Theme) -> None:
    """Colour and shape both tell the kind."""
    for kind, (name, colour, marker) in enumerate(zip(KINDS, theme.kinds, KIND_MARKERS, strict=True)):
        chosen_Q = branch.kinds_Q == kind
        if not chosen_Q.any():
            continue  # and it is not in the legend either
        points = axes.scatter(
            values_Q[chosen_Q],
            branch.uncertainty_Q[chosen_Q],
            s=11,
            marker=marker,
            color=colour,
            alpha=0.75,
            linewidth=0.3,
            edgecolor=theme.paper,
            label=name,
        )
        points.set_gid(name)


def name_region(axes: Axes, name: str, x: float, y: float, across: str, along: str, colour: str) -> None:
    """Write a region's name in one of its corners."""
    shift = (3 if across == "left" else -3, -3 if along == "top" else 3)
    axes.annotate(
        name, (x, y), shift, textcoords="offset points", ha=across, va=along,
        color=colour, size=7.5, weight="bold",
    )  # fmt: skip


def padded(values: Sequence[Floats], margin: float = 0.05) -> tuple[float, float]:
    """Limits that leave some air around all values."""
    low, high = float(min(some.min() for some in values)), float(max(some.max() for some in values))
    air = margin * (high - low) or 0.05
    return low - air, high + air
