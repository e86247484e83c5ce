"""The rendered world: video files of moving coloured shapes, with known answers.

    WORLD/world.json          videos, scenes, captions with their moments, kinds and what else they fit
    WORLD/train/*.mp4         videos to learn from, all with captions
    WORLD/val/*.mp4           videos to learn from how sure to be, all with captions; there may be none
    WORLD/test/*.mp4          videos to search; a part of them has captions

The same settings give the same world.
"""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from holmes.base.manifests import FileFormat
from holmes.base.progress import progress_bar
from holmes.data.field_folders import SPLITS
from holmes.errors import HolmesError
from holmes.media.collection import VideoCaption
from holmes.media.feature_folder import FeatureFolder
from holmes.worlds.rendered.film import write_film
from holmes.worlds.rendered.paint import paint_scene
from holmes.worlds.rendered.plan import Caption, RenderSettings, Scene, Video, plan_captions, plan_videos

__all__ = ["Caption", "RenderSettings", "RenderedWorld", "Scene", "Video", "render_world", "world_captions"]

FORMAT = FileFormat("holmes-rendered-world", 2, "a rendered world", "render it again", without_checksum=(1,))


@dataclass(frozen=True)
class WorldRecord:
    """What `world.json` says."""

    settings: dict[str, Any]
    videos: tuple[Video, ...]
    captions: tuple[Caption, ...]


@dataclass(frozen=True)
class RenderedWorld:
    """A rendered world on disk."""

    folder: Path
    videos: tuple[Video, ...]
    captions: tuple[Caption, ...]

    @classmethod
    def open(cls, folder: Path | str) -> RenderedWorld:
        folder = Path(folder)
        record = FORMAT.read(folder / "world.json", WorldRecord)
        return cls(folder, record.videos, record.captions)

    def path(self, video: Video) -> Path:
        return self.folder / video.group / f"{video.id}.mp4"

    def of_group(self, group: str) -> tuple[Video, ...]:
        return tuple(video for video in self.videos if video.group == group)

    def captions_of(self, group: str) -> tuple[Caption, ...]:
        ids = {video.id for video in self.of_group(group)}
        return tuple(caption for caption in self.captions if caption.video in ids)


def render_world(
    folder: Path | str, settings: RenderSettings | None = None, progress: bool = False
) -> RenderedWorld:
    """Render into `folder`, which appears when all is done; a world of the same settings is used as it is."""
    folder, settings = Path(folder), settings or RenderSettings()
    wanted = asdict(settings)
    if folder.exists():
        if (folder / "world.json").exists() and _same(
            FORMAT.read(folder / "world.json", WorldRecord).settings, wanted
        ):
            return RenderedWorld.open(folder)
        raise HolmesError(
            f"{folder} exists and was not rendered with these settings; remove it or choose another folder."
        )
    videos = plan_videos(settings)
    captions = plan_captions(settings, videos)
    growing = folder.with_name(f".{folder.name}.rendering")
    shutil.rmtree(growing, ignore_errors=True)
    for group in {video.group for video in videos}:
        (growing / group).mkdir(parents=True)

    def render(video: Video) -> None:
        _render(video, settings, growing / video.group / f"{video.id}.mp4")

    with (
        progress_bar("rendering videos", len(videos), progress=progress) as advance,
        ThreadPoolExecutor(os.cpu_count()) as pool,
    ):
        for _ in pool.map(render, videos):
            advance(1)
    FORMAT.write(growing / "world.json", asdict(WorldRecord(wanted, tuple(videos), tuple(captions))))
    os.replace(growing, folder)
    return RenderedWorld.open(folder)


def world_captions(world: RenderedWorld, features: FeatureFolder) -> list[VideoCaption]:
    """The rendered world's captions, for the videos that were extracted from it."""
    at = {video.source: video.id for video in features}
    id_of = {video.id: at[path] for video in world.videos if (path := world.path(video).absolute()) in at}
    return [
        VideoCaption(
            video=id_of[caption.video],
            text=caption.text,
            split=group,
            moment=(caption.start, caption.end),
            kind=caption.kind.name.lower(),
            also_fits=tuple(id_of[other] for other in caption.also_fits if other in id_of),
        )
        for group in SPLITS
        for caption in world.captions_of(group)
        if caption.video in id_of
    ]


def _render(video: Video, settings: RenderSettings, path: Path) -> None:
    rng = np.random.default_rng([settings.seed, *f"{video.id} film".encode()])
    films = [
        paint_scene(
            scene.colour,
            scene.shape,
            scene.background,
            scene.motion,
            frames=round((scene.end - scene.start) * settings.frames_per_second),
            size=settings.size,
            rng=rng,
        )
        for scene in video.scenes
    ]
    write_film(path, np.concatenate(films), settings.frames_per_second)


def _same(recorded: Any, wanted: dict[str, Any]) -> bool:
    """JSON has no tuples."""
    return isinstance(recorded, dict) and recorded == {
        name: list(value) if isinstance(value, tuple) else value for name, value in wanted.items()
    }
