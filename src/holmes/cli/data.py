"""`holmes data`: pack, plant, inspect, verify and export stores."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holmes.base.printing import printable
from holmes.cli.options import StoreToRead, TestShare

if TYPE_CHECKING:
    from holmes.data.store import Store

app = typer.Typer(
    help="Make, inspect, verify and export stores: captioned videos as features.", no_args_is_help=True
)

StoreToWrite = Annotated[Path, typer.Argument(metavar="STORE", help="The store to write: a new folder.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace STORE if it exists.")]


@app.callback()
def data() -> None:
    """Make, inspect, verify and export stores: captioned videos as features."""


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
        int, typer.Option(min=0, help="Chooses the videos and queries; appearances and words stay the same.")
    ] = 0,
    difficulty: Annotated[float, typer.Option(help="How hard events are to recognise: 0 is easiest.")] = 1.0,
    polysemous: Annotated[float, typer.Option(help="Share of queries that fit several videos.")] = 0.25,
    underdetermined: Annotated[float, typer.Option(help="Share of generic or garbled queries.")] = 0.15,
    video_width: Annotated[int, typer.Option(help="Width of the frame features.")] = 256,
    text_width: Annotated[int, typer.Option(help="Width of the token features.")] = 192,
    overwrite: Overwrite = False,
) -> None:
    """Generate a collection with known answers: each query's moment, kind, and all videos that fit."""
    from holmes.worlds.planted import Mix, PlantSettings
    from holmes.worlds.planted import plant as run

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
    run(store, settings, overwrite, progress=True)
    videos = sum(settings.splits.values())
    typer.echo(printable(f"planted {store}: {videos:,} videos; see it with 'holmes data info {store}'"))


@app.command()
def pack(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="A folder with TextData and FeatureData (MS-SL layout).")
    ],
    store: StoreToWrite,
    visual: Annotated[str | None, typer.Option(help="The visual feature set, if there are several.")] = None,
    text: Annotated[str | None, typer.Option(help="The text feature file, if there are several.")] = None,
    collection: Annotated[str | None, typer.Option(help="The collection, if there are several.")] = None,
    annotations: Annotated[
        list[Path] | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="Moments: ActivityNet JSON, Charades-STA text and CSV, TVR JSON lines. Repeatable.",
        ),
    ] = None,
    rows_per_second: Annotated[
        float | None,
        typer.Option(min=1e-6, help="Feature rows per second, from which unknown durations follow."),
    ] = None,
    frames: Annotated[
        int, typer.Option(min=1, max=1 << 14, help="Longer videos are pooled to this many frames.")
    ] = 128,
    clips: Annotated[
        int, typer.Option(min=1, max=1 << 14, help="Every video is pooled to this many clips.")
    ] = 32,
    tokens: Annotated[
        int, typer.Option(min=1, max=1 << 14, help="Longer queries are cut to this many tokens.")
    ] = 30,
    overwrite: Overwrite = False,
) -> None:
    """Pack a feature folder (MS-SL layout) into a store; run it again to continue."""
    from holmes.data.pack import Source
    from holmes.data.pack import pack as run

    where = Source(
        source,
        collection,
        visual,
        text,
        tuple(annotations or ()),
        rows_per_second,
        frames,
        clips,
        tokens,
    )
    packed = run(where, store, overwrite, progress=True)
    print_summary(packed)


@app.command()
def caption(
    features: Annotated[
        Path, typer.Argument(metavar="FEATURES", help="What 'holmes extract' made of your videos.")
    ],
    captions: Annotated[
        Path,
        typer.Argument(
            metavar="CAPTIONS",
            help="A CSV with a header, or JSONL: video, sentence; where known split, start, end (seconds).",
        ),
    ],
    store: StoreToWrite,
    text: Annotated[str, typer.Option(help="The encoder of the sentences.")] = "minilm",
    test_share: TestShare = 0.2,
    folder: Annotated[
        Path | None, typer.Option(help="Keep the feature folder (MS-SL layout) too, for other codebases.")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Make a store of your own videos and the sentences about them, to train on."""
    from holmes.media.backbones import load_text
    from holmes.media.feature_folder import FeatureFolder
    from holmes.media.own_captions import caption_videos

    made = caption_videos(
        captions,
        FeatureFolder.open(features),
        store,
        load_text(text),
        folder=folder,
        test_share=test_share,
        overwrite=overwrite,
        progress=True,
    )
    print_summary(made.store)
    if made.drawn_for_test is not None:
        typer.echo(f"no row has a split: {made.drawn_for_test} videos were kept for testing")


@app.command()
def info(store: StoreToRead) -> None:
    """Print what a store contains."""
    from holmes.data.store import Store

    print_summary(Store.open(store))


@app.command()
def check(store: StoreToRead) -> None:
    """Verify a store: every byte, and the rules of its format."""
    from holmes.data.check import check_store
    from holmes.data.store import Store

    check_store(Store.open(store), progress=True)
    typer.echo(printable(f"{store} is intact."))


@app.command()
def export(
    store: StoreToRead,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder to write: a new one.")],
) -> None:
    """Write a store as an MS-SL folder (HDF5), for other codebases."""
    from holmes.data.export import export_store
    from holmes.data.store import Store

    export_store(Store.open(store), folder, progress=True)
    typer.echo(printable(f"exported {store} to {folder}"))


def print_summary(store: Store) -> None:
    from rich.console import Console

    from holmes.data.summary import summary_tables

    console = Console(highlight=False)
    for table in summary_tables(store):
        console.print(table)
