"""`holmes index`: make an index of videos and keep it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holmes.cli.options import counted, say, say_files
from holmes.printable import printable

if TYPE_CHECKING:
    from holmes.index.builder import BuildSummary

app = typer.Typer(help="Make an index of videos and keep it.", no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(metavar="INDEX", help="The folder of the index.")]
Videos = Annotated[
    list[Path],
    typer.Argument(metavar="VIDEOS…", help="Video files, folders to search for them, or feature folders."),
]
Workers = Annotated[int | None, typer.Option(min=1, help="Processes.", show_default="one a core")]
Rate = Annotated[float | None, typer.Option(help="Samples a second.", show_default="the encoder's own")]


@app.command()
def build(
    index: Folder,
    videos: Videos,
    model: Annotated[
        str, typer.Option(help="A joint encoder (pocket, clip-…, siglip-…), or what 'holmes train' made.")
    ] = "pocket",
    visual: Annotated[
        str | None, typer.Option(help="The frame encoder of a checkpoint's features.", show_default="lite2")
    ] = None,
    text: Annotated[
        str | None, typer.Option(help="The text encoder of a checkpoint's features.", show_default="minilm")
    ] = None,
    rate: Rate = None,
    workers: Workers = None,
) -> None:
    """Make an index of videos; run it again to go on with an unfinished one."""
    from holmes.index.builder import build_index
    from holmes.index.embedders import load_embedder

    embedder = load_embedder(model, visual, text)
    _report(index, build_index(index, videos, embedder, rate=rate, workers=workers, progress=True))


@app.command()
def add(
    index: Folder,
    videos: Videos,
    model: Annotated[
        str | None, typer.Option(help="Where the index's checkpoint is now, if it has moved.")
    ] = None,
    workers: Workers = None,
) -> None:
    """Add videos, and those that have changed again."""
    from holmes.index.builder import add_videos
    from holmes.index.embedders import recorded_embedder
    from holmes.index.manifest import read_manifest

    embedder = recorded_embedder(read_manifest(index).model, model)
    _report(index, add_videos(index, videos, embedder, workers=workers, progress=True))


@app.command()
def remove(
    index: Folder,
    videos: Annotated[
        list[str], typer.Argument(metavar="VIDEOS…", help="Paths, or patterns such as '*/holiday/*'.")
    ],
) -> None:
    """Remove videos; 'compact' frees their space."""
    from holmes.index.store import IndexWriter

    with IndexWriter(index) as writer:
        names = {name for pattern in videos for name in writer.store.matching(pattern)}
        writer.remove(names)
        left = len(writer.store)
    say(f"{counted(len(names), 'video')} removed, {left} left: {index}")


@app.command()
def info(
    index: Folder, json: Annotated[bool, typer.Option("--json", help="Print JSON, with every video.")] = False
) -> None:
    """Say what an index holds and what made it."""
    from holmes.index.store import IndexStore

    store = IndexStore.open(index)
    hours = sum(store[name].duration for name in store.places) / 3600
    removed = sum(len(segment.removed) for segment in store.manifest.segments)
    size = sum(segment.bytes for segment in store.manifest.segments)
    model, extraction = store.manifest.model, store.manifest.extraction
    if json:
        _print_json(
            {
                "videos": len(store),
                "hours": hours,
                "removed": removed,
                "bytes": size,
                "segments": len(store.segments),
                "width": store.manifest.width,
                "model": model,
                "extraction": extraction,
                "names": list(store.places),
            }
        )
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    backbone = extraction.get("backbone", {})
    table = Table(show_header=False, box=None)
    length = f"{hours:,.1f} hours" if hours >= 1 else f"{60 * hours:.1f} minutes"
    table.add_row("videos", f"{len(store):,}, {length}")
    table.add_row("removed", f"{removed:,}" + (", 'compact' frees their space" if removed else ""))
    table.add_row("on disk", f"{size / 2**20:,.1f} MiB in {counted(len(store.segments), 'segment')}")
    digest = str(model.get("digest"))[:12]
    table.add_row("model", Text(printable(f"{model.get('name')} ({model.get('kind')}, {digest})")))
    table.add_row("features", Text(printable(f"{backbone.get('name')}, {extraction.get('rate')} a second")))
    Console(highlight=False).print(table)


@app.command()
def check(index: Folder) -> None:
    """Verify every byte of an index."""
    from holmes.errors import HolmesError
    from holmes.index.builder import feature_faults
    from holmes.index.manifest import damaged
    from holmes.index.store import IndexStore

    store = IndexStore.open(index)
    faults = store.faults()
    if faults:
        raise damaged(index, "; ".join(faults))
    if faults := feature_faults(index):
        raise HolmesError(faults[0] + (f" And {len(faults) - 1} more." if faults[1:] else ""))
    held = f"{counted(len(store), 'video')} in {counted(len(store.segments), 'segment')}"
    say(f"{held}, all as written: {index}")


@app.command()
def compact(index: Folder) -> None:
    """Rewrite an index without its removed videos, and free their space."""
    from holmes.index.builder import compact_index

    freed = compact_index(index)
    say(f"{freed / 2**20:,.1f} MiB freed: {index}")


def _report(index: Path, summary: BuildSummary) -> None:
    say_files(summary.partial, summary.failures)
    say(
        f"{counted(summary.added, 'video')} added, {summary.unchanged} already there, "
        f"{len(summary.failures)} failed: {index}"
    )
    if summary.failures:
        raise typer.Exit(1)


def _print_json(value: object) -> None:
    import json

    typer.echo(json.dumps(value, indent=1))
