"""A trained model as a folder: weights in safetensors, everything else in one JSON file.

The JSON names the weights' file and their digest and is replaced last, so a reader always finds a whole
checkpoint: the old one or the new one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import nn

from holmes.config.schema import HolmesConfig, from_dict, to_dict
from holmes.encoders.model import HolmesModel
from holmes.errors import HolmesError
from holmes.files import atomic_file, read_json, sha256_file, write_json

FORMAT, VERSION = "holmes-checkpoint", 1
MANIFEST = "checkpoint.json"
TRAINING_SECONDS = "training_seconds"  # among its extras: nine in ten training videos are not longer


@dataclass(frozen=True)
class Checkpoint:
    model: HolmesModel
    config: HolmesConfig
    digest: str
    """SHA-256 of the weights: what an index or a calibration remembers of the model it belongs to."""
    extras: dict[str, Any] = field(default_factory=dict)


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
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "weights": name,
        "digest": digest,
        "config": to_dict(config),
        "extras": extras or {},
    }
    write_json(folder / MANIFEST, manifest)
    for stale in folder.glob("model-*.safetensors"):
        if stale.name != name:
            stale.unlink(missing_ok=True)
    return digest


def update_extras(folder: Path, extras: dict[str, Any]) -> None:
    """Add to what is remembered beside the weights, leaving them as they are."""
    manifest = read_manifest(folder)
    write_json(folder / MANIFEST, manifest | {"extras": manifest["extras"] | extras})


def load_checkpoint(folder: Path, device: str = "cpu") -> Checkpoint:
    """Read a checkpoint, refusing damaged or foreign files in one line."""
    manifest = read_manifest(folder)
    weights = folder / Path(manifest["weights"]).name
    if not weights.exists():
        raise HolmesError(f"{folder} names {weights.name}, which is missing; copy the whole folder again.")
    if sha256_file(weights) != manifest["digest"]:
        raise HolmesError(f"{weights} does not match its digest: the file is damaged; copy it again.")
    config = from_dict(manifest["config"])
    model = HolmesModel(config.model)
    try:
        model.load_state_dict(load_file(weights))
    except (RuntimeError, SafetensorError) as error:
        raise HolmesError(f"{weights} does not fit its config: {str(error).splitlines()[0]}") from None
    return Checkpoint(model.to(device).eval(), config, manifest["digest"], manifest["extras"])


def read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    if not path.exists():
        raise HolmesError(f"{folder} is not a checkpoint: it has no {MANIFEST}.")
    manifest = read_json(path)
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise HolmesError(f"{path} is not a Holmes checkpoint.")
    if manifest.get("version") != VERSION:
        raise HolmesError(
            f"{path} has version {manifest.get('version')}; this Holmes reads version {VERSION}."
        )
    kinds = {"weights": str, "digest": str, "config": dict, "extras": dict}
    missing = sorted(name for name, kind in kinds.items() if not isinstance(manifest.get(name), kind))
    if missing:
        raise HolmesError(f"{path} lacks {', '.join(missing)}: the file is damaged; copy it again.")
    return manifest
