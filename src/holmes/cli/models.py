"""`holmes models`, `push` and `pull`: list encoders, publish and fetch models."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from holmes.cli.options import print_json, say, wide_console


def models(
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the encoders that --model takes: size, width, languages, licence, and whether they are installed.

    Besides these, --model takes the folder of a model, any OWNER/NAME on a hub, open_clip:NAME, st:NAME,
    timm:NAME and torchvision:NAME.
    """
    from holmes.media.backbones.catalogue import known_models

    found = list(known_models())
    if json:
        print_json([asdict(entry) for entry in found])
        return
    from rich.table import Table

    table = Table("model", "encodes", "size", "width", "languages", "licence", "present", box=None)
    table.columns[0].no_wrap = True  # names are copied
    for entry in found:
        size = f"{entry.parameters:,} M" if entry.parameters else ""
        width = f"{entry.width:,}" if entry.width else ""
        about = (entry.encodes, size, width, entry.languages, entry.licence, entry.present)
        table.add_row(entry.name, *about)
    wide_console().print(table)


def push(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A finished run of 'holmes train'.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="OWNER/NAME on the hub, or a folder: ./NAME.")],
    public: Annotated[bool, typer.Option("--public", help="Let everybody see it on the hub.")] = False,
    licence: Annotated[str | None, typer.Option(help="The licence that the card names.")] = None,
    about: Annotated[str, typer.Option(help="A paragraph for the card.")] = "",
) -> None:
    """Publish a trained model with its calibration, figures and a card, on a hub or in a folder."""
    from holmes.evaluation.runs.publish import push as publish

    where = publish(run, name, private=not public, licence=licence, about=about)
    say(f"published {run}: {where}")


def pull(
    name: Annotated[str, typer.Argument(metavar="NAME", help="OWNER/NAME on the hub, or a folder: ./NAME.")],
    revision: Annotated[
        str | None, typer.Option(help="A branch, tag or commit.", show_default="the newest")
    ] = None,
) -> None:
    """Fetch a published model and print its folder; nothing in it is run."""
    from holmes.encoders.hub import pull as fetch

    typer.echo(str(fetch(name, revision=revision)))
