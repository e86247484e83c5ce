"""Read published `torch.save` checkpoints without executing anything in them."""

from __future__ import annotations

import re
import zipfile
from argparse import Namespace
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holmes.base.files import sha256_file
from holmes.config.schema import ModelConfig
from holmes.encoders.build import build_model
from holmes.encoders.checkpoint import (
    BEST,
    MANIFEST,
    MODEST,
    Checkpoint,
    load_checkpoint,
    numbers_asked_for,
)
from holmes.encoders.released_names import released_config, released_state
from holmes.errors import HolmesError


def checkpoint_in(path: Path) -> Path | None:
    """The path itself, the best checkpoint of a run, or a published file; None where there is none."""
    if path.is_file():
        return path
    return next((each for each in (path, path / BEST) if (each / MANIFEST).exists()), None)


def open_checkpoint(path: Path, device: str = "cpu") -> Checkpoint:
    """A checkpoint of ours, the best one of a run, or a published file."""
    found = checkpoint_in(path)
    if found is None:
        raise HolmesError(f"{path} holds no checkpoint; name a run of 'holmes train', or a published file.")
    if found.is_dir():
        return load_checkpoint(found, device)
    released = load_released(found)
    return replace(released, model=released.model.to(device))


def load_released(path: Path) -> Checkpoint:
    """A published checkpoint as ours. Only tensors, numbers and plain containers are read."""
    # The safe reader fills only dictionaries of its own kinds, so one of those stands in for EasyDict.
    stand_ins = [(OrderedDict, "easydict.EasyDict"), (Namespace, "argparse.Namespace")]
    scalars = [np.dtype, np.float64, np.float32, np.dtypes.Float64DType, np.dtypes.Float32DType]
    scalar: Any = np.float64(0).__reduce__()[0]  # NumPy's own builder of scalars, under both its names
    numpy_scalar = [(scalar, f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")]
    refuse_compressed(path)
    try:
        with torch.serialization.safe_globals([*stand_ins, *scalars, *numpy_scalar]):
            saved = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise HolmesError(f"{path} does not exist.") from None
    except Exception as error:  # whatever goes wrong while reading a file is the file's fault
        asked = re.search(r"GLOBAL (\S+)", str(error))
        why = (
            f"it asks for {asked[1]}"
            if asked
            else "it is damaged or holds more than tensors and plain values"
        )
        raise HolmesError(f"{path} cannot be read safely: {why}.") from None
    if not isinstance(saved, dict) or "state_dict" not in saved:
        raise HolmesError(f"{path} is not a published checkpoint: it has no 'state_dict'.")
    settings = saved.get("config", {})
    state = saved["state_dict"]
    try:
        refuse_expanded(state)
        config = released_config(settings if isinstance(settings, dict) else dict(vars(settings)), state)
        ours = released_state(state, config.model)
        refuse_other_shapes(ours, config.model)
        model = build_model(config.model)
        model.load_state_dict(ours)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise HolmesError(f"{path} is not a published Holmes model: {' '.join(str(error).split())}") from None
    return Checkpoint(model.eval(), config, digest=sha256_file(path), extras={"epoch": saved.get("epoch")})


def refuse_compressed(path: Path) -> None:
    """Refuse a file that takes more memory than disk space; torch compresses nothing."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as file:
            if any(entry.file_size > entry.compress_size for entry in file.infolist()):
                raise HolmesError(f"{path} cannot be read safely: its parts are compressed.")


def refuse_expanded(state: dict[str, Tensor]) -> None:
    """Refuse tensors that declare more numbers than they store, such as `zeros(1).expand(4096, 4096)`."""
    for name, tensor in state.items():
        stored = tensor.untyped_storage().nbytes() // tensor.element_size()
        if stored < tensor.numel():
            raise ValueError(
                f"'{name}' stores {stored} of the {tensor.numel()} numbers that its shape declares."
            )


def refuse_other_shapes(state: dict[str, Tensor], config: ModelConfig) -> None:
    """Compare shapes before a large model gets memory: one tensor decides how wide all of it would be."""
    if numbers_asked_for(config) <= MODEST:
        return
    with torch.device("meta"):
        expected = {name: list(value.shape) for name, value in build_model(config).state_dict().items()}
    for name in sorted(expected.keys() | state.keys()):
        found = list(state[name].shape) if name in state else None
        if found != expected.get(name):
            raise ValueError(f"'{name}' has shape {found}, not {expected.get(name)}.")
