"""`holmes chapters`: the scenes of a film with titles."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holmes.base.printing import printable_lines
from holmes.cli.options import IndexFolder, ModelOfIndex, counted, say
from holmes.errors import HolmesError


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
            metavar="FILE", help="What may be seen, one caption a line.", show_default="everyday scenes"
        ),
    ] = None,
    shortest: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="The least length of a chapter.")
    ] = 10.0,
    model: ModelOfIndex = None,
) -> None:
    """Divide a film into chapters, titled by what is seen or said where that is sure."""
    from holmes.base.files import atomic_file
    from holmes.cluster.index import open_index
    from holmes.editing.chapters import FORMATS, read_captions, written_chapters
    from holmes.editing.chapters import chapters as find
    from holmes.editing.vocabulary import CAPTIONS
    from holmes.errors import unknown
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
