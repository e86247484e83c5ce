"""The encoders of frames and sentences, found by name.

pocket                      frames and sentences in one space; ships with Holmes, an index uses it by default
lite2                       EfficientNet-Lite2 frames, what extraction uses by default
minilm                      all-MiniLM-L6-v2 sentences and tokens
i3d                         clips of 16 frames, the paper's feature family
clip-…, siglip-…            joint models by their usual names, from a hub
a folder, owner/name        any joint or text model kept as a transformers folder, or on a hub
open_clip:NAME              joint models of open_clip; NAME:WEIGHTS, an owner/name on a hub, or a folder
st:NAME                     multimodal models of sentence-transformers, on a hub or in a folder
a name of your own          functions added with holmes.extend.visual_encoder
timm:NAME, torchvision:NAME frames through any image classifier; with @FILE, weights from a file
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from holmes.errors import HolmesError, unknown
from holmes.media.backbones.base import (
    Identity,
    JointBackbone,
    TextBackbone,
    VisualBackbone,
    check_sees,
    identify,
)
from holmes.media.backbones.own import ENCODERS as OWN_ENCODERS

__all__ = [
    "DEFAULT",
    "JOINT_ENCODERS",
    "UnknownEncoderError",
    "unknown_encoder",
    "Identity",
    "JointBackbone",
    "TextBackbone",
    "VisualBackbone",
    "check_named",
    "identify",
    "lasting_name",
    "load_text",
    "load_visual",
]

DEFAULT = "lite2"
OWNERS = {"clip-": "openai", "siglip-": "google", "siglip2-": "google"}  # family → who publishes its models
BUILT_IN = ("pocket", "lite2", "i3d", "minilm")
# What is offered where a name is unknown: built-in ones, one of each family, and how to name any other.
JOINT_ENCODERS = ("pocket", "clip-vit-base-patch32", "siglip-base-patch16-224", "siglip2-base-patch16-224")
LIBRARIES = ("open_clip:NAME", "st:NAME")
FRAME_ENCODERS = ("lite2", "i3d", "timm:NAME", "torchvision:NAME", *JOINT_ENCODERS, *LIBRARIES)
SENTENCE_ENCODERS = ("minilm", *JOINT_ENCODERS, *LIBRARIES)
ALSO = "Or the folder of a model, or its owner/name on a hub; 'holmes models' lists some."
JOINT_TYPES = ("clip", "siglip", "siglip2", "metaclip_2", "xclip", "videoprism")


def load_visual(name: str, threads: int | None = None, device: str = "auto") -> VisualBackbone:
    """The frame encoder of that name; a joint one encodes sentences too. `threads` limits its CPU threads."""
    name = lasting_name(name)
    if name in OWN_ENCODERS:
        return OWN_ENCODERS[name]
    match name.split(":"):
        case ["pocket"]:
            from holmes.media.backbones.pocket import Pocket

            return Pocket(threads, device=device)
        case ["lite2"]:
            from holmes.media.backbones.lite2 import Lite2

            return Lite2(threads)
        case ["i3d"]:
            from holmes.media.backbones.i3d import I3D

            return I3D(threads, device)
        case ["timm" | "torchvision", *_]:
            from holmes.media.backbones.images import ImageModel

            return ImageModel(name, threads, device)
        case ["open_clip" | "st", *_]:
            return _load_library(name, threads, device)
    return cast(VisualBackbone, _load_folder(name, threads, device, wants_frames=True))


def load_text(name: str, threads: int | None = None, device: str = "auto") -> TextBackbone:
    """The sentence encoder of that name, alone or of a joint model."""
    name = lasting_name(name)
    match name:
        case "pocket":
            from holmes.media.backbones.pocket import Pocket

            return Pocket(threads, device=device)
        case "minilm":
            from holmes.media.backbones.text import load_minilm

            return load_minilm(threads, device)
    if name in OWN_ENCODERS:
        return OWN_ENCODERS[name]
    if name.startswith(("open_clip:", "st:")):
        return _load_library(name, threads, device)
    return cast(TextBackbone, _load_folder(name, threads, device, wants_frames=False))


def check_named(encoder: VisualBackbone, by_name: bool) -> None:
    """Try an encoder that was named and does not ship with Holmes; objects are taken as they are."""
    if encoder.name not in BUILT_IN and (by_name or encoder.name in OWN_ENCODERS):
        check_sees(encoder, encoder.name)


class UnknownEncoderError(HolmesError):
    """The error about a name that no encoder has."""


def unknown_encoder(name: str, what: str, offered: Sequence[str]) -> UnknownEncoderError:
    return UnknownEncoderError(f"{unknown(what, name, offered)} {ALSO}")


def lasting_name(name: str) -> str:
    """The name under which an encoder is found from any folder: a path in it becomes absolute."""
    model, at, file = name.partition("@")
    if at and model.startswith(("timm:", "torchvision:")):
        return f"{model}@{Path(file).resolve()}"
    library, _, folder = name.partition(":")
    if library in ("open_clip", "st") and folder and Path(folder).is_dir():
        return f"{library}:{Path(folder).resolve()}"
    return str(Path(name).resolve()) if name not in BUILT_IN and Path(name).is_dir() else name


def _load_library(name: str, threads: int | None, device: str) -> JointBackbone:
    """A model of open_clip or sentence-transformers."""
    if name.startswith("open_clip:"):
        from holmes.media.backbones.openclip import OpenClip

        return OpenClip(name, threads, device)
    from holmes.media.backbones.sentencetransformers import SentenceTransformersModel

    return SentenceTransformersModel(name, threads, device)


def _load_folder(
    name: str, threads: int | None, device: str, wants_frames: bool
) -> VisualBackbone | TextBackbone:
    """A model kept as a folder of `transformers`, on disk or on a hub."""
    from holmes.media.backbones.pretrained import model_folder, model_type

    owner = next((owner for start, owner in OWNERS.items() if name.startswith(start)), None)
    if not Path(name).is_dir() and "/" not in name and owner is None:
        if wants_frames:
            raise unknown_encoder(name, "encoder of frames", FRAME_ENCODERS)
        raise unknown_encoder(name, "encoder of sentences", SENTENCE_ENCODERS)
    folder = model_folder(f"{owner}/{name}" if owner and not Path(name).is_dir() else name)
    if (folder / "open_clip_config.json").exists():
        return _load_library(f"open_clip:{folder}", threads, device)
    kind = model_type(folder)
    if kind not in JOINT_TYPES and wants_frames and (folder / "modules.json").exists():
        return _load_library(f"st:{folder}", threads, device)
    if kind in JOINT_TYPES:
        from holmes.media.backbones.clip import KINDS

        return KINDS[kind](name, folder, threads, device)
    if wants_frames:
        raise HolmesError(f"{name} is a '{kind}' model; frames need one of {', '.join(JOINT_TYPES)}.")
    from holmes.media.backbones.text import TransformersText

    return TransformersText(name, folder, threads, device)
