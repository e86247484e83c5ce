"""`holmes mcp`: an index as tools for agents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holmes.cli.options import IndexFolder, ModelOfIndex, counted, say
from holmes.errors import HolmesError, missing_packages


def mcp(
    index: IndexFolder,
    http: Annotated[
        bool, typer.Option("--http", help="Speak HTTP on this machine instead of standard input and output.")
    ] = False,
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port of --http.")] = 8765,
    host: Annotated[str, typer.Option(help="The address of --http: this machine's own only.")] = "127.0.0.1",
    clips: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Allow agents to save clips here.", show_default="not allowed"),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    model: ModelOfIndex = None,
) -> None:
    """Offer an index to agents over the Model Context Protocol: search, moments, frames, transcript, cut."""
    from holmes.cluster.index import open_index

    try:
        from holmes.serve.agents.server import make_server, run_http
    except ImportError:
        raise missing_packages("agents", "mcp") from None
    from holmes.serve.settings import is_loopback

    if http and not is_loopback(host):
        raise HolmesError(
            f"--host {host}: agents are served to this machine only, because there is no token; use a tunnel "
            "(ssh -L), or 'holmes serve' for others."
        )
    opened = open_index(index, device=device, model=model)
    server = make_server(opened, clips)
    if http:
        shown = f"[{host}]" if ":" in host else host
        say(f"{counted(len(opened), 'video')} in {index}; agents connect to http://{shown}:{port}/mcp")
        run_http(server, host, port)
    else:
        server.run("stdio")
