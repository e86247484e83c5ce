"""`holmes cut`: what was found, as video files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holmes.cli.export import AtLeast, Pad, SentenceToFind, Top
from holmes.cli.filters import VideoFilter
from holmes.cli.options import IndexFolder, ModelOfIndex, counted, say, with_options


@with_options(VideoFilter)
def cut(
    videos: VideoFilter,
    index: IndexFolder,
    sentence: SentenceToFind,
    out: Annotated[Path, typer.Option(metavar="CLIPS", help="The folder for the files; it may be new.")],
    top: Top = 5,
    at_least: AtLeast = 0.1,
    pad: Pad = 0.0,
    exact: Annotated[
        bool,
        typer.Option("--exact", help="Encode again, to begin and end with the very frame."),
    ] = False,
    reel: Annotated[
        bool, typer.Option("--reel", help="Write one file, with a title before each moment.")
    ] = False,
    model: ModelOfIndex = None,
) -> None:
    """Save the moments that were found as MP4 files; an existing file is never replaced.

    Clips are copied from the key frame before the moment. Films that an MP4 file cannot hold are encoded.
    """
    from holmes.base.printing import clock
    from holmes.cluster.index import open_index
    from holmes.editing.cut import cut as write

    opened = open_index(index, device="cpu", model=model)
    answer = opened.search(sentence, top, filter=videos.names(opened))
    summary = write(answer, out, top=top, at_least=at_least, pad=pad, exact=exact, reel=reel, progress=True)
    say(answer.diagnosis.explanation)
    for file in summary.files:
        how = "copied" if file.copied else "encoded"
        what = "a reel" if reel else f"{clock(file.start)}–{clock(file.end)} of {file.video}, {how}"
        typer.echo(f"{file.file}  ({what})")
    for video, reason in summary.failures:
        say(f"left out {video}: {reason}")
    say(f"{counted(len(summary.files), 'file')} in {out}")
