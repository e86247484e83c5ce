"""The style of all figures: fonts, colours that colour-blind readers can distinguish, light and dark."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from holmes.base.files import atomic_file
from holmes.base.printing import printable_lines

WIDTH = 7.0  # inches: a two-column figure
KINDS = ("precise", "polysemous", "under-determined")  # in the order of QueryKind
KIND_MARKERS = ("o", "^", "s")

RC: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same everywhere
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 8,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 3,
    "ytick.major.size": 3,
    "lines.linewidth": 1.4,
    "lines.solid_capstyle": "round",
    "mathtext.fontset": "dejavusans",
    "svg.fonttype": "path",  # text as paths looks the same whatever fonts the reader has
    "svg.hashsalt": "holmes",  # the same numbers give the same bytes
    "pdf.fonttype": 42,
}


@dataclass(frozen=True)
class Theme:
    """Colours after Okabe and Ito, lightened where the paper is dark."""

    name: str
    paper: str
    ink: str
    muted: str  # secondary text
    faint: str  # grids, things in the background
    kinds: tuple[str, str, str]
    series: tuple[str, ...]  # lines of one panel
    right: str
    wrong: str
    moment: str  # shading of the true moment
    heat: tuple[str, ...]  # from nothing to much

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Figures begun inside take this theme's fonts and colours."""
        colours: dict[Any, Any] = {
            "figure.facecolor": self.paper,
            "axes.facecolor": self.paper,
            "savefig.facecolor": self.paper,
            "text.color": self.ink,
            "axes.labelcolor": self.ink,
            "axes.titlecolor": self.ink,
            "axes.edgecolor": self.muted,
            "xtick.color": self.muted,
            "ytick.color": self.muted,
            "xtick.labelcolor": self.ink,
            "ytick.labelcolor": self.ink,
        }
        with matplotlib.rc_context(RC | colours):
            yield


LIGHT = Theme(
    name="light",
    paper="#ffffff",
    ink="#1c1e21",
    muted="#6a6f76",
    faint="#dfe2e6",
    kinds=("#0072b2", "#e69f00", "#b0457f"),
    series=("#0072b2", "#d55e00", "#009e73", "#b0457f"),
    right="#00825f",
    wrong="#d55e00",
    moment="#f6dd9c",
    heat=("#ffffff", "#cfe3f2", "#74b3dc", "#0072b2", "#00304f"),
)
DARK = Theme(
    name="dark",
    paper="#1b1d21",
    ink="#e9ebee",
    muted="#9aa1aa",
    faint="#363a41",
    kinds=("#56b4e9", "#f0b429", "#e08fbd"),
    series=("#56b4e9", "#f2803a", "#2fc79d", "#e08fbd"),
    right="#2fc79d",
    wrong="#f2803a",
    moment="#5c4d1f",
    heat=("#1b1d21", "#173a55", "#1c6ea4", "#56b4e9", "#e2f3ff"),
)


def svg(figure: Figure) -> bytes:
    """The figure as SVG, the same bytes for the same figure."""
    with matplotlib.rc_context(RC):
        file = io.BytesIO()
        figure.savefig(file, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
        return file.getvalue()


def pdf(figure: Figure) -> bytes:
    """The figure as PDF with its fonts inside, for print."""
    with matplotlib.rc_context(RC):
        file = io.BytesIO()
        figure.savefig(file, format="pdf", metadata={"CreationDate": None})
        return file.getvalue()


def save_figure(figure: Figure, folder: Path, name: str) -> None:
    """`name.png` and `name.svg`."""
    picture = io.BytesIO()
    with LIGHT.applied():
        figure.savefig(picture, format="png", dpi=200)
    for ending, content in (("png", picture.getvalue()), ("svg", svg(figure))):
        with atomic_file(folder / f"{name}.{ending}") as file:
            file.write(content)


def value_text(value: Any) -> str:
    """The value of a setting, as --set takes it."""
    if isinstance(value, tuple | list):
        return ",".join(map(value_text, value))
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def literal(text: str) -> str:
    """A caption drawn as it is: a dollar sign does not begin a formula, and control characters do nothing."""
    return printable_lines(text).replace("$", r"\$")


def short_number(value: float) -> str:
    """Two decimals, or two digits and a power of ten where those would hide the number."""
    if value == 0 or abs(value) >= 0.01:
        return f"{value:.2f}"
    digits, power = f"{value:.1e}".split("e")
    return rf"${digits}\cdot10^{{{int(power)}}}$"


def wrapped(text: str, width: int, lines: int) -> str:
    """Text in at most this many lines; what does not fit ends in an ellipsis."""
    return literal("\n".join(textwrap.wrap(text, width, max_lines=lines, placeholder=" …")))


def label_line_ends(
    axes: Axes, ends: Sequence[tuple[float, str, str]], x: float = 1.015, size: float = 7.5
) -> None:
    """Names beside the right end of lines instead of a legend: (height, name, colour), kept apart."""
    figure_height = axes.figure.get_figure(root=True).get_size_inches()[1]
    line = 1.3 * size / 72 / (figure_height * axes.get_position().height)  # in axes fractions
    to_axes = axes.transData + axes.transAxes.inverted()
    wanted = [float(to_axes.transform((axes.get_xlim()[0], height))[1]) for height, _, _ in ends]
    for position, (_, name, colour) in zip(spread(wanted, line), ends, strict=True):
        axes.text(x, position, name, color=colour, size=size, va="center", transform=axes.transAxes)


def spread(wanted: ArrayLike, gap: float) -> NDArray[np.float64]:
    """The positions nearest to the wanted ones that lie at least `gap` apart, in the same order."""
    wanted_N = np.asarray(wanted, np.float64)
    order_N = np.argsort(wanted_N, kind="stable")
    ladder_N = gap * np.arange(len(wanted_N))
    # With the gaps subtracted, positions must not decrease: pool neighbours that do (isotonic regression).
    pools: list[list[float]] = []
    for value in wanted_N[order_N] - ladder_N:
        pools.append([value])
        while len(pools) > 1 and np.mean(pools[-2]) > np.mean(pools[-1]):
            pools[-2:] = [pools[-2] + pools[-1]]
    spread_N = np.empty_like(wanted_N)
    spread_N[order_N] = np.concatenate([np.full(len(pool), np.mean(pool)) for pool in pools]) + ladder_N
    return spread_N
