"""`holmes data`: pack, plant, inspect, verify and export stores."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Pack, plant, inspect, verify and export feature stores.", no_args_is_help=True)

StoreToWrite = Annotated[Path, typer.Argument(metavar="STORE", help="The store to write: a new folder.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace STORE if it is there.")]


@app.callback()
def data() -> None:
    """Pack, plant, inspect, verify and export feature stores."""


@app.command()
def plant(
    store: StoreToWrite,
    videos: Annotated[int, typer.Option(help="Videos of the train split.")] = 1000,
    val_videos: Annotated[
        int | None, typer.Option(help="Videos of the val split.", show_default="an eighth of --videos")
    ] = None,
    test_videos: Annotated[
        int | None, typer.Option(help="Videos of the test split.", show_default="a quarter of --videos")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Chooses the videos and queries; looks and words stay.")
    ] = 0,
    difficulty: Annotated[float, typer.Option(help="How much hides the events: 0 nothing, 1 usual.")] = 1.0,
    polysemous: Annotated[float, typer.Option(help="Share of queries that several videos fit.")] = 0.25,
    underdetermined: Annotated[float, typer.Option(help="Share of generic or garbled queries.")] = 0.15,
    video_width: Annotated[int, typer.Option(help="Width of the frame features.")] = 256,
    text_width: Annotated[int, typer.Option(help="Width of the token features.")] = 192,
    overwrite: Overwrite = False,
) -> None:
    """Make a world with known answers: every query's moment, its kind, and which other videos fit it."""
    from holmes.data.planted import Mix, PlantSettings
    from holmes.data.planted import plant as run

    settings = PlantSettings(
        videos=videos,
        val_videos=max(2, videos // 8) if val_videos is None else val_videos,
        test_videos=max(2, videos // 4) if test_videos is None else test_videos,
        seed=seed,
        difficulty=difficulty,
        video_width=video_width,
        text_width=text_width,
        mix=Mix(polysemous, underdetermined),
    )
    run(store, settings, overwrite, shown=True)
    typer.echo(
        f"planted {store}: {sum(settings.splits.values()):,} videos; see it with 'holmes data info {store}'"
    )
