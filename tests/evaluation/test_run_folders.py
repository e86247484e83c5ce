"""A run is evaluated with the checkpoint that it trained itself."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from holmes.base.manifests import FileFormat
from holmes.encoders import checkpoint as checkpoints
from holmes.errors import HolmesError
from holmes.evaluation.runs.folders import find_runs
from holmes.training.protocol import Protocol
from holmes.training.run import train
from tiny_runs import QUIET, tiny_settings, tiny_world

CPU = torch.device("cpu")


def test_another_runs_checkpoint_is_refused(tmp_path: Path) -> None:
    store = tiny_world(tmp_path / "store")
    one, other = (
        tiny_settings(epochs=1, warm_up_epochs=0),
        tiny_settings(epochs=1, warm_up_epochs=0, width=16),
    )
    train(store, one, tmp_path / "first", 0, Protocol.HONEST, QUIET)
    train(store, one, tmp_path / "second", 1, Protocol.HONEST, QUIET)  # another seed
    train(store, other, tmp_path / "third", 0, Protocol.HONEST, QUIET)  # other settings
    own, *_ = find_runs(tmp_path / "first")
    digest = own.open_checkpoint(CPU).digest
    for stranger in ("second", "third"):
        shutil.rmtree(tmp_path / "first" / "best")
        shutil.copytree(tmp_path / stranger / "best", tmp_path / "first" / "best")
        with pytest.raises(HolmesError, match="the checkpoint of another run"):
            own.open_checkpoint(CPU)
    assert find_runs(tmp_path / "first" / "best")[0].open_checkpoint(CPU).digest != digest


def test_a_checkpoint_of_an_earlier_version_is_still_taken(tmp_path: Path) -> None:
    store = tiny_world(tmp_path / "store")
    train(store, tiny_settings(epochs=1, warm_up_epochs=0), tmp_path / "run", 0, Protocol.HONEST, QUIET)
    path = tmp_path / "run" / "best" / checkpoints.MANIFEST
    content = json.loads(path.read_text())
    del content["extras"]["run"]
    kept = {name: content[name] for name in ("weights", "digest", "config", "extras")}
    format: FileFormat = checkpoints.FORMAT
    format.write(path, kept)
    assert find_runs(tmp_path / "run")[0].open_checkpoint(CPU).digest == content["digest"]
