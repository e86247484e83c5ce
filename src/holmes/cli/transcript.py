"""`holmes transcript`: the spoken and written words of a video."""

from __future__ import annotations

from typing import Annotated

import typer

from holmes.base.printing import printable
from holmes.cli.options import AnyIndex, print_json
from holmes.errors import HolmesError, unknown

FORMS = ("txt", "srt", "vtt", "json")


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
