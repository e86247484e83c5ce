"""Generate a planted world as a store, with train, val and test splits."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from holmes.base.progress import progress_bar
from holmes.data.pooling import unit_rows, video_clips, video_frames
from holmes.data.writer import Catalogue, StoreWriter
from holmes.errors import HolmesError
from holmes.records import FRAMES, TOKENS
from holmes.worlds.planted.language import Dictionary, tell, token_vectors, words
from holmes.worlds.planted.scenery import Disturbance, FeatureMap, film
from holmes.worlds.planted.world import Mix, WorldPlan, plan_world

CHUNK_VIDEOS = 256
CHUNK_QUERIES = 4096
FRAMES_PER_SECOND = 2.0
VERSION = 1  # of the generator: the same version and settings give the same bytes


@dataclass(frozen=True)
class PlantSettings:
    videos: int = 1000  # for training
    val_videos: int = 125
    test_videos: int = 250
    seed: int = 0
    difficulty: float = 1.0  # 0: nothing hides the events
    video_width: int = 256
    text_width: int = 192
    mix: Mix = field(default_factory=Mix)

    def __post_init__(self) -> None:
        for name in ("videos", "val_videos", "test_videos"):
            if getattr(self, name) < 2:
                raise HolmesError(
                    f"{name.replace('_', '-')} is {getattr(self, name)}; a split needs at least 2 videos."
                )
        if min(self.video_width, self.text_width) < 8:
            raise HolmesError(
                f"widths are {self.video_width} and {self.text_width}; they must be at least 8."
            )
        if not 0 <= self.difficulty <= 10:
            raise HolmesError(
                f"difficulty is {self.difficulty}; it must be between 0 and 10 (1 is the default)."
            )
        shares = (self.mix.polysemous, self.mix.underdetermined)
        if not (min(shares) >= 0 and sum(shares) <= 1):  # also refuses NaN, for which no comparison holds
            raise HolmesError(
                f"shares of polysemous and under-determined queries are {shares[0]} and {shares[1]}; "
                "they must not be negative, nor exceed 1 together."
            )

    @property
    def splits(self) -> dict[str, int]:
        return {"train": self.videos, "val": self.val_videos, "test": self.test_videos}


def plant(target: Path, settings: PlantSettings, overwrite: bool = False, progress: bool = False) -> None:
    """Write the world as a store; `progress` draws a progress bar."""
    plans = {
        name: plan_world(videos, settings.mix, generator(settings, name, "plan"))
        for name, videos in settings.splits.items()
    }
    captions = {name: tell(plan, generator(settings, name, "tell")) for name, plan in plans.items()}
    feature_map, dictionary = FeatureMap(settings.video_width), Dictionary(settings.text_width)
    disturbance = Disturbance().times(settings.difficulty)
    recipe = {"planted": asdict(settings), "generator": VERSION}
    with (
        StoreWriter(target, recipe, overwrite) as writer,
        progress_bar("planting videos", sum(settings.splits.values()), progress=progress) as advance,
    ):
        told, widths = catalogue(plans, captions), (settings.video_width, settings.text_width)
        writer.start(told, *widths, from_the_beginning=True)  # random numbers depend on all earlier videos
        for name, plan in plans.items():
            rng = generator(settings, name, "film")
            for first in range(0, settings.splits[name], CHUNK_VIDEOS):
                last = min(first + CHUNK_VIDEOS, settings.splits[name])
                rows = film(plan, first, last, feature_map, disturbance, rng)
                videos = np.split(rows, np.cumsum(plan.frame_counts_V[first:last])[:-1])
                frames = np.concatenate([video_frames(video) for video in videos])
                writer.add_videos(frames, np.stack([video_clips(video) for video in videos]))
                advance(last - first)
        for name in plans:
            rng = generator(settings, name, "speak")
            for first in range(0, len(captions[name]), CHUNK_QUERIES):
                some = captions[name][first : first + CHUNK_QUERIES]
                rows, lengths_Q = token_vectors(some, dictionary, settings.difficulty, rng)
                assert lengths_Q.max() <= TOKENS
                writer.add_queries(unit_rows(rows), len(some))
        writer.finish(recipe)


def generator(settings: PlantSettings, split: str, purpose: str) -> np.random.Generator:
    """A random stream for each split and purpose: changing one leaves the others as they are."""
    return np.random.default_rng([settings.seed, *f"{split} {purpose}".encode()])


def catalogue(plans: dict[str, WorldPlan], captions: dict[str, list[str]]) -> Catalogue:
    """The splits one after the other in one store."""
    video_ids: list[str] = []
    query_ids: list[str] = []
    splits, also_fits = {}, dict[int, list[int]]()
    for name, plan in plans.items():
        first_video, first_query = len(video_ids), len(query_ids)
        video_ids += [f"planted_{name}{video:05d}" for video in range(len(plan.frame_counts_V))]
        numbers: dict[int, int] = {}
        for video in plan.query_video_Q.tolist():
            numbers[video] = numbers.get(video, -1) + 1
            query_ids.append(f"{video_ids[first_video + video]}#enc#{numbers[video]}")
        also_fits |= {
            first_query + q: [first_video + v for v in others] for q, others in plan.also_fits.items()
        }
        splits[name] = (np.arange(first_video, len(video_ids)), np.arange(first_query, len(query_ids)))
    every = list(plans.values())
    first_V = np.cumsum([0] + [len(plan.frame_counts_V) for plan in every])
    frame_counts_V = np.concatenate([plan.frame_counts_V for plan in every])
    telling = [caption for name in plans for caption in captions[name]]
    return Catalogue(
        collection="planted",
        visual="planted",
        text="planted",
        video_ids=video_ids,
        query_ids=query_ids,
        captions=telling,
        owner_Q=np.concatenate(
            [plan.query_video_Q + first for plan, first in zip(every, first_V, strict=False)]
        ),
        frame_lengths_V=np.minimum(frame_counts_V, FRAMES),
        token_lengths_Q=np.array([len(words(caption)) for caption in telling]),
        splits=splits,
        moments_Q2=np.concatenate([moments(plan) for plan in every]),
        durations_V=(frame_counts_V / FRAMES_PER_SECOND).astype(np.float32),
        kinds_Q=np.concatenate([plan.kinds_Q for plan in every]),
        also_fits=also_fits,
    )


def moments(plan: WorldPlan) -> NDArray[np.float32]:
    """Start and end of each query's event as fractions of its video."""
    bounds_E2 = np.stack([plan.event_start_E, plan.event_end_E], axis=1)
    fractions_Q2 = bounds_E2[plan.query_event_Q] / plan.frame_counts_V[plan.query_video_Q][:, None]
    return fractions_Q2.astype(np.float32)
