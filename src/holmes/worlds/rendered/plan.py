"""Plan the scenes and captions of every video of the rendered world, from the seed."""

from __future__ import annotations

from dataclasses import dataclass, field
from string import Formatter
from typing import Annotated, TypeVar

import numpy as np

from holmes.base.validation import Matching, PlainName
from holmes.errors import HolmesError
from holmes.records import QueryKind
from holmes.worlds.rendered import scene_words

T = TypeVar("T")
VAGUE_SHARE = 0.25  # a caption that fits more of its group than this is under-determined
ATTRIBUTES = ("colour", "shape", "background")  # what can be seen in one frame


@dataclass(frozen=True)
class RenderSettings:
    train_videos: int = 56
    test_videos: int = 32
    val_videos: int = 0  # videos to calibrate on; none by default
    captioned: float = 0.75  # share of the test videos that have captions; the others can only be found
    vaguer: int = 1  # sentences for every video that several fit, and as many that say too little
    scenes: tuple[int, int] = (3, 5)  # fewest and most scenes in a video
    seconds: tuple[float, float] = (3.0, 6.0)  # shortest and longest scene
    size: tuple[int, int] = (192, 144)  # width, height
    frames_per_second: int = 6
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.train_videos, self.test_videos) < 2:
            raise HolmesError("a rendered world needs at least 2 videos in each group.")
        if self.val_videos < 0 or self.val_videos == 1:
            raise HolmesError(f"val_videos is {self.val_videos}; it is 0, or at least 2.")
        if not 0 < self.captioned <= 1:
            raise HolmesError(f"captioned is {self.captioned:g}; it is a share, above 0 and at most 1.")


@dataclass(frozen=True)
class Scene:
    start: float  # seconds
    end: float
    colour: str
    shape: str
    background: str
    motion: str


@dataclass(frozen=True)
class Video:
    id: PlainName
    group: Annotated[str, Matching("train|val|test", "train, val or test")]
    scenes: tuple[Scene, ...]
    captioned: bool

    def __post_init__(self) -> None:
        if not self.scenes:
            raise HolmesError(f"video {self.id} has no scenes.")

    @property
    def duration(self) -> float:
        return self.scenes[-1].end


@dataclass(frozen=True)
class Caption:
    id: str
    video: str
    text: str
    start: float  # seconds: the scene it was written for
    end: float
    kind: QueryKind
    also_fits: tuple[str, ...] = field(default=())  # other videos of the group it is true of


def plan_videos(settings: RenderSettings) -> list[Video]:
    videos = []
    counts = {"train": settings.train_videos, "val": settings.val_videos, "test": settings.test_videos}
    for group, count in counts.items():
        rng = np.random.default_rng([settings.seed, *group.encode()])
        appearances = _appearances(rng)
        for number in range(count):
            captioned = group != "test" or number < round(settings.captioned * count)
            videos.append(
                Video(f"{group}{number:03d}", group, _scenes(settings, appearances, rng), captioned)
            )
    return videos


def plan_captions(settings: RenderSettings, videos: list[Video]) -> list[Caption]:
    """Two full descriptions of every scene of a captioned video, and vaguer ones of the video."""
    captions: list[Caption] = []
    for video in videos:
        if not video.captioned:
            continue
        rng = np.random.default_rng([settings.seed, *f"{video.id} captions".encode()])
        others = [other for other in videos if other.group == video.group]
        templates = [(scene, t) for scene in video.scenes for t in _some(rng, scene_words.PRECISE, 2)]
        for _ in range(settings.vaguer):
            templates += [(_one(rng, video.scenes), _one(rng, scene_words.POLYSEMOUS))]
            templates += [(_one(rng, video.scenes), _one(rng, scene_words.UNDERDETERMINED))]
        told = [
            _caption(f"{video.id}#enc#{number}", video, scene, template, others, rng)
            for number, (scene, template) in enumerate(templates)
        ]
        captions += {caption.text: caption for caption in told}.values()
    return captions


def _caption(
    id: str, video: Video, scene: Scene, template: str, group: list[Video], rng: np.random.Generator
) -> Caption:
    named = {name for _, name, _, _ in Formatter().parse(template) if name}
    text = template.format(
        colour=scene.colour,
        shape=_one(rng, scene_words.SHAPES[scene.shape]),
        background=_one(rng, scene_words.BACKGROUNDS[scene.background]),
        motion=_one(rng, scene_words.MOTIONS[scene.motion]),
    )
    seen = named & set(ATTRIBUTES)
    fits = [
        other.id
        for other in group
        if any(all(getattr(s, name) == getattr(scene, name) for name in seen) for s in other.scenes)
    ]
    if len(fits) == 1:
        kind = QueryKind.PRECISE
    else:
        vague = len(fits) > VAGUE_SHARE * len(group)
        kind = QueryKind.UNDERDETERMINED if vague else QueryKind.POLYSEMOUS
    also_fits = tuple(other for other in fits if other != video.id)
    return Caption(id, video.id, text, scene.start, scene.end, kind, also_fits)


def _scenes(
    settings: RenderSettings, appearances: list[tuple[str, str, str]], rng: np.random.Generator
) -> tuple[Scene, ...]:
    scenes, start = [], 0.0
    for _ in range(rng.integers(settings.scenes[0], settings.scenes[1] + 1)):
        # Whole frames, so that the cut lies where the caption says.
        frames = round(rng.uniform(*settings.seconds) * settings.frames_per_second)
        end = start + frames / settings.frames_per_second
        if not appearances:
            appearances.extend(_appearances(rng))
        scenes.append(Scene(start, end, *appearances.pop(), _one(rng, tuple(scene_words.MOTIONS))))
        start = end
    return tuple(scenes)


def _appearances(rng: np.random.Generator) -> list[tuple[str, str, str]]:
    """Every colour with every shape on every background, once, in random order: few scenes look the same."""
    appearances = [
        (c, s, b) for c in scene_words.COLOURS for s in scene_words.SHAPES for b in scene_words.BACKGROUNDS
    ]
    return [appearances[i] for i in rng.permutation(len(appearances))]


def _one(rng: np.random.Generator, choices: tuple[T, ...]) -> T:
    return choices[rng.integers(len(choices))]


def _some(rng: np.random.Generator, choices: tuple[T, ...], count: int) -> list[T]:
    return [choices[i] for i in rng.permutation(len(choices))[:count]]
