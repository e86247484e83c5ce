"""From videos to a sharded index: as `holmes.index.builder` does it, written to many shards and sealed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from holmes.cluster.fleet import LocalFleet
from holmes.cluster.generation import Generation
from holmes.cluster.places import Place
from holmes.cluster.shards_manifest import FILE_NAME, read_shards
from holmes.cluster.writer import ShardsWriter
from holmes.cluster.writing import check_count, create_shards, seal_shards
from holmes.errors import HolmesError
from holmes.index.builder import BuildSummary, add_videos, first_manifest
from holmes.index.embedder_protocol import Embedder
from holmes.index.index_manifest import FILE_NAME as INDEX_FILE
from holmes.index.judge import FEWEST_VIDEOS
from holmes.media.extraction import Crew


def build_shards(
    path: Path | str,
    videos: Iterable[Path | str],
    embedder: Embedder,
    count: int,
    *,
    rate: float | None = None,
    fast: bool = False,
    workers: int | None = None,
    progress: bool = False,
    crew: Crew | None = None,
) -> BuildSummary:
    """Make a sharded index of `videos`, or continue one; what is new becomes its next generation."""
    path, videos = Path(path), list(videos)
    check_count(count)
    if (path / INDEX_FILE).exists():
        raise HolmesError(
            f"{path} is a single index; make shards of it: holmes index split {path} SHARDS --shards {count}."
        )
    if not (path / FILE_NAME).exists():
        create_shards(path, first_manifest(videos, embedder, rate), count)
    if (held := len(read_shards(Place(path)).shards)) != count:
        raise HolmesError(f"{path} has {held} shards, not {count}; continue with --shards {held}.")
    summary = add_videos(
        path,
        videos,
        embedder,
        rate=rate,
        fast=fast,
        workers=workers,
        progress=progress,
        crew=crew,
        writer=ShardsWriter,
    )
    shards = seal_shards(path)
    known = shards.calibration is not None and not shards.calibration.get("rough")
    if embedder.calibration is None and not known and shards.videos >= FEWEST_VIDEOS:
        fleet = LocalFleet(Place(path))
        fleet.ready(shards)
        made = Generation(shards, fleet)
        made.embedder = embedder
        seal_shards(path, calibration=made.guess().to_dict())
    return summary
