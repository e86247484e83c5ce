"""Do pictures, --not and --then find more than the sentence alone? On rendered videos with known scenes.

    python benchmarks/queries.py [--work FOLDER] [--videos N]

Two models are asked: the pocket model as it ships, and one trained as `holmes demo` did before InfoNCE.
Sentences name the colour and the shape of a scene, so that several videos fit; a picture comes from a
training video. The weight of --not was chosen on the training videos; the figures are of the test videos.
Intervals are 95%, over videos.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from common import by_group, print_table, save_json, work_folder

from holmes.cli.demo import Demo, pack_store, settings
from holmes.config.schema import with_changes
from holmes.index.answer import composed
from holmes.index.answer.answers import Hit
from holmes.index.answer.composed import Clip, ComposedQuery, answer_composed, find_composed
from holmes.index.answer.searcher import Index, open_single_index
from holmes.index.embedders.loading import load_embedder
from holmes.index.ingest.builder import build_index
from holmes.media.extraction import extract
from holmes.media.reader import VideoReader
from holmes.training.run import RunOptions, train
from holmes.worlds.rendered import RenderedWorld, RenderSettings, Scene, Video, render_world
from holmes.worlds.rendered.scene_words import BACKGROUNDS

RATE = 1.0  # frames per second, as in the demo
TOP = 5
LEAVE_OUT = composed.LEAVE_OUT  # as it is shipped
QUERIES = 100  # of each kind
WEIGHTS = (0.25, 0.5, 1.0, 2.0)  # of what is to be left out
Truth = Callable[[Video], bool]


def prepare(folder: Path, videos: int) -> tuple[RenderedWorld, dict[str, Index]]:
    """The world, and an index of all its videos with each model."""
    parts = Demo(folder)
    world = render_world(
        parts.world, RenderSettings(100, videos, 30, vaguer=3, seconds=(2.0, 3.5)), progress=True
    )
    extract([parts.world], parts.features, rate=RATE, progress=True)
    pack_store(parts)
    config = with_changes(settings(), {"contrastive_cosine": 0})  # as the demonstration trained before
    train(parts.store, config, parts.run, options=RunOptions(progress=False))
    trained, pocket = load_embedder(str(parts.run), "lite2", "minilm"), load_embedder("pocket")
    build_index(folder / "trained", [parts.features], trained, progress=True)
    build_index(folder / "pocket", [parts.world], pocket, rate=RATE, progress=True)
    return world, {
        "pocket": open_single_index(folder / "pocket", device="cpu", model=pocket),
        "trained": open_single_index(folder / "trained", device="cpu", model=trained),
    }


class Asked:
    """One model asked about one group of videos."""

    def __init__(self, index: Index, world: RenderedWorld, group: str) -> None:
        self.index, self.world = index, world
        self.videos = world.of_group(group)
        self.by_id = {video.id: video for video in self.videos}
        names = [name for name in index.videos if Path(name).parent.name == group]
        self.allowed_S = index.parts_of(names)

    def __call__(self, query: ComposedQuery, top: int = TOP) -> list[Video]:
        found = find_composed(self.index, query, top, self.allowed_S)
        return [self.by_id[Path(hit.video.name).stem] for hit in found]

    def within(self, query: ComposedQuery, video: Video) -> Hit:
        """The hit of one video, wherever it ranks."""
        (name,) = (name for name in self.index.videos if Path(name).stem == video.id)
        return answer_composed(self.index, query, 1, self.index.parts_of([name])).hits[0]

    def first(self, query: ComposedQuery, fits: Truth) -> float:
        """Whether the first hit is right."""
        return float(fits(self(query, 1)[0]))

    def precision(self, query: ComposedQuery, fits: Truth) -> float:
        """The share of the first hits that are right."""
        return float(np.mean([fits(video) for video in self(query)]))


def named(scene: Scene) -> str:
    return f"there is a {scene.colour} {scene.shape}"


def shows(scene: Scene, like: Scene, *attributes: str) -> bool:
    return all(getattr(scene, name) == getattr(like, name) for name in attributes)


def scenes_of(ask: Asked, seed: int = 0) -> list[tuple[Video, int]]:
    """One scene of each video that is not its last, and the video."""
    rng = np.random.default_rng(seed)
    return [(video, int(rng.integers(len(video.scenes) - 1))) for video in ask.videos[:QUERIES]]


def leaving_out(ask: Asked, weight: float, only_not: bool = False) -> dict[str, list[float]]:
    """Precision of the first hits for "a red circle", and for it without one of the places it is seen at."""
    found: dict[str, list[float]] = {
        "the sentence alone": [],
        "with 'but not …'": [],
        "--not": [],
    }
    composed.LEAVE_OUT = weight
    composed.LEAVE_OUT = weight
    for video, number in scenes_of(ask):
        wanted = video.scenes[number]
        places = [
            scene.background
            for other in ask.videos
            for scene in other.scenes
            if shows(scene, wanted, "colour", "shape") and scene.background != wanted.background
        ]
        if not places:
            continue
        place = places[0]

        def fits(other: Video, wanted: Scene = wanted, place: str = place) -> bool:
            seen = [scene for scene in other.scenes if shows(scene, wanted, "colour", "shape")]
            return any(scene.background != place for scene in seen)

        words = BACKGROUNDS[place][0]
        left = ComposedQuery(named(wanted), leave_out=(f"something can be seen {words}",))
        found["--not"].append(ask.precision(left, fits))
        if only_not:
            continue
        found["the sentence alone"].append(ask.precision(ComposedQuery(named(wanted)), fits))
        worded = ComposedQuery(f"{named(wanted)}, but not {words}")
        found["with 'but not …'"].append(ask.precision(worded, fits))
    return found


def in_order(ask: Asked) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Whether the first hit shows both in this order; and how well its moment covers both."""
    first: dict[str, list[float]] = {"the sentence alone": [], "both in one sentence": [], "--then": []}
    overlap: dict[str, list[float]] = {name: [] for name in first}
    for video, number in scenes_of(ask):
        one, other = video.scenes[number], video.scenes[number + 1]

        def fits(shown: Video, one: Scene = one, other: Scene = other) -> bool:
            at = [n for n, scene in enumerate(shown.scenes) if shows(scene, one, "colour", "shape")]
            after = [n for n, scene in enumerate(shown.scenes) if shows(scene, other, "colour", "shape")]
            return bool(at and after) and min(at) < max(after)

        queries = {
            "the sentence alone": ComposedQuery(named(one)),
            "both in one sentence": ComposedQuery(f"{named(one)}, then a {other.colour} {other.shape}"),
            "--then": ComposedQuery(named(one), then=named(other)),
        }
        for name, query in queries.items():
            first[name].append(ask.first(query, fits))
            moment = ask.within(query, video).moments[0]
            overlap[name].append(iou(moment.start, moment.end, one.start, other.end))
    return first, overlap


def iou(start: float, end: float, true_start: float, true_end: float) -> float:
    inside = max(0.0, min(end, true_end) - max(start, true_start))
    return inside / (max(end, true_end) - min(start, true_start))


def pictures(ask: Asked) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """A picture of the same scene elsewhere; and a picture of the place with a sentence about the thing."""
    same: dict[str, list[float]] = {"the sentence alone": [], "a picture": []}
    both: dict[str, list[float]] = {
        "the sentence alone": [],
        "a picture alone": [],
        "a picture and a sentence": [],
    }
    train_scenes = [(video, scene) for video in ask.world.of_group("train") for scene in video.scenes]
    for video, number in scenes_of(ask):
        wanted = video.scenes[number]
        everything = ("colour", "shape", "background")

        def fits(other: Video, wanted: Scene = wanted) -> bool:
            return any(shows(scene, wanted, "colour", "shape", "background") for scene in other.scenes)

        alike = [pair for pair in train_scenes if shows(pair[1], wanted, *everything)]
        sentence = f"a {wanted.colour} {wanted.shape} {BACKGROUNDS[wanted.background][0]}"
        if alike:
            image = picture_of(ask.world, *alike[0])
            same["the sentence alone"].append(ask.first(ComposedQuery(sentence), fits))
            same["a picture"].append(ask.first(ComposedQuery(pictures=(image,)), fits))
        place = [
            pair
            for pair in train_scenes
            if pair[1].background == wanted.background and pair[1].colour != wanted.colour
        ]
        if place:
            image = picture_of(ask.world, *place[number % len(place)])
            only = ComposedQuery(named(wanted))
            both["the sentence alone"].append(ask.first(only, fits))
            both["a picture alone"].append(ask.first(ComposedQuery(pictures=(image,)), fits))
            both["a picture and a sentence"].append(ask.first(replace(only, pictures=(image,)), fits))
    return same, both


def picture_of(world: RenderedWorld, video: Video, scene: Scene) -> np.ndarray:
    middle = (scene.start + scene.end) / 2
    return np.asarray(VideoReader(world.path(video), 1.0, largest_side=512).at(middle))


def clips(ask: Asked) -> dict[str, list[float]]:
    """--like: a clip of a training video finds a test video with the same scene."""
    found: dict[str, list[float]] = {"the sentence alone": [], "--like": []}
    names = {Path(name).stem: name for name in ask.index.videos}
    train_scenes = [(video, scene) for video in ask.world.of_group("train") for scene in video.scenes]
    for video, number in scenes_of(ask):
        wanted = video.scenes[number]

        def fits(other: Video, wanted: Scene = wanted) -> bool:
            return any(shows(scene, wanted, "colour", "shape", "background") for scene in other.scenes)

        alike = [p for p in train_scenes if shows(p[1], wanted, "colour", "shape", "background")]
        if alike:
            source, scene = alike[0]
            sentence = f"a {wanted.colour} {wanted.shape} {BACKGROUNDS[wanted.background][0]}"
            found["the sentence alone"].append(ask.first(ComposedQuery(sentence), fits))
            clip = ComposedQuery(clip=Clip(names[source.id], scene.start, scene.end))
            found["--like"].append(ask.first(clip, fits))
    return found


def rows_of(model: str, what: str, found: dict[str, list[float]]) -> list[dict[str, Any]]:
    base = np.array(next(iter(found.values())))
    rows = []
    for name, values in found.items():
        groups = np.arange(len(values))
        mean, off = by_group(np.array(values), groups)
        gain, gain_off = by_group(np.array(values) - base, groups)
        gained = "" if name == "the sentence alone" else f"{100 * gain:+.1f} ± {100 * gain_off:.1f}"
        rows.append(
            {
                "model": model, "what": what, "query": name, "queries": len(values),
                "percent": f"{100 * mean:.1f} ± {100 * off:.1f}", "gain": gained,
            }
        )  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, help="keep videos, models and indexes here")
    parser.add_argument("--videos", type=int, default=120, help="test videos (%(default)s)")
    parser.add_argument("--only-not", action="store_true", help="only what --not gains")
    parser.add_argument("--model", help="only pocket, or only trained")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/queries.json"))
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with work_folder(options.work) as folder:
        world, indexes = prepare(folder, options.videos)
        for model, index in indexes.items():
            if options.model not in (None, model):
                continue
            tuned, ask = Asked(index, world, "train"), Asked(index, world, "test")
            by_weight = {each: float(np.mean(leaving_out(tuned, each, True)["--not"])) for each in WEIGHTS}
            print(model, "--not on training videos by weight:", by_weight, flush=True)
            composed.LEAVE_OUT = LEAVE_OUT
            rows += rows_of(model, "--not: right among the first 5", leaving_out(ask, LEAVE_OUT))
            if options.only_not:
                continue
            first, overlap = in_order(ask)
            rows += rows_of(model, "--then: first hit right", first)
            rows += rows_of(model, "--then: overlap of the moment", overlap)
            same, both = pictures(ask)
            rows += rows_of(model, "--image: first hit right", same)
            rows += rows_of(model, "picture and sentence: first hit right", both)
            rows += rows_of(model, "--like: first hit right", clips(ask))
            print_table(f"So far, {model}", rows)
    print_table("Queries of more than a sentence, on rendered videos", rows)
    save_json(options.json, rows)


if __name__ == "__main__":
    main()
