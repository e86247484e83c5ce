"""`holmes export`: what was found, as a timeline, markers or chapters for an editing program."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holmes.cli.filters import VideoFilter
from holmes.cli.options import IndexFolder, ModelOfIndex, counted, say, with_options

SentenceToFind = Annotated[
    str, typer.Argument(metavar="SENTENCE", help="What happens in the moments you look for.")
]
Top = Annotated[int, typer.Option(min=1, help="How many videos at most.")]
AtLeast = Annotated[
    float, typer.Option(min=0, max=1, metavar="P", help="Leave out videos that are less probable than this.")
]
Pad = Annotated[float, typer.Option(min=0, metavar="SECONDS", help="Added before and after each moment.")]


@with_options(VideoFilter)
def export(
    videos: VideoFilter,
    index: IndexFolder,
    sentence: SentenceToFind,
    out: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="The file: .otio, .fcpxml, .edl, .csv, .markers.csv, .markers.edl, .vtt or .txt (YouTube).",
        ),
    ],
    format: Annotated[
        str | None,
        typer.Option(
            help="otio, fcpxml, edl, csv, markers, markers-edl, vtt or youtube.",
            show_default="as the file's name says",
        ),
    ] = None,
    top: Top = 10,
    at_least: AtLeast = 0.1,
    pad: Pad = 0.0,
    rate: Annotated[
        str | None,
        typer.Option(
            metavar="FPS",
            help="Frames a second of the timeline, such as 29.97.",
            show_default="that of most films",
        ),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace the file if it exists.")] = False,
    model: ModelOfIndex = None,
) -> None:
    """Write the moments that were found for an editing program: a timeline, markers, or chapters."""
    from holmes.cluster.index import open_index
    from holmes.editing.export import export as write

    opened = open_index(index, device="cpu", model=model)
    answer = opened.search(sentence, top, filter=videos.names(opened))
    summary = write(
        answer, out, format=format, top=top, at_least=at_least, pad=pad, rate=rate, replace=replace
    )
    say(answer.diagnosis.explanation)
    say(f"{counted(summary.clips, 'clip')} at {summary.rate:.5g} frames a second in {summary.file}")
    if summary.improbable:
        say(f"{counted(summary.improbable, 'video')} less probable than {at_least:.0%} left out (--at-least)")
    for note in summary.notes:
        say(note)
