"""Load the model of an index, by name, checkpoint or object."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from holmes.encoders.hub import is_hub_name, local_model
from holmes.encoders.released import checkpoint_in
from holmes.errors import HolmesError
from holmes.index.embedders.protocol import Embedder
from holmes.index.embedders.trained import TRAINED, TrainedHolmes
from holmes.index.embedders.zero_shot import ZeroShot
from holmes.media.backbones import (
    BUILT_IN,
    JOINT_ENCODERS,
    JointBackbone,
    TextBackbone,
    UnknownEncoderError,
    VisualBackbone,
    identify,
    load_visual,
    unknown_encoder,
)
from holmes.media.backbones.base import check_reads
from holmes.media.backbones.own import ENCODERS as OWN_ENCODERS
from holmes.media.feature_folder import check_rate

# A joint encoder by name or folder, a run or checkpoint by path, or an object that encodes.
Model = str | Path | Embedder | JointBackbone
COMPARABLE = ("digest", "text_digest", "clip_seconds", "part_seconds")  # equal where scores are comparable


def load_embedder(
    model: Model,
    visual: str | VisualBackbone | None = None,
    text: str | TextBackbone | None = None,
    device: str = "auto",
) -> Embedder:
    """The embedder of a checkpoint, a run (its best one), a published file or a joint encoder.

    An object that satisfies `Embedder` is returned as it is; one that satisfies `JointBackbone` is wrapped.
    """
    if not isinstance(model, str | Path):
        if visual or text:
            raise HolmesError("--visual and --text belong to a trained checkpoint, not to an encoder object.")
        return _embedder_of(model, device)
    name = str(model)
    folder = None if name in BUILT_IN else checkpoint_in(local_model(name))
    if folder is not None:
        return TrainedHolmes(folder, visual, text, device, name if is_hub_name(name) else None)
    if visual or text:
        raise HolmesError(f"--visual and --text belong to a trained checkpoint; '{name}' is not one.")
    try:
        backbone = load_visual(name, device=device)
    except UnknownEncoderError:  # its message would offer encoders that cannot read sentences
        raise unknown_encoder(
            name, "model", (*JOINT_ENCODERS, "the folder of a 'holmes train' run")
        ) from None
    return ZeroShot(_joint(backbone, name), device, by_name=name not in OWN_ENCODERS)


def _embedder_of(model: Embedder | JointBackbone, device: str) -> Embedder:
    if hasattr(model, "queries"):  # an isinstance check would read its properties, and so load its encoders
        return cast(Embedder, model)
    return ZeroShot(_joint(model, getattr(model, "name", type(model).__name__)), device)


def _joint(backbone: object, name: str) -> JointBackbone:
    if not isinstance(backbone, JointBackbone) or not backbone.joint:
        raise HolmesError(
            f"'{name}' makes features that cannot be compared with sentences; use a joint model "
            f"({', '.join(JOINT_ENCODERS)}, the folder of one) or a checkpoint of 'holmes train'."
        )
    if name not in BUILT_IN:
        check_reads(backbone, name)
    return backbone


def recorded_embedder(record: dict[str, Any], model: Model | None = None, device: str = "auto") -> Embedder:
    """The model an index was made with; `model` says where its checkpoint is now, or is the model itself."""
    if model is not None and not isinstance(model, str | Path):
        embedder = load_embedder(model, device=device)
        check_same_model(record, embedder)
        return embedder
    name = str(model or record.get("name"))
    if record.get("kind") == TRAINED:
        what, gone = "checkpoint", not is_hub_name(name) and checkpoint_in(Path(name)) is None
    else:
        what, gone = "model", os.path.isabs(name) and not os.path.isdir(name)
    if gone:
        raise HolmesError(
            f"the {what} of this index is no longer in {name}; say with --model where it is now."
        )
    embedder = load_embedder(name, record.get("visual"), record.get("text"), device)
    check_same_model(record, embedder)
    return embedder


def check_same_model(record: dict[str, Any], embedder: Embedder) -> None:
    for what in COMPARABLE:
        if record.get(what) != embedder.record.get(what):
            raise HolmesError(
                f"the index was made with '{record.get('name')}' ({str(record.get(what))[:12]}), not with "
                f"'{embedder.record['name']}' ({str(embedder.record.get(what))[:12]}); "
                "use that model, or build another index."
            )


def check_same_encoder(backbone: dict[str, Any], embedder: Embedder) -> None:
    """`backbone` is what an index remembers of the encoder that made its features."""
    visual = embedder.visual
    if visual.digest != backbone["digest"]:
        raise HolmesError(
            f"the index has features of '{backbone['name']}' ({backbone['digest'][:12]}), not of "
            f"'{visual.name}' ({visual.digest[:12]}); use that encoder, or build another index."
        )


def extraction_record(embedder: Embedder, rate: float) -> dict[str, Any]:
    """What an index remembers of how its videos become features."""
    check_rate(rate)
    return {"backbone": asdict(identify(embedder.visual)), "rate": rate}
