"""A trained model as a folder: weights in safetensors, everything else in one JSON file.

The JSON names the weights' file and their digest and is replaced last, so a reader always finds a whole
checkpoint: the old one or the new one. A model is never made larger than the weights that are there for it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import nn

from holmes.base.feature_origin import FeatureOrigin
from holmes.base.files import atomic_file, sha256_file, spelt
from holmes.base.manifests import FileFormat
from holmes.base.validation import Matching, Sha256, Within, build
from holmes.config.schema import HolmesConfig, ModelConfig
from holmes.encoders.build import build_model
from holmes.encoders.model import HolmesModel
from holmes.errors import HolmesError
from holmes.results import Json

Seconds = Annotated[float, Within(0, 1e9)]
MANIFEST = "checkpoint.json"
BEST = "best"  # the checkpoint inside the folder of a training run
ENCODERS = "encoders"  # among its extras: what made the features it was trained on
TRAINING_SECONDS = "training_seconds"  # among its extras, see below
FORMAT = FileFormat(
    "holmes-checkpoint", 2, "a Holmes checkpoint", "copy the whole folder again", without_checksum=(1,)
)
WEIGHTS = Matching(r"model-[0-9a-f]{12}\.safetensors", "the name of a file of weights")
MODEST = 2**28  # parameters of a model that may be made before its weights are looked at: a GB
LOADING_ATTEMPTS = 5  # for each, training must save a whole new checkpoint while one is being loaded


@dataclass(frozen=True)
class CheckpointManifest:
    """What `checkpoint.json` says."""

    weights: Annotated[str, WEIGHTS]
    digest: Sha256
    config: HolmesConfig
    extras: dict[str, Any]


@dataclass(frozen=True)
class Checkpoint:
    """A trained model with its settings."""

    model: HolmesModel
    config: HolmesConfig
    digest: str
    """SHA-256 of the weights: what an index or a calibration remembers of the model it belongs to."""
    extras: Json = field(default_factory=dict)
    """What is remembered beside the weights, as plain JSON values."""

    @property
    def encoders(self) -> FeatureOrigin:
        """What made the features it was trained on; nothing is known of checkpoints of earlier versions."""
        return build(FeatureOrigin, self.extras.get(ENCODERS, {}), ENCODERS)

    @property
    def training_seconds(self) -> float | None:
        """The length of all but the longest tenth of its training videos, where it is known."""
        seconds: float | None = build(Seconds | None, self.extras.get(TRAINING_SECONDS), TRAINING_SECONDS)
        return seconds


def save_checkpoint(
    folder: Path, model: nn.Module, config: HolmesConfig, extras: dict[str, Any] | None = None
) -> str:
    """Write a checkpoint and return the digest of its weights."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    staged = folder / "model.incoming"
    with atomic_file(staged) as file:
        file.write(save(weights))
    digest = sha256_file(staged)
    name = f"model-{digest[:12]}.safetensors"
    staged.replace(folder / name)
    FORMAT.write(folder / MANIFEST, asdict(CheckpointManifest(name, digest, config, extras or {})))
    for stale in folder.glob("model-*.safetensors"):
        if stale.name != name:
            stale.unlink(missing_ok=True)
    return digest


def update_extras(folder: Path, extras: dict[str, Any]) -> None:
    """Add to what is remembered beside the weights, leaving them as they are."""
    manifest = read_manifest(folder)
    FORMAT.write(folder / MANIFEST, asdict(replace(manifest, extras=manifest.extras | extras)))


def load_checkpoint(folder: Path, device: str = "cpu") -> Checkpoint:
    """Read a checkpoint; damaged or foreign files are refused in one line."""
    for _ in range(LOADING_ATTEMPTS):
        manifest = read_manifest(folder)
        try:
            return _load(folder, manifest, device)
        except (OSError, HolmesError):
            if read_manifest(folder) == manifest:
                raise
            # Training has saved a better one since, and removed the weights that this one named.
    raise HolmesError(f"{folder} is being rewritten all the time; try again later.")


def _load(folder: Path, manifest: CheckpointManifest, device: str) -> Checkpoint:
    weights = folder / manifest.weights
    if not weights.exists():
        raise HolmesError(f"{folder} names {weights.name}, which is missing; copy the whole folder again.")
    if sha256_file(weights) != manifest.digest:
        raise HolmesError(f"{weights} does not match its digest: the file is damaged; copy it again.")
    try:
        with spelt(weights) as file:
            if numbers_asked_for(manifest.config.model) > MODEST:
                refuse_other_shapes(file, manifest.config.model)
            model = build_model(manifest.config.model)
            model.load_state_dict(load_file(file))
    except (RuntimeError, SafetensorError) as error:
        raise HolmesError(
            f"{weights} does not match its settings: {str(error).splitlines()[0][:200]}"
        ) from None
    return Checkpoint(model.to(device).eval(), manifest.config, manifest.digest, manifest.extras)


def numbers_asked_for(config: ModelConfig) -> int:
    """More than any model of these settings holds."""
    places = max(config.frames, config.clips, config.tokens)
    blocks = 8 + len(config.gaussian_widths)
    ends = config.video_width + config.text_width + places + config.registers
    if config.encoder == "hlformer":
        blocks += blocks * config.lorentz_width * (config.lorentz_width + config.width) // config.width**2 + 1
    return blocks * (32 * config.width**2 + places**2) + 8 * ends * config.width


def refuse_other_shapes(weights: Path, config: ModelConfig) -> None:
    """Compare the file's header with the settings before either gets any memory.

    This is done only for large models: making a model without memory loads torch's compiler, which takes
    longer than a search, and weights that do not fit a small model are noticed when they are loaded.
    """
    with torch.device("meta"):
        expected = {name: list(value.shape) for name, value in build_model(config).state_dict().items()}
    with safe_open(weights, "pt") as file:
        found = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118 - no mapping
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            shapes = [str(shape.get(name, "none")) for shape in (found, expected)]
            raise RuntimeError(f"{name} is {shapes[0]}, its settings ask for {shapes[1]}")


def read_manifest(folder: Path) -> CheckpointManifest:
    path = folder / MANIFEST
    if not path.exists():
        raise HolmesError(f"{folder} is not a checkpoint: it has no {MANIFEST}.")
    return FORMAT.read(path, CheckpointManifest)
