"""`holmes data`: pack, plant, inspect, verify and export stores."""

from __future__ import annotations

import typer

app = typer.Typer(help="Pack, plant, inspect, verify and export feature stores.", no_args_is_help=True)


@app.callback()
def data() -> None:
    """Pack, plant, inspect, verify and export feature stores."""
