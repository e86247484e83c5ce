"""The public functions: train, evaluate and compare models; build an index; find a moment in one file.

`import holmes` offers them together with the types that they take and return. Imports stay inside the
functions, so a program loads only what it uses.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from holmes.errors import HolmesError
from holmes.results import (
    ComparisonReport,
    Epoch,
    Evaluation,
    TrainingResult,
    comparison_of,
    evaluation_of,
    record_of,
)

if TYPE_CHECKING:
    from holmes.config.schema import HolmesConfig
    from holmes.data.store import Store
    from holmes.encoders.checkpoint import Checkpoint
    from holmes.index.embedders.loading import Model
    from holmes.index.ingest.builder import BuildSummary
    from holmes.moments import Moment
    from holmes.training.protocol import Protocol
    from holmes.training.run import RunOptions
    from holmes.training.tuning.search import Tuned


def open_store(path: Path | str) -> Store:
    """Open a packed collection of features and captions, as `holmes data pack` writes it.

    Example:
        >>> store = holmes.open_store("STORE")
        >>> len(store.split("test").queries)
        37
    """
    from holmes.data.store import Store

    return Store.open(path)


def train(
    store: Store | Path | str,
    config: HolmesConfig,
    out: Path | str,
    seed: int = 0,
    protocol: Protocol | str = "honest",
    options: RunOptions | None = None,
    on_epoch: Callable[[Epoch], None] | None = None,
    start: Path | str | None = None,
) -> TrainingResult:
    """Train on a store, select the best epoch by the protocol, and return its figures on the test split.

    The same call continues a run that was stopped, and returns the result of one that is finished.

    Args:
        store: A packed store, or its path.
        config: Settings, such as `holmes.preset("activitynet").with_changes(epochs=50)`.
        out: The folder of the run: a new one, or one to continue.
        seed: Decides the initial weights, the batches, and which videos are held out.
        protocol: "honest" selects on a held-out part of the train split, "published" on the test split
            itself, as the papers of the field do.
        options: Device, kernels, progress display; none of these changes the result beyond rounding.
        on_epoch: Called after every epoch. An exception that it raises stops the run, which can be continued.
        start: A checkpoint, run or hub:NAME whose weights training starts from; its shape replaces the
            settings' own.

    Example:
        >>> config = holmes.preset("small").with_changes(epochs=1, width=16)
        >>> options = holmes.RunOptions(device="cpu", progress=False)
        >>> result = holmes.train("STORE", config, "NEW_RUN", options=options)
        >>> result.epochs_done
        1
        >>> sorted(result.metrics)
        ['R@1', 'R@10', 'R@100', 'R@5', 'SumR']
    """
    from holmes.training.run import RunOptions
    from holmes.training.run import train as run

    heard = None if on_epoch is None else (lambda entry: on_epoch(record_of(Epoch, entry)))
    return run(store, config, out, seed, protocol, options or RunOptions(), heard, start)


def tune(
    store: Store | Path | str,
    config: HolmesConfig,
    out: Path | str,
    *,
    trials: int = 60,
    minutes: float | None = None,
    jobs: int = 0,
    seeds: Sequence[int] = (0,),
    fixed: Iterable[str] = (),
    worth: bool = True,
    options: RunOptions | None = None,
    ray: str | None = None,
) -> Tuned:
    """Search the settings that suit a store on held-out training videos, then train and test them once.

    The same call continues a search that was stopped. `holmes.preset(f"{out}/best.json")` are the settings.

    Args:
        store: A packed store, or its path.
        config: Settings to start from, such as `holmes.preset("charades_plus")`.
        out: The folder of the search: a new one, or one to continue.
        trials: How many settings to try.
        minutes: Stop searching after this long; the final runs come after it.
        jobs: How many trials to train at once; 0 takes as many as fit.
        seeds: Seeds of the final runs; none ends with the search.
        fixed: Names of settings that are not searched, such as "dropout".
        worth: Whether to measure what each setting of the best trial is worth.
        options: Device, kernels, progress display.
        ray: Train the trials on a Ray cluster: HOST:PORT of its head, auto, or local.

    Example:
        >>> config = holmes.preset("small_plus").with_changes(epochs=1, width=16)
        >>> options = holmes.RunOptions(device="cpu", progress=False)
        >>> found = holmes.tune("STORE", config, "TUNED", trials=1, seeds=(), worth=False, options=options)
        >>> len(found.best.sums)
        4
        >>> holmes.preset("TUNED/best.json") == found.config
        True
    """
    from functools import partial

    from holmes.training.run import RunOptions
    from holmes.training.tuning.search import tune as search
    from holmes.training.tuning.trials import WORKER

    runner = None
    if ray is not None:
        from holmes.cluster.jobs import jobs_at_once, run_jobs_at

        jobs, runner = jobs or jobs_at_once(ray), partial(run_jobs_at, ray, WORKER)
    return search(
        store, config, out, trials=trials, minutes=minutes, jobs=jobs, seeds=seeds, fixed=fixed, worth=worth,
        options=options or RunOptions(), runner=runner,
    )  # fmt: skip


def evaluate(
    run: Path | str,
    store: Path | str | None = None,
    *,
    split: str = "test",
    protocol: Protocol | str | None = None,
    device: str = "auto",
    uncertainty: bool = False,
    abstain_below: float | None = None,
    other: Path | str | None = None,
) -> Evaluation:
    """Measure recall with intervals, by kind and length of query, and how well moments are found.

    Args:
        run: A run, a folder of runs over seeds, a checkpoint, or a published checkpoint file.
        store: The store to evaluate on; a run knows its own.
        split: The split to evaluate on.
        protocol: Only runs that selected their best epoch by this protocol.
        device: auto, cpu, cuda or cuda:N.
        uncertainty: Also measure how far the model's confidence can be trusted.
        abstain_below: Also measure what remains if less probable hits are withheld.
        other: A store whose queries have no answer in this one, to be told from those that have.

    Example:
        >>> found = holmes.evaluate("RUN", device="cpu")
        >>> 0 <= found.metrics["R@1"] <= 100
        True
    """
    from holmes.base.devices import choose_device
    from holmes.evaluation.runs.evaluate import evaluate_runs
    from holmes.evaluation.runs.folders import find_runs
    from holmes.training.protocol import parse_protocol

    runs = find_runs(Path(run), None if protocol is None else parse_protocol(protocol))
    on, where = None if store is None else Path(store), choose_device(device)
    found = evaluate_runs(runs, on, split, where)
    if uncertainty or abstain_below is not None or other is not None:
        from holmes.evaluation.runs.confidence import add_uncertainty

        elsewhere = None if other is None else Path(other)
        add_uncertainty(found, runs, on, split, where, elsewhere, abstain_below)
    return evaluation_of(found)


def compare(
    *runs: Path | str,
    store: Path | str | None = None,
    split: str = "test",
    protocol: Protocol | str | None = None,
    device: str = "auto",
) -> ComparisonReport:
    """Compare runs: recall with intervals, and differences to the first run on the same videos.

    Intervals and p-values come from a bootstrap over videos, and over seeds if there are several.

    Args:
        runs: At least two runs, or folders of runs over seeds; the first is the reference.
        store: The store to compare on; runs know their own.
        split: The split to compare on.
        protocol: Only runs that selected their best epoch by this protocol.
        device: auto, cpu, cuda or cuda:N.

    Example:
        >>> comparison = holmes.compare("BASE", "OURS", device="cpu")
        >>> [system.name for system in comparison.systems]
        ['BASE', 'OURS']
        >>> 0 <= comparison.systems[1].difference["SumR"].p <= 1
        True
    """
    from holmes.base.devices import choose_device
    from holmes.evaluation.runs.compare import compare_runs, find_systems
    from holmes.training.protocol import parse_protocol

    if not runs:
        raise HolmesError("name at least two runs to compare.")
    wanted = None if protocol is None else parse_protocol(protocol)
    groups = find_systems([Path(run) for run in runs], wanted)
    on = None if store is None else Path(store)
    return comparison_of(compare_runs(groups, on, split, choose_device(device)).report)


def load_checkpoint(path: Path | str, device: str = "cpu") -> Checkpoint:
    """A trained model, ready to encode, with its settings and the encoders of its features.

    Args:
        path: A checkpoint, a run (its best checkpoint is taken), hub:NAME, or a published checkpoint file,
            of which nothing is executed.
        device: Where the model goes: cpu, cuda or cuda:N.

    Example:
        >>> checkpoint = holmes.load_checkpoint("RUN")
        >>> checkpoint.config.encoder, checkpoint.model.training
        ('mixture', False)
    """
    from holmes.encoders.hub import local_model
    from holmes.encoders.released import open_checkpoint

    return open_checkpoint(local_model(path), device)


def build_index(
    path: Path | str,
    videos: Path | str | Iterable[Path | str],
    model: Model = "pocket",
    *,
    visual: str | None = None,
    text: str | None = None,
    rate: float | None = None,
    fast: bool = False,
    workers: int | None = None,
    progress: bool = False,
    device: str = "auto",
    hear: bool = True,
) -> BuildSummary:
    """Make an index of videos, or continue an unfinished one; `holmes.open_index` then searches it.

    Args:
        path: The folder of the index.
        videos: Video files, folders that contain some, or feature folders of `holmes extract`.
        model: A joint encoder by name or folder, a run or checkpoint of `holmes train`, or an encoder object.
        visual: The frame encoder of a checkpoint's features, where the checkpoint does not name it.
        text: The text encoder of a checkpoint's features, where the checkpoint does not name it.
        rate: Samples per second; by default the rate that the model was trained on, or its encoder's
            own. A trained model refuses another rate than its own.
        fast: Decode only key frames where they are dense enough.
        workers: Processes that decode; by default one per core.
        progress: Draw progress bars.
        device: auto, cpu, cuda or cuda:N, for the model and its encoders.
        hear: Make subtitles, speech and text on screen searchable, where the packages of [heard] are
            installed.

    Example:
        >>> summary = holmes.build_index("NEW_INDEX", ["film.mp4", "more/"])
        >>> summary.added, summary.failures
        (2, ())
    """
    from holmes.heard.hearing import Hearing
    from holmes.index.embedders.loading import load_embedder
    from holmes.index.ingest.builder import build_index as build

    named = [videos] if isinstance(videos, str | Path) else list(videos)
    embedder = load_embedder(model, visual, text, device)
    hearing = Hearing.default() if hear else None
    return build(
        path, named, embedder, rate=rate, fast=fast, workers=workers, progress=progress, hearing=hearing
    )


def find(
    sentence: str,
    video: Path | str,
    model: Model = "pocket",
    *,
    rate: float | None = None,
    fast: bool = False,
    device: str = "auto",
) -> tuple[Moment, ...]:
    """The moments of one video file that fit a sentence, best first; no index is kept.

    A single video has nothing to be compared with, so moments have scores and no probability.

    Args:
        sentence: What happens in the moment.
        video: A video file.
        model: A joint encoder by name or folder, a run or checkpoint of `holmes train`, or an encoder object.
        rate: Samples per second; by default the model's own.
        fast: Decode only key frames where they are dense enough.
        device: auto, cpu, cuda or cuda:N.

    Example:
        >>> moments = holmes.find("a dog runs", "film.mp4")
        >>> 0 <= moments[0].start < moments[0].end
        True
    """
    from holmes.index.answer.request import check_sentence
    from holmes.index.answer.searcher import open_single_index
    from holmes.index.embedders.loading import load_embedder
    from holmes.index.ingest.builder import build_index as build

    check_sentence(sentence)
    if Path(video).is_dir():
        raise HolmesError(f"{video} is a folder; make an index of it with holmes.build_index.")
    embedder = load_embedder(model, device=device)
    with tempfile.TemporaryDirectory() as folder:
        summary = build(Path(folder) / "index", [video], embedder, rate=rate, fast=fast, workers=1)
        if summary.failures:
            raise HolmesError(f"{video}: {summary.failures[0].reason}")
        with open_single_index(Path(folder) / "index", device="cpu", model=embedder) as index:
            return index.search(sentence, top=1)[0].moments
