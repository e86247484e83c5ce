"""Frame features of image classifiers of timm or torchvision, without their last layer.

`timm:NAME` and `torchvision:NAME` use the library's pretrained weights, `timm:NAME@FILE.safetensors` a file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from holmes.errors import HolmesError, first_sentence, missing_packages
from holmes.media.backbones.base import Image, Matrix, encode_in_batches
from holmes.media.backbones.pretrained import limit_threads, make_torchvision_importable
from holmes.media.pictures import square

BATCH = 32
HEADS = ("fc", "classifier", "heads", "head")  # what torchvision's models call their classifier


@dataclass(frozen=True)
class Preparation:
    """How a model wants its pictures: scaled to `scaled`, cropped to `side`, values normalised."""

    side: int = 224
    scaled: int = 256
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    deviation: tuple[float, ...] = (0.229, 0.224, 0.225)


class ImageModel:
    joint = False
    rate = 2.0
    window = 1

    def __init__(self, name: str, threads: int | None = None, device: str = "auto") -> None:

        from holmes.base.devices import device_named

        limit_threads(threads)
        library, _, wanted = name.partition(":")
        model_name, _, file = wanted.partition("@")
        make_torchvision_importable()
        load = {"timm": _load_timm, "torchvision": _load_torchvision}[library]
        try:
            model, self._preparation = load(model_name, pretrained=not file)
            if file:
                _load_weights(model, Path(file))
        except HolmesError:
            raise
        except ImportError:
            raise missing_packages(f"'{name}'", library) from None
        except Exception as error:
            raise HolmesError(
                f"'{name}' cannot be loaded from {library} ({first_sentence(error)}). Download its weights "
                f"elsewhere and write {library}:{model_name}@FILE.safetensors."
            ) from None
        self.name, self.side = name, self._preparation.side
        self.device = device_named(device)
        self._model = model.eval().to(self.device)
        self.digest = _digest(model, self._preparation)
        self.width: int = self._encode([np.zeros((self.side, self.side, 3), np.uint8)]).shape[1]

    def frames(self, images: Sequence[Image]) -> Matrix:
        return encode_in_batches(images, BATCH, self.width, self._encode)

    def _encode(self, images: Sequence[Image]) -> Matrix:
        import torch

        squares = np.stack([square(image, self.side, self._preparation.scaled) for image in images])
        pixels = torch.from_numpy(squares).to(self.device).float() / 255
        mean, deviation = (
            pixels.new_tensor(self._preparation.mean),
            pixels.new_tensor(self._preparation.deviation),
        )
        with torch.inference_mode():
            features = self._model(((pixels - mean) / deviation).permute(0, 3, 1, 2))
        rows: Matrix = features.flatten(1).float().cpu().numpy()
        return rows


def _load_timm(name: str, pretrained: bool) -> tuple[Any, Preparation]:
    import timm

    model = timm.create_model(name, pretrained=pretrained, num_classes=0)
    wanted = timm.data.resolve_data_config({}, model=model)
    side = wanted["input_size"][-1]
    scaled = round(side / wanted["crop_pct"])
    return model, Preparation(side, scaled, tuple(wanted["mean"]), tuple(wanted["std"]))


def _load_torchvision(name: str, pretrained: bool) -> tuple[Any, Preparation]:
    import torch
    from torchvision import models

    preparation = Preparation()
    weights = models.get_model_weights(name).DEFAULT if pretrained else None
    if weights is not None:
        wanted = weights.transforms()
        preparation = Preparation(
            wanted.crop_size[0], wanted.resize_size[0], tuple(wanted.mean), tuple(wanted.std)
        )
    model = models.get_model(name, weights=weights)
    for head in HEADS:
        if hasattr(model, head):
            setattr(model, head, torch.nn.Identity())
    return model, preparation


def _load_weights(model: Any, file: Path) -> None:
    """Load the weights of the headless model; those of a classifier in the file are left out."""
    from safetensors.torch import load_file

    weights = load_file(file)
    missing = sorted(set(model.state_dict()) - set(weights))
    if missing:
        raise HolmesError(f"{file} lacks weights the model has, such as {missing[0]}.")
    model.load_state_dict({name: weights[name] for name in model.state_dict()})


def _digest(model: Any, preparation: Preparation) -> str:
    digest = hashlib.sha256(repr(preparation).encode())
    for name, tensor in model.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
