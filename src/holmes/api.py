"""The doors: train, evaluate, load a checkpoint, build an index. `import holmes` offers them, with the types.

Each opens a room where the work is done, and hands out what was found there as records with names and types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from holmes.results import Epoch, Evaluation, TrainingResult, epoch_of, evaluation_of

if TYPE_CHECKING:
    from holmes.config.schema import HolmesConfig
    from holmes.data.store import Store
    from holmes.encoders.checkpoint import Checkpoint
    from holmes.index.ingest.builder import BuildSummary
    from holmes.training.protocol import Protocol
    from holmes.training.run import RunOptions


def train(
    store: Store | Path | str,
    config: HolmesConfig,
    out: Path | str,
    seed: int = 0,
    protocol: Protocol | str = "honest",
    options: RunOptions | None = None,
    on_epoch: Callable[[Epoch], None] | None = None,
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
        options: Device, compilation, progress display; none of these changes the result beyond rounding.
        on_epoch: Called after every epoch. An exception that it raises stops the run, which can be continued.
    """
    from holmes.training.run import RunOptions
    from holmes.training.run import train as run

    heard = None if on_epoch is None else (lambda entry: on_epoch(epoch_of(entry)))
    return run(store, config, out, seed, protocol, options or RunOptions(), heard)


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


def load_checkpoint(path: Path | str, device: str = "cpu") -> Checkpoint:
    """A trained model, ready to encode, with its settings and what it remembers of its features.

    Args:
        path: A checkpoint, a run (its best checkpoint is taken), or a published checkpoint file, of which
            nothing is executed.
        device: Where the model goes: cpu, cuda or cuda:N.
    """
    from holmes.encoders.released import open_checkpoint

    return open_checkpoint(Path(path), device)


def build_index(
    path: Path | str,
    videos: Path | str | Iterable[Path | str],
    model: Path | str = "pocket",
    *,
    visual: str | None = None,
    text: str | None = None,
    rate: float | None = None,
    fast: bool = False,
    workers: int | None = None,
    progress: bool = False,
    device: str = "auto",
) -> BuildSummary:
    """Make an index of videos, or continue an unfinished one; `holmes.open_index` then searches it.

    Args:
        path: The folder of the index.
        videos: Video files, folders that contain some, or feature folders of `holmes extract`.
        model: A joint encoder by name or folder, or a run or checkpoint of `holmes train`.
        visual: The frame encoder of a checkpoint's features, where it does not remember it.
        text: The text encoder of a checkpoint's features, where it does not remember it.
        rate: Samples per second; by default the rate that the model was trained on, or its encoder's
            own. A trained model refuses another rate than its own.
        fast: Decode only key frames where they are dense enough.
        workers: Processes that decode; by default one per core.
        progress: Draw progress bars.
        device: auto, cpu, cuda or cuda:N, for the model and its encoders.
    """
    from holmes.index.embedders.loading import load_embedder
    from holmes.index.ingest.builder import build_index as build

    named = [videos] if isinstance(videos, str | Path) else list(videos)
    embedder = load_embedder(str(model), visual, text, device)
    return build(path, named, embedder, rate=rate, fast=fast, workers=workers, progress=progress)
