"""Multimodal models of sentence-transformers: `st:OWNER/NAME`, or a folder saved by it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from holmes.base.files import read_json
from holmes.errors import HolmesError, missing_packages
from holmes.media.backbones.base import Image, Matrix, encode_in_batches
from holmes.media.backbones.pretrained import (
    computing_in,
    folder_digest,
    half_precision,
    limit_threads,
    make_torchvision_importable,
    model_folder,
    not_loaded,
    quiet_transformers,
    refuse_pickles,
)
from holmes.media.pictures import middle

MODULES = "modules.json"
OWN = "sentence_transformers."  # the modules a model may consist of; others would be code of its author
BATCH = 16
SIDE = 384  # these models take pictures of any size; larger frames are scaled to twice this


class SentenceTransformersModel:
    """One multimodal model. Rows have length 1."""

    joint = True
    rate = 2.0
    window = 1
    side = SIDE

    def __init__(self, name: str, threads: int | None = None, device: str = "auto") -> None:
        import torch

        from holmes.base.devices import device_named

        make_torchvision_importable()
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError:
            raise missing_packages(f"'{name}'", "sentence-transformers") from None
        quiet_transformers()
        self.name, folder = name, model_folder(name.removeprefix("st:"))
        check_modules(folder)
        refuse_pickles(folder)
        self.digest = folder_digest(folder, below=True)
        limit_threads(threads)
        self.device = device_named(device)
        try:
            self._model = SentenceTransformer(
                str(folder),
                device=str(self.device),
                trust_remote_code=False,
                local_files_only=True,
                model_kwargs={"use_safetensors": True, "dtype": torch.float32},
            ).eval()
        except Exception as error:  # others' code, and a file that may hold anything
            raise not_loaded(folder, "sentence-transformers", error) from None
        if not self._model.supports("image"):
            raise HolmesError(
                f"'{name}' reads {', '.join(map(str, self._model.modalities))} and no pictures; choose a "
                "multimodal model, or name it with --text."
            )
        self.precision = half_precision(self.device, self._model)
        self.width: int = self.sentences(["a first sentence"]).shape[1]

    def frames(self, images: Sequence[Image]) -> Matrix:
        return encode_in_batches(images, BATCH, self.width, self._encode)

    def sentences(self, sentences: Sequence[str]) -> Matrix:
        if not len(sentences):
            return np.zeros((0, self.width), np.float32)
        rows = self._model.encode_query(
            list(sentences), batch_size=BATCH, normalize_embeddings=True, show_progress_bar=False
        )
        return np.asarray(rows, np.float32)

    def tokens(self, sentences: Sequence[str]) -> list[Matrix]:
        """Token states where the model gives them; else a sentence is one token."""
        try:
            states = self._model.encode_query(
                list(sentences), batch_size=BATCH, output_value="token_embeddings", show_progress_bar=False
            )
            return [np.asarray(rows.float().cpu(), np.float32) for rows in states]
        except KeyError:
            return [row[None] for row in self.sentences(sentences)]

    def _encode(self, images: Sequence[Image]) -> Matrix:
        from PIL import Image as Pillow

        pictures = [Pillow.fromarray(middle(image)) for image in images]
        with computing_in(self.precision, self.device):
            rows = self._model.encode_document(
                pictures, batch_size=BATCH, convert_to_tensor=True, show_progress_bar=False
            )
        found: Matrix = rows.float().cpu().numpy()
        found /= np.linalg.norm(found, axis=1, keepdims=True)
        return found


def check_modules(folder: Path) -> None:
    """Refuse a model that consists of anything but the library's own modules, in its own folder."""
    if not (folder / MODULES).exists():
        raise HolmesError(f"{folder} has no {MODULES}; name a folder that sentence-transformers has written.")
    listed = read_json(folder / MODULES)
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
        raise HolmesError(f"{folder / MODULES} is not a list of modules.")
    for entry in listed:
        kind, path = str(entry.get("type", "")), str(entry.get("path", ""))
        if not kind.startswith(OWN):
            raise HolmesError(
                f"{folder} brings code of its own ({kind[:80]}), which Holmes does not run; choose a model "
                "that consists of sentence-transformers' modules."
            )
        if path and (Path(path).is_absolute() or ".." in Path(path).parts):
            raise HolmesError(f"{folder / MODULES} leads out of its folder ({path[:80]}).")
