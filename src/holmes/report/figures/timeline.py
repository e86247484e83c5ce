"""The similarity of a query along its own video and the strongest rival (fig. 4).

F frames of a video
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from holmes.report.figures.style import LIGHT, WIDTH, Theme, label_line_ends, wrapped

Floats = NDArray[np.floating]


@dataclass(frozen=True)
class Track:
    """One run's similarity along one video, and the score it gives the video."""

    similarity_F: Floats
    score: float


@dataclass(frozen=True)
class Film:
    """A video with its tracks, one for each run in the same order everywhere."""

    name: str
    tracks: tuple[Track, ...]
    seconds: float | None = None
    moment: tuple[float, float] | None = None  # fractions of the video


@dataclass(frozen=True)
class TimelinePair:
    """A query, the film that contains its moment, and the wrong film that comes nearest."""

    why: str  # how it was chosen
    caption: str
    own: Film
    rival: Film


def draw_timelines(timelines: Sequence[TimelinePair], runs: Sequence[str], theme: Theme = LIGHT) -> Figure:
    """A row for each query: its own video on the left, the strongest rival on the right."""
    with theme.applied():
        figure = Figure((WIDTH, 0.25 + 1.75 * len(timelines)), layout="constrained")
        grid = figure.subplots(len(timelines), 2, squeeze=False, sharey="row")
        for row, timeline in zip(grid, timelines, strict=True):
            films = {"the right video": timeline.own, "the strongest rival": timeline.rival}
            for axes, (who, film) in zip(row, films.items(), strict=True):
                draw_film(axes, film, runs, theme)
                unit = "share" if film.seconds is None else "seconds"
                axes.set_xlabel(f"{unit} of {who}{', %' if film.seconds is None else ''}")
            for axes, film in zip(row, films.values(), strict=True):  # the limits are known only now
                label_tracks(axes, film, runs, theme)
            row[0].set_title(wrapped(f"{timeline.why.capitalize()}: “{timeline.caption}”", 100, 1), size=8)
            row[0].set_ylabel("similarity")
    return figure


def draw_film(axes: Axes, film: Film, runs: Sequence[str], theme: Theme) -> None:
    scale = 100.0 if film.seconds is None else film.seconds
    if film.moment is not None:
        band = axes.axvspan(
            scale * film.moment[0], scale * film.moment[1], color=theme.moment, linewidth=0, zorder=0
        )
        band.set_gid("moment")
    for run, track, colour, width in zip(runs, film.tracks, theme.series, (1.5, 1.1), strict=False):
        times_F = scale * (np.arange(len(track.similarity_F)) + 0.5) / len(track.similarity_F)
        (line,) = axes.plot(times_F, track.similarity_F, color=colour, linewidth=width)
        line.set_gid(run)
    axes.set_xlim(0, scale)


def label_tracks(axes: Axes, film: Film, runs: Sequence[str], theme: Theme) -> None:
    """The runs' names and scores at the ends of their lines."""
    ends = [
        (float(track.similarity_F[-1]), f"{run} {track.score:.2f}".strip(), colour)
        for run, track, colour in zip(runs, film.tracks, theme.series, strict=False)
    ]
    label_line_ends(axes, ends, size=7)
