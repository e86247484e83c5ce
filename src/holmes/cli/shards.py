"""`holmes index split`, `seal` and `export`: an index for many machines, or for a vector database."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from holmes.cli.index_summary import print_json
from holmes.cli.options import IndexFolder, counted, say
from holmes.printable import printable


def split(
    index: IndexFolder,
    out: Annotated[
        str, typer.Argument(metavar="OUT", help="A new folder, or object storage such as s3://bucket/films.")
    ],
    shards: Annotated[int, typer.Option(min=1, metavar="N", help="How many shards.")],
) -> None:
    """Make a sharded index from an index: a folder of indexes that many machines search together."""
    from holmes.cluster.writing import split_index

    made = split_index(index, out, shards, progress=True)
    sizes = [entry.bytes / 2**20 for entry in made.shards]
    say(
        f"{counted(made.videos, 'video')} in {counted(len(made.shards), 'shard')} of {min(sizes):,.1f} to "
        f"{max(sizes):,.1f} MiB: {out}"
    )


def seal(
    shards: Annotated[Path, typer.Argument(metavar="SHARDS", help="The folder of a sharded index.")],
) -> None:
    """Make what the shards hold now the next generation, after single shards were changed."""
    from holmes.cluster.writing import seal_shards

    sealed = seal_shards(shards)
    held = f"{counted(sealed.videos, 'video')} in {counted(len(sealed.shards), 'shard')}"
    say(f"{held}, generation {sealed.generation}: {shards}")


def export(
    index: IndexFolder,
    to: Annotated[str, typer.Option(metavar="qdrant", help="The vector database: qdrant.")],
    url: Annotated[
        str, typer.Option(help="Its address, such as http://127.0.0.1:6333, or a folder for its local mode.")
    ],
    collection: Annotated[str, typer.Option(help="The collection to make.")] = "holmes",
) -> None:
    """Put the embeddings into a vector database that scores by MaxSim (docs/cluster.md)."""
    from holmes.cluster.vector_database import export_to_qdrant, open_qdrant
    from holmes.errors import unknown
    from holmes.index.index_store import IndexStore

    if to != "qdrant":
        raise unknown("vector database", to, ("qdrant",))
    store = IndexStore.open(index)
    with closing(open_qdrant(url)) as client:
        points = export_to_qdrant(store, client, collection, progress=True)
    say(f"{counted(len(store), 'video')} as {counted(points, 'point')} of '{collection}': {url}")


def show_shards(index: Path, json: bool) -> None:
    from holmes.cluster.places import Place
    from holmes.cluster.shards_manifest import read_shards
    from holmes.index.index_store import IndexStore

    shards = read_shards(Place(index))
    if json:
        names = [name for entry in shards.shards for name in IndexStore.open(index / entry.name).places]
        print_json({**shards.describe(str(index)).to_dict(), "names": names})
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("shard", "videos", "hours", "MiB", "in memory", box=None)
    for entry in shards.shards:
        hours, size, codes = entry.seconds / 3600, entry.bytes / 2**20, entry.codes / 2**20
        table.add_row(entry.name, f"{entry.videos:,}", f"{hours:,.1f}", f"{size:,.1f}", f"{codes:,.1f}")
    console = Console(highlight=False)
    console.print(table)
    model = f"{shards.model.get('name')} ({shards.model.get('kind')})"
    held = f"{counted(shards.videos, 'video')}, generation {shards.generation}, model {model}"
    console.print(printable(held), markup=False)
