"""`holmes export`, `cut`, `chapters` and `transcript`: moments, scenes and words, for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holmes.base.printing import printable, printable_lines
from holmes.cli.options import (
    AnyIndex,
    IndexFolder,
    ModelOfIndex,
    VideoFilter,
    counted,
    print_json,
    say,
    with_options,
)
from holmes.errors import HolmesError, unknown

SentenceToFind = Annotated[
    str, typer.Argument(metavar="SENTENCE", help="What happens in the moments you look for.")
]
Top = Annotated[int, typer.Option(min=1, help="How many videos at most.")]
AtLeast = Annotated[
    float, typer.Option(min=0, max=1, metavar="P", help="Leave out videos that are less probable than this.")
]
FORMS = ("txt", "srt", "vtt", "json")  # of a transcript
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
            help="Frame rate of the timeline, such as 29.97.",
            show_default="that of most films",
        ),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace the file if it exists.")] = False,
    model: ModelOfIndex = None,
) -> None:
    """Write the moments of a search for an editing program: a timeline, markers, or chapters."""
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
        typer.Option("--exact", help="Encode again, to cut exactly at the frame."),
    ] = False,
    reel: Annotated[
        bool, typer.Option("--reel", help="Write one file, with a title before each moment.")
    ] = False,
    model: ModelOfIndex = None,
) -> None:
    """Save the moments of a search as MP4 files; existing files are never replaced.

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


def chapters(
    index: IndexFolder,
    video: Annotated[
        str,
        typer.Argument(metavar="VIDEO", help="A film of the index: its path, file name, or a pattern."),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a new file: .vtt, .json or .txt.")
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(help="text (as YouTube takes it), vtt or json.", show_default="as the file's name says"),
    ] = None,
    captions: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Possible titles, one caption per line.", show_default="everyday scenes"
        ),
    ] = None,
    shortest: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="The minimum length of a chapter.")
    ] = 10.0,
    model: ModelOfIndex = None,
) -> None:
    """Divide a film into chapters, with titles from what is seen or said."""
    from holmes.base.files import atomic_file
    from holmes.cluster.index import open_index
    from holmes.editing.chapters import FORMATS, read_captions, written_chapters
    from holmes.editing.chapters import chapters as find
    from holmes.editing.vocabulary import CAPTIONS
    from holmes.index.storage.store import only_match

    ends = {".vtt": "vtt", ".json": "json", ".txt": "text"}
    form = format or ("text" if out is None else ends.get(out.suffix.lower(), ""))
    if form not in FORMATS:
        raise unknown("format", form or (out.name if out else ""), FORMATS)
    if out is not None and out.exists():
        raise HolmesError(f"{out} exists; choose another name (--out).")
    opened = open_index(index, device="cpu", model=model)
    name = only_match(opened.durations, video, index)
    named = CAPTIONS if captions is None else read_captions(captions)
    found = find(opened, name, captions=named, shortest=shortest)
    text = written_chapters(found, name, form)
    if out is None:
        typer.echo(printable_lines(text), nl=False)
    else:
        with atomic_file(out) as file:
            file.write(text.encode("utf-8", "replace"))
        say(f"{counted(len(found), 'chapter')} of {name} in {out}")


def transcript(
    index: AnyIndex,
    video: Annotated[str, typer.Argument(metavar="VIDEO", help="A path, or a file name of the index.")],
    format: Annotated[
        str, typer.Option(metavar="FORMAT", help="txt for people, srt or vtt for players, or json.")
    ] = "txt",
) -> None:
    """Print the spoken and written words of a video, with times."""
    from holmes.cluster.index import open_index
    from holmes.heard.formats import to_srt, to_text, to_vtt
    from holmes.index.storage.store import only_match

    if format not in FORMS:
        raise unknown("format", format, FORMS)
    opened = open_index(index, device="cpu")
    name = only_match(opened.durations, video, index)
    heard = opened.transcript(name)
    if heard is None:
        raise HolmesError(f"{name} was never heard; 'holmes index hear {index}' does that.")
    if format == "json":
        passages = [passage.to_dict() for passage in heard.passages]
        about = {"video": name, "sources": heard.sources, "notes": list(heard.notes)}
        print_json({**about, "passages": passages})
        return
    if format == "txt":
        for note in heard.notes:
            typer.echo(f"({printable(note)})", err=True)
        for line in to_text(heard):
            typer.echo(printable(line))
        return
    typer.echo(to_srt(heard) if format == "srt" else to_vtt(heard), nl=False)
