"""Find runs and checkpoints in folders, their stores, and which differ only by their seed."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from holmes.base.feature_origin import refuse_other_encoder
from holmes.config.schema import to_dict
from holmes.data.store import Store
from holmes.encoders.checkpoint import BEST, MANIFEST, Checkpoint
from holmes.encoders.hub import local_model
from holmes.encoders.released import open_checkpoint
from holmes.errors import HolmesError
from holmes.evaluation.score_files import is_score_file
from holmes.training.protocol import Protocol
from holmes.training.resume import RUN, TRAINED_BY, jsonable, read_run, trained_by


@dataclass(frozen=True)
class RunFolder:
    """A run, or a lone checkpoint, of which nothing but the weights and settings is known."""

    path: Path
    about: dict[str, Any] | None

    @property
    def checkpoint(self) -> Path:
        return self.path if self.about is None else self.path / BEST

    def open_checkpoint(self, device: torch.device) -> Checkpoint:
        """The checkpoint; one that another run has trained is refused."""
        checkpoint = open_checkpoint(self.checkpoint, str(device))
        if self.about is not None:
            known = checkpoint.extras.get(TRAINED_BY, trained_by(self.about))  # older ones do not know
            same = jsonable(to_dict(checkpoint.config)) == jsonable(self.about["config"])
            if known != trained_by(self.about) or not same:
                raise HolmesError(
                    f"{self.checkpoint} is the checkpoint of another run than {self.path / RUN} describes; "
                    "restore the folder, or evaluate the checkpoint by itself."
                )
        return checkpoint

    @property
    def protocol(self) -> str | None:
        return None if self.about is None else self.about["data"]["protocol"]


def find_runs(folder: Path, protocol: Protocol | None = None) -> list[RunFolder]:
    """The run in a folder, or those of all seeds under it; only those of a protocol where one is given.

    A checkpoint stands for itself, whether a folder of ours or a published file; so does a file of scores.
    hub:NAME is the checkpoint that it is pulled as.
    """
    folder = local_model(folder)
    if folder.is_file() or is_score_file(folder) or (folder / MANIFEST).exists():
        return [RunFolder(folder, None)]
    manifests = [folder / RUN] if (folder / RUN).exists() else sorted(folder.glob(f"*/{RUN}"))
    runs = [RunFolder(manifest.parent, read_run(manifest)) for manifest in manifests]
    if not runs:
        raise HolmesError(f"{folder} contains neither a run nor a checkpoint; make one with 'holmes train'.")
    chosen = [run for run in runs if protocol is None or run.protocol == protocol.value]
    if not chosen:
        has = ", ".join(sorted({run.protocol or "" for run in runs}))
        raise HolmesError(
            f"{folder} has no run of the protocol '{protocol}', only {has}; train one with --protocol."
        )
    unfinished = [run for run in chosen if not (run.checkpoint / MANIFEST).exists()]
    if unfinished:
        raise HolmesError(f"{unfinished[0].path} has no checkpoint yet; continue its 'holmes train'.")
    return chosen


def store_of(run: RunFolder, given: Path | None) -> Store:
    """The store that is asked for, or the one the run was trained on."""
    if given is not None:
        return Store.open(given)
    if run.about is None:
        raise HolmesError(
            f"{run.path} is not a run, and "
            f"{'a file of scores' if is_score_file(run.path) else 'a checkpoint'} remembers no store; "
            "give one with --store."
        )
    path = Path(run.about["store"])
    if not path.exists():
        raise HolmesError(
            f"{run.path} was trained on {path}, which is gone; say with --store where it is now."
        )
    store = Store.open(path)
    if store.info.digest != run.about["data"]["store"]:
        raise HolmesError(
            f"{path} has changed since {run.path} was trained; to evaluate on it, give --store."
        )
    return store


def refuse_other_features(checkpoint: Checkpoint, store: Store) -> None:
    model, info = checkpoint.config.model, store.info
    ours, theirs = (model.video_width, model.text_width), (info.video_width, info.text_width)
    if ours != theirs:
        raise HolmesError(
            f"the model takes features of widths {ours[0]} (video) and {ours[1]} (text), {store.path} has "
            f"{theirs[0]} and {theirs[1]}; it needs a store packed from the same features."
        )
    trained, found, remedy = checkpoint.encoders, info.encoders, "use a store made with the same encoders"
    refuse_other_encoder(trained.visual, found.visual, "the model", remedy)
    refuse_other_encoder(trained.text, found.text, "the model", remedy)
    for name in ("frames", "clips", "tokens"):
        if getattr(model, name) != getattr(info, name):
            raise HolmesError(
                f"the model takes {getattr(model, name)} {name}, {store.path} was packed with "
                f"{getattr(info, name)}; pack it again with --{name} {getattr(model, name)}."
            )


def group_runs(runs: list[RunFolder]) -> dict[str, list[RunFolder]]:
    """Name → the runs of one setting, protocol and store. With a single setting the name is the protocol."""
    groups: dict[str, list[RunFolder]] = {}
    for run in runs:
        groups.setdefault(identity(run), []).append(run)
    settings = {json.dumps(settings_of(some[0]), sort_keys=True) for some in groups.values()}
    names = [name_of(some, several=len(settings) > 1) for some in groups.values()]
    if len(set(names)) < len(names):  # the same name for different things: use the whole path
        names = [f"{some[0].path}, {some[0].protocol or 'checkpoint'}" for some in groups.values()]
    return dict(zip(names, groups.values(), strict=True))


def identity(run: RunFolder) -> str:
    """Equal for runs that differ only by their seed."""
    if run.about is None:
        return str(run.path)
    return json.dumps([settings_of(run), run.about["data"]], sort_keys=True)


def settings_of(run: RunFolder) -> Any:
    return str(run.path) if run.about is None else run.about["config"]


def name_of(runs: list[RunFolder], several: bool) -> str:
    path = runs[0].path
    protocol = runs[0].protocol or (path.name if is_score_file(path) else "checkpoint")
    if not several:
        return protocol
    stems = {re.sub(r"-seed\d+$", "", run.path.resolve().name) for run in runs}
    return f"{sorted(stems)[0]}, {protocol}"
