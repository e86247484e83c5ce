"""`holmes train`: from a store to a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holmes.cli.options import Device, Jobs, Preset, Settings, StoreToRead, make_study, say, show
from holmes.errors import HolmesError

if TYPE_CHECKING:
    from holmes.results import TrainingResult
    from holmes.training.experiments import Study


def train(
    store: StoreToRead,
    preset: Preset,
    out: Annotated[
        Path, typer.Option(metavar="RUN", help="The folder of the run: a new one, or one to continue.")
    ],
    seed: Annotated[
        int | None, typer.Option(min=0, help="The seed of a single run.", show_default="0")
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            metavar="N,N,…", help="Train one run per seed, in RUN/PROTOCOL-seedN, and report their mean."
        ),
    ] = None,
    protocol: Annotated[
        str,
        typer.Option(
            help="Select the best epoch on a held-out part of train ('honest'), on the test split itself as "
            "the field does ('published'), or run 'both'."
        ),
    ] = "honest",
    settings: Settings = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="RUN|hub:NAME",
            help="Start from the weights of another model; its shape replaces the preset's.",
            show_default="random weights",
        ),
    ] = None,
    jobs: Jobs = 1,
    device: Device = "auto",
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also write RUN/tensorboard.")] = False,
) -> None:
    """Train on a store; run the same command again to continue after an interruption.

    To train on several devices: torchrun --nproc-per-node N -m holmes train …
    """
    from holmes.training.experiments import leads

    if seed is not None and seeds is not None:
        raise HolmesError("give --seed for one run or --seeds for several, not both.")
    chosen = seeds if seeds is not None else str(seed or 0)
    study = make_study(store, preset, settings, out, chosen, protocol, device, tensorboard, jobs)
    single = seeds is None and len(study.protocols) == 1
    if model is not None and not single:
        raise HolmesError("--model starts a single run; leave out --seeds, and give one --protocol.")
    ours = train_one(study, model) if single else train_many(study)
    if leads():
        show_results(study, ours)


def train_one(study: Study, start: str | None = None) -> dict[str, dict[str, Any]]:
    from holmes.evaluation.intervals import read_ranks, saved_summary
    from holmes.training.resume import RANKS, RESULT, RUN
    from holmes.training.run import train as run

    if any(study.out.glob(f"*/{RUN}")):
        raise HolmesError(f"{study.out} contains runs of several seeds; give another --out, or --seeds.")
    finished = (study.out / RESULT).exists()
    (seed,), (protocol,) = study.seeds, study.protocols
    result = run(study.store, study.config, study.out, seed, protocol, study.options, start=start)
    if finished:
        say(f"{study.out} had already finished; these are its figures")
    say_uncalibrated([result])
    found = saved_summary([result.metrics], [read_ranks(study.out / RANKS)])
    return {f"ours, {protocol.value}, seed {seed}": found}


def train_many(study: Study) -> dict[str, dict[str, Any]]:
    from holmes.results import TrainingResult
    from holmes.training.experiments import train_seeds

    summary = train_seeds(study)
    say_uncalibrated(
        TrainingResult(run=str(study.out / f"{protocol}-seed{run['seed']}"), **run)
        for protocol, found in summary["protocols"].items()
        for run in found["runs"]
    )
    return {
        f"ours, {protocol}, {len(study.seeds)} seed{'s' * (len(study.seeds) > 1)}": found
        for protocol, found in summary["protocols"].items()
    }


def say_uncalibrated(results: Iterable[TrainingResult]) -> None:
    """Name the runs that cannot say how sure they are, and why."""
    for result in results:
        if result.calibrated is not False:
            continue
        why = (
            "the held-out videos have too few queries, or none of them finds its video"
            if result.protocol == "honest"
            else "no videos are held out: the published protocol needs a val split that shares none with test"
        )
        say(
            f"{result.run}: no calibration could be fitted ({why}); this model gives no probabilities and no "
            "kinds. Train with --protocol honest, or a larger --set held_out."
        )


def show_results(study: Study, ours: dict[str, dict[str, Any]]) -> None:
    from holmes.evaluation.literature import published_figures
    from holmes.evaluation.tables import FITTING, results_grid

    rows = {}
    for label, found in ours.items():
        rows[label] = found["metrics"]
        if "metrics_fitting" in found:
            rows[f"{label}, {FITTING}"] = found["metrics_fitting"]
    name, collection = study.config.name, study.store.info.collection
    title = f"{name} on {study.store.path.name}, test split"
    videos = len(study.store.split("test").videos)
    show(results_grid(title, rows, published_figures(name), collection, videos))
