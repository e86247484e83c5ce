"""Models of open_clip: `open_clip:NAME`, `open_clip:NAME:WEIGHTS`, `open_clip:OWNER/NAME`, a folder.

Such a folder has open_clip_config.json and the weights as safetensors, as the library writes it.

Shapes: B items of a batch, T tokens, D width of the joint space.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from holmes.base.files import read_json
from holmes.errors import HolmesError, missing_packages, unknown
from holmes.media.backbones.base import Image, Matrix, encode_in_batches
from holmes.media.backbones.pretrained import (
    computing_in,
    folder_digest,
    half_precision,
    limit_threads,
    make_torchvision_importable,
    model_folder,
    not_loaded,
    refuse_pickles,
)
from holmes.media.pictures import middle

CONFIG = "open_clip_config.json"
BATCH = 32
MOST_NEAR = 8  # of the names that a message offers: the library knows more than a hundred


class OpenClip:
    """One joint model. Rows have length 1."""

    joint = True
    rate = 2.0
    window = 1

    def __init__(self, name: str, threads: int | None = None, device: str = "auto") -> None:
        import torch

        from holmes.base.devices import device_named

        library = import_open_clip()
        self.name, folder = name, open_clip_folder(name.removeprefix("open_clip:"))
        self.digest = folder_digest(folder)
        limit_threads(threads)
        self.device = device_named(device)
        _check_config(folder)
        refuse_pickles(folder)
        before = logging.root.manager.disable
        logging.disable(logging.WARNING)  # the library logs every step
        try:
            source = f"local-dir:{folder}"
            model, _, self._prepare = library.create_model_and_transforms(source, require_pretrained=True)
            self._tokenize = library.get_tokenizer(source)
        except Exception as error:  # others' code, and a file that may hold anything
            raise not_loaded(folder, "open_clip", error) from None
        finally:
            logging.disable(before)
        self._model = model.eval().to(self.device, torch.float32)
        self.precision = half_precision(self.device, model)
        if self.precision is not None and self.device.type == "cpu":
            model.visual.to(self.precision)  # autocasting these models is slower than float32 on a CPU
        self._threads = ThreadPoolExecutor(threads or None)
        side = model.visual.image_size
        self.side: int = side if isinstance(side, int) else max(side)
        self.width: int = self.sentences(["a first sentence"]).shape[1]

    def frames(self, images: Sequence[Image]) -> Matrix:
        return encode_in_batches(images, BATCH, self.width, self._encode)

    def sentences(self, sentences: Sequence[str]) -> Matrix:
        import torch

        rows = [np.zeros((0, getattr(self, "width", 0)), np.float32)][len(sentences) > 0 :]
        for ids_BT in self._tokenized(sentences):
            with torch.inference_mode():
                rows.append(self._model.encode_text(ids_BT, normalize=True).float().cpu().numpy())
        return np.concatenate(rows)

    def tokens(self, sentences: Sequence[str]) -> list[Matrix]:
        """Each token's state through the projection that the whole sentence goes through."""
        import torch

        tower = getattr(self._model, "text", self._model)
        projection = getattr(tower, "text_projection", None)
        if not hasattr(tower, "ln_final"):  # the text model of another library: a sentence is one token
            return [row[None] for row in self.sentences(sentences)]
        found: list[Matrix] = []
        kept: list[Any] = []
        hook = tower.ln_final.register_forward_hook(lambda module, inputs, output: kept.append(output))
        try:
            for ids_BT in self._tokenized(sentences):
                kept.clear()
                with torch.inference_mode():
                    self._model.encode_text(ids_BT)
                    states_BTD = kept[0]
                    if isinstance(projection, torch.nn.Linear):
                        states_BTD = projection(states_BTD)
                    elif projection is not None:
                        states_BTD = states_BTD @ projection
                for states_TD, ids_T in zip(states_BTD.float().cpu().numpy(), ids_BT.tolist(), strict=True):
                    found.append(states_TD[: _without_padding(ids_T)])
        finally:
            hook.remove()
        return found

    def _encode(self, images: Sequence[Image]) -> Matrix:
        import torch
        from PIL import Image as Pillow

        def prepared(image: Image) -> Any:
            return self._prepare(Pillow.fromarray(middle(image)))

        pixels = torch.stack(list(self._threads.map(prepared, images)))
        weights = next(self._model.visual.parameters())
        automatic = self.precision if weights.dtype == torch.float32 else None
        pixels = pixels.to(self.device, weights.dtype)
        with torch.inference_mode(), computing_in(automatic, self.device):
            features = self._model.encode_image(pixels)
        rows: Matrix = torch.nn.functional.normalize(features.float(), dim=-1).cpu().numpy()
        return rows

    def _tokenized(self, sentences: Sequence[str]) -> Iterator[Any]:
        for start in range(0, len(sentences), BATCH):
            yield self._tokenize(list(sentences[start : start + BATCH])).to(self.device)


def _without_padding(ids: list[int]) -> int:
    """How many tokens a sentence has: the last one repeats to the end where there is padding."""
    end = len(ids)
    while end > 1 and ids[end - 1] == ids[-1] == ids[end - 2]:
        end -= 1
    return end - 1 if 1 < end < len(ids) else end


def import_open_clip() -> Any:
    make_torchvision_importable()
    try:
        import open_clip
    except ImportError:
        raise missing_packages("an encoder of open_clip", "open-clip-torch") from None
    return open_clip


def open_clip_folder(name: str) -> Path:
    """The folder of a model: a path, or what a hub holds under the library's own names."""
    if "/" in name or Path(name).is_dir():
        return model_folder(name)
    return model_folder(repository_of(name))


def repository_of(name: str) -> str:
    """OWNER/NAME on a hub of a model that the library knows by NAME or NAME:WEIGHTS."""
    library = import_open_clip()
    architecture, _, weights = name.partition(":")
    known = library.list_pretrained_tags_by_model(architecture)
    if not known:
        models = {model for model, _ in library.list_pretrained()}
        near = get_close_matches(architecture, models, MOST_NEAR, cutoff=0)
        raise unknown("model of open_clip", architecture, near)
    if weights and weights not in known:
        raise unknown(f"weights of open_clip:{architecture}", weights, known)
    if not weights and len(known) > 1:
        raise HolmesError(
            f"open_clip:{architecture} has several sets of weights; write open_clip:{architecture}:WEIGHTS "
            f"with one of {', '.join(known)}."
        )
    found = library.get_pretrained_cfg(architecture, weights or known[0]).get("hf_hub", "")
    if not found:
        raise HolmesError(
            f"open_clip:{name} is not published as safetensors; choose other weights of {architecture}: "
            f"{', '.join(known)}."
        )
    owner, repository = found.split("/")[:2]
    return f"{owner}/{repository}"


def _check_config(folder: Path) -> None:
    """Refuse a configuration that would have the library download a part of the model."""
    if not (folder / CONFIG).exists():
        raise HolmesError(f"{folder} has no {CONFIG}; name a folder that open_clip has written.")
    config = read_json(folder / CONFIG)
    if not isinstance(config, dict) or not isinstance(config.get("model_cfg"), dict):
        raise HolmesError(f"{folder / CONFIG} is not a configuration of open_clip.")
