"""Options that say which videos are searched: the same filters as on the page."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holmes.base.printing import seconds_of
from holmes.errors import HolmesError

if TYPE_CHECKING:
    from holmes.index.answer.base import SearchIndex


@dataclass(frozen=True)
class VideoFilter:
    """Which videos are searched."""

    filter: Annotated[
        str | None,
        typer.Option(
            metavar="GLOB", help="Search only videos whose path or file name matches, such as '*/2024/*'."
        ),
    ] = None
    folder: Annotated[
        Path | None, typer.Option("--in", metavar="FOLDER", help="Search only videos below this folder.")
    ] = None
    after: Annotated[
        str | None, typer.Option(metavar="DAY", help="Only files changed on this day (2024-12-31) or later.")
    ] = None
    before: Annotated[
        str | None, typer.Option(metavar="DAY", help="Only files changed on this day or earlier.")
    ] = None
    longer: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only videos at least this long: 90, 1:30 or 1:02:00.")
    ] = None
    shorter: Annotated[str | None, typer.Option(metavar="TIME", help="Only videos at most this long.")] = None

    def names(self, index: SearchIndex) -> str | frozenset[str] | None:
        """What `index.search` takes as its filter."""
        from holmes.serve.catalogue import Filter, VideoCatalogue, parse_day

        wanted = Filter(
            None if self.folder is None else os.path.abspath(self.folder),
            parse_day("--after", self.after),
            parse_day("--before", self.before),
            parse_time("--longer", self.longer),
            parse_time("--shorter", self.shorter),
        )
        if wanted == Filter():
            return self.filter
        catalogue = VideoCatalogue(index.durations)
        names = catalogue.names(wanted) or frozenset()
        if self.filter is not None:
            names &= catalogue.fitting(self.filter)
        if not names:
            raise HolmesError("no video fits the filters; leave one out (--in, --after, --longer …).")
        return names


def parse_time(option: str, text: str | None) -> float | None:
    if text is None:
        return None
    seconds = seconds_of(text)
    if seconds is None:
        raise HolmesError(f"{option} {text}: write a time as 90, 1:30 or 1:02:00.")
    return seconds
