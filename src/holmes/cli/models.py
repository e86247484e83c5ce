"""`holmes models`: the encoders that can be used here."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from holmes.cli.options import print_json, wide_console


def models(
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the encoders that --model takes: size, width, languages, licence, and whether they are here.

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
