"""`holmes push` and `holmes pull`: publish a model, and fetch one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holmes.cli.options import say


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
