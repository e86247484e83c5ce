"""`holmes serve` and `holmes mcp`: serve an index to browsers, programs and agents."""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from holmes.cli.options import IndexFolder, ModelOfIndex, RayAddress, counted, say
from holmes.errors import HolmesError, missing_packages

LIBRARY = re.compile(r"([A-Za-z0-9][A-Za-z0-9_-]{0,39})=(.+)")
TAKEN = {"api", "static", "library", "watch", "metrics"}  # addresses of the page itself


def serve(
    index: Annotated[
        list[str],
        typer.Argument(
            metavar="INDEX…",
            help="The folder of an index, or of shards (or their URL); several as NAME=INDEX.",
        ),
    ],
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port to listen on.")] = 8000,
    host: Annotated[
        str,
        typer.Option(help="The address to listen on; any other than this machine's own requires a token."),
    ] = "127.0.0.1",
    token: Annotated[
        str | None,
        typer.Option(
            envvar="HOLMES_TOKEN", help="The token that others need to search.", show_default="a random one"
        ),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(help="A host name under which the server is known, such as films.lan. Repeatable."),
    ] = None,
    proxy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS",
            help="A reverse proxy (address or network) whose X-Forwarded-For is trusted. Repeatable.",
        ),
    ] = None,
    manage: Annotated[bool, typer.Option("--manage", help="Allow adding and removing videos.")] = False,
    add_from: Annotated[
        list[Path] | None,
        typer.Option(help="A folder from which videos may be added, besides those of the index. Repeatable."),
    ] = None,
    uploads: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Accept uploads into this folder, and index them."),
    ] = None,
    largest_upload: Annotated[
        float, typer.Option(min=0.001, max=1e6, help="The largest upload, in GiB.")
    ] = 100,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    model: ModelOfIndex = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not log requests.")] = False,
    ray: RayAddress = None,
    copies: Annotated[
        int | None,
        typer.Option(
            min=1, help="Copies of every shard, on different nodes.", show_default="2, or 1 on a single node"
        ),
    ] = None,
    cache: Annotated[
        str | None,
        typer.Option(help="Where nodes keep their shards.", show_default="~/.cache/holmes/shards"),
    ] = None,
) -> None:
    """Search an index in the browser or over HTTP; Ctrl-C stops the server."""
    from holmes.cluster.index import open_index
    from holmes.cluster.joined import join_indexes, why_separate

    try:
        from holmes.serve.server import serve as run
    except ImportError:
        raise missing_packages("the page", "fastapi", "uvicorn") from None
    from holmes.serve.settings import LEAST_TOKEN, Limits, ServeSettings, TrustedProxies, is_loopback

    if token is not None and len(token) < LEAST_TOKEN:
        raise HolmesError(f"the token has {len(token)} characters; use at least {LEAST_TOKEN}.")
    if token is None and not is_loopback(host):
        token = secrets.token_urlsafe(24)
    try:
        TrustedProxies(proxy or ())
    except ValueError as error:
        raise HolmesError(f"--proxy: {error}; write an address, or a network such as 10.0.0.0/8.") from None
    paths = libraries_of(index)
    opened = {
        library: open_index(path, device=device, model=model, ray=ray, copies=copies, cache=cache)
        for library, path in paths.items()
    }
    settings = ServeSettings(
        host=host,
        port=port,
        token=token,
        names=tuple(name or ()),
        manage=manage,
        add_from=tuple(add_from or ([Path.home()] if is_loopback(host) else [])),
        uploads=uploads,
        proxies=tuple(proxy or ()),
        limits=Limits(upload=int(largest_upload * 2**30)),
    )
    shown = f"[{host}]" if ":" in host else host
    for library, each in opened.items():
        say(f"{counted(len(each), 'video')} in {f'{library}, ' if library else ''}{paths[library]}")

    def ready() -> None:
        # The part after # stays in the browser: it is neither sent nor logged.
        secret = f"#token={quote(token, safe='')}" if token else ""
        say(f"open http://{shown}:{port}/{secret} in a browser; Ctrl-C stops the server")

    if "" in opened:
        run(opened[""], settings, model=model, quiet=quiet, ready=ready)
        return
    why = why_separate(opened)
    joined = None if why else join_indexes(paths, device=device, model=model)
    if why:
        say(why)
    run(opened, settings, joined=joined, why_separate=why, model=model, quiet=quiet, ready=ready)


def libraries_of(words: list[str]) -> dict[str, str]:
    """Names and paths from words such as FILMS=INDEX; a single path needs no name."""
    if len(words) == 1 and (os.path.exists(words[0]) or not LIBRARY.fullmatch(words[0])):
        return {"": words[0]}
    found: dict[str, str] = {}
    for word in words:
        match = LIBRARY.fullmatch(word)
        if match is None:
            raise HolmesError(f"{word}: write NAME=INDEX for each of several libraries.")
        name, path = match.groups()
        if name in found or name.lower() in TAKEN:
            what = "two libraries" if name in found else "a page of the server"
            raise HolmesError(f"{name} names {what}; use another name.")
        found[name] = path
    return found


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
