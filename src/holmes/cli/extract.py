"""`holmes extract`: features from video files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holmes.cli.options import Fast, RayAddress, VideoFiles, Workers, counted, say, say_files


def extract(
    videos: VideoFiles,
    out: Annotated[Path, typer.Option("--out", help="The feature folder: a new one, or one to continue.")],
    backbone: Annotated[
        str,
        typer.Option(
            "--model",
            "--backbone",
            metavar="NAME",
            help="The encoder: lite2, i3d, timm:NAME, torchvision:NAME, or a joint one ('holmes models').",
        ),
    ] = "lite2",
    rate: Annotated[
        float | None, typer.Option(help="Samples per second.", show_default="the encoder's own, 2 for images")
    ] = None,
    fast: Fast = False,
    workers: Workers = None,
    ray: RayAddress = None,
) -> None:
    """Turn videos into features, one file per video; run it again to continue.

    A file that cannot be read is left out and listed with the reason; the exit code is then 1. One that
    can be read in part is kept, and listed too.
    """
    from holmes.media.extraction import extract as run

    executor = None
    if ray is not None:
        from holmes.cluster.extract import executor_at

        executor = executor_at(ray)
    summary = run(
        videos, out, backbone, rate=rate, fast=fast, workers=workers, progress=True, executor=executor
    )
    say_files(summary.partial, summary.failures)
    say(
        f"{counted(len(summary.extracted), 'video')} extracted in {summary.seconds:.0f} s, "
        f"{len(summary.reused)} already there, {len(summary.failures)} failed: {out}"
    )
    if summary.failures:
        raise typer.Exit(1)
