"""`holmes demo`: render videos, train on them, index and search them, in a few minutes."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holmes.cli.options import say, say_files
from holmes.errors import HolmesError

if TYPE_CHECKING:
    from holmes.config.schema import HolmesConfig

TRAIN_VIDEOS, VAL_VIDEOS, TEST_VIDEOS = 100, 30, 24
SECONDS_PER_SCENE = (2.0, 3.5)
VAGUER = 3  # polysemous sentences for each video, and as many under-determined ones
FRAMES_PER_SECOND = 1.0
PRESET = "small_plus"
SETTINGS = {
    "width": 64,
    "gaussian_widths": "none,1,8",
    "epochs": 24,
    "warm_up_epochs": 8,
    "batch_videos": 32,
    "held_out": 0.1,
    "beta": 0.1,
    "contrastive_cosine": 1.0,
}
SAID = (
    "We found a silver key under the floor of the library.",
    "My grandfather repaired clocks for a living.",
    "The doctor recommends drinking two litres of water.",
)
QUESTION = "someone talks about a key in the library"


class Demo:
    """The folders of the demonstration."""

    def __init__(self, folder: Path) -> None:
        self.world, self.features = folder / "videos", folder / "features"
        self.collection, self.store = folder / "collection", folder / "store"
        self.run, self.base_run = folder / "run", folder / "run-base"
        self.index, self.heard_index = folder / "index", folder / "spoken-index"
        self.spoken = folder / "spoken"


def demo(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to put everything.")] = Path("demo"),
) -> None:
    """Render videos, train on them, evaluate, index and search. Run it again to continue."""
    if folder.exists() and not folder.is_dir():
        raise HolmesError(f"{folder} is a file; name a folder, or one that is to be made.")
    began = time.monotonic()
    parts = Demo(folder)
    steps: list[tuple[str, Callable[[Demo], None]]] = [
        ("render test videos of moving coloured shapes, with captions", render),
        ("extract features of frames and words (holmes extract)", extract_features),
        ("pack the features into a store (holmes data pack)", pack_store),
        ("train Holmes, then the base objective for comparison (holmes train)", train_both),
        ("evaluate both on test videos (holmes evaluate)", evaluate_both),
        ("index the videos (holmes index build)", build),
        ("search with three sentences (holmes search)", ask),
        ("write the report (holmes report)", write_report),
        ("search for spoken words (holmes index build, holmes search)", ask_speech),
    ]
    for number, (what, do) in enumerate(steps, 1):
        with announced(f"[{number}/{len(steps)}] {what}"):
            do(parts)
    say("")
    say(f"Done in {time.monotonic() - began:.0f} s. Now try:")
    holmes = _command()
    for what, command in (
        ("see curves, kinds of query, moments", f"open {parts.run / 'report.html'} in a browser"),
        ("search again", f'{holmes} search {parts.index} "a green circle"'),
        ("index your own videos", f"{holmes} index build INDEX YOUR_VIDEOS"),
        ("train on the field's features", f"{holmes} train STORE --preset activitynet --out RUN"),
        ("search and watch in the browser", f"{holmes} serve {parts.index}"),
    ):
        say(f"  {what}:")
        say(f"      {command}")


def _command() -> str:
    """How to call Holmes here: by its name, or by its path if the name is not found."""
    called = Path(sys.argv[0])
    return "holmes" if shutil.which("holmes") or not called.exists() else os.path.relpath(called)


@contextmanager
def announced(what: str) -> Iterator[None]:
    say("")
    say(what)
    start = time.monotonic()
    yield
    say(f"({time.monotonic() - start:.0f} s)")


def render(parts: Demo) -> None:
    from holmes.worlds.rendered import RenderSettings, render_world

    settings = RenderSettings(TRAIN_VIDEOS, TEST_VIDEOS, VAL_VIDEOS, vaguer=VAGUER, seconds=SECONDS_PER_SCENE)
    world = render_world(parts.world, settings, progress=True)
    seconds = sum(video.duration for video in world.videos)
    say(f"{len(world.videos)} videos, {seconds / 60:.0f} minutes, {len(world.captions)} captions")


def extract_features(parts: Demo) -> None:
    from holmes.media.extraction import extract

    summary = extract([parts.world], parts.features, rate=FRAMES_PER_SECOND, progress=True)
    say_files(summary.partial, summary.failures)


def pack_store(parts: Demo) -> None:
    from holmes.data.pack import Source, pack
    from holmes.media.backbones import load_text
    from holmes.media.collection import write_collection
    from holmes.media.feature_folder import FeatureFolder
    from holmes.worlds.rendered import RenderedWorld, world_captions

    if not parts.collection.exists():
        features = FeatureFolder.open(parts.features)
        sentences = world_captions(RenderedWorld.open(parts.world), features)
        write_collection(parts.collection, "demo", features, sentences, load_text("minilm"), progress=True)
    if not parts.store.exists():
        store = pack(Source(parts.collection), parts.store)
        say(f"{store.info.videos} captioned videos, {store.info.queries} sentences in {parts.store}")


def train_both(parts: Demo) -> None:
    from holmes.config.ablations import BASE_OBJECTIVE
    from holmes.training.run import train

    train(parts.store, settings(), parts.run)
    say("")
    say("Base objective, without the evidential losses:")
    train(parts.store, BASE_OBJECTIVE.apply(settings()), parts.base_run)


def settings() -> HolmesConfig:
    from holmes.config.presets import preset
    from holmes.config.schema import with_changes

    return with_changes(preset(PRESET), SETTINGS)


def evaluate_both(parts: Demo) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Recall on the test videos, %", title_justify="left")
    for column in ("", "R@1", "R@5", "R@10", "SumR", "best clip is inside the moment"):
        table.add_column(column, justify="left" if not column else "right")
    for name, run in (("Holmes", parts.run), ("base objective", parts.base_run)):
        report = evaluated(run)
        figures = [report["metrics"][key] for key in ("R@1", "R@5", "R@10", "SumR")]
        table.add_row(
            name, *(f"{value:.1f}" for value in figures), f"{report['localisation']['clip_hit@1']:.1f}"
        )
    Console().print(table)


def evaluated(run: Path) -> dict[str, Any]:
    from holmes.base.devices import choose_device
    from holmes.evaluation.runs.evaluate import evaluate_run
    from holmes.evaluation.runs.folders import find_runs, store_of

    folder = find_runs(run)[0]
    return evaluate_run(folder, store_of(folder, None), "test", choose_device()).report


def build(parts: Demo) -> None:
    from holmes.index.embedders.loading import load_embedder
    from holmes.index.ingest.builder import build_index

    build_index(
        parts.index, [parts.features], load_embedder(str(parts.run), "lite2", "minilm"), progress=True
    )


def ask(parts: Demo) -> None:
    """Search with one typical sentence of each kind, then count the answers to all of them."""
    from rich.console import Console
    from rich.table import Table

    from holmes.cli.search import search
    from holmes.evidence.kinds import AnswerKind
    from holmes.index.answer.searcher import open_single_index
    from holmes.records import QueryKind
    from holmes.worlds.rendered import RenderedWorld

    captions = RenderedWorld.open(parts.world).captions_of("test")
    tests = f"{escape(os.path.abspath(parts.world))}/test/*"
    table = Table(
        title="All test sentences: their kind (rows) and the answer (columns)", title_justify="left"
    )
    table.add_column("", no_wrap=True)
    for column in ("sentences", *(kind.words for kind in AnswerKind)):
        table.add_column(column, justify="right")
    index = open_single_index(parts.index, device="cpu")
    for kind, name in zip(QueryKind, ("precise", "polysemous", "under-determined"), strict=True):
        of_kind = sorted((c for c in captions if c.kind is kind), key=lambda caption: len(caption.also_fits))
        typical = of_kind[len(of_kind) // 2]
        others = len(typical.also_fits)
        fits = f"true of {others} other{'s' * (others != 1)} too" if others else "true of no other video"
        say("")
        article = "An" if name.startswith("u") else "A"
        say(f'{article} {name} sentence, written for {typical.video}, {fits}: "{typical.text}"')
        search(index=parts.index, sentence=typical.text, top=3, filter=tests)
        answers = index.search_many([caption.text for caption in of_kind], 1, filter=tests)
        said = [answer.diagnosis.kind for answer in answers]
        counts = (said.count(answer_kind.name.lower()) for answer_kind in AnswerKind)
        table.add_row(name, str(len(said)), *map(str, counts))
    say("")
    Console().print(table)


def write_report(parts: Demo) -> None:
    from holmes.cli.report import report

    report(parts.run, compare=parts.base_run)


def ask_speech(parts: Demo) -> None:
    """Search films that look alike, with a sentence that only their speech can answer."""
    from holmes.cli.search import search
    from holmes.heard.hearing import Hearing
    from holmes.index.embedders.loading import load_embedder
    from holmes.index.ingest.builder import build_index

    hearing = Hearing.available()
    if not hearing.speech:
        say("skipped: speech recognition needs more packages: pip install '.[heard]'")
        return
    try:
        films = render_spoken(parts.spoken)
    except HolmesError as error:  # without a voice there is nothing to hear
        say(f"skipped: {error}")
        return
    build_index(parts.heard_index, films, load_embedder("pocket"), progress=True, hearing=hearing)
    say("")
    say(f'{len(films)} films look the same; one of them says it: "{QUESTION}"')
    search(index=parts.heard_index, sentence=QUESTION, top=2)


def render_spoken(folder: Path) -> list[Path]:
    """The spoken films; existing ones are kept."""
    import numpy as np

    from holmes.worlds.rendered.film import SpokenLine, write_spoken_film
    from holmes.worlds.rendered.paint import paint_scene

    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"film{number}.mp4" for number in range(1, len(SAID) + 1)]
    frames = paint_scene("red", "circle", "sea", "left", 36, (192, 144), np.random.default_rng(0))
    for path, sentence in zip(paths, SAID, strict=True):
        if not path.exists():
            part = path.with_suffix(".part.mp4")
            write_spoken_film(part, frames, 6, [SpokenLine(0.3, sentence)])
            part.replace(path)
    return paths
