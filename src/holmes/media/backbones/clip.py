"""Joint models in `transformers` folders: frames or windows of frames, and sentences, in one space.

CLIP, SigLIP, SigLIP 2 and MetaCLIP 2 see single frames. X-CLIP and VideoPrism see windows of frames.

Shapes: B items of a batch, W frames of a window, T tokens, D width of the joint space.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from holmes.base.files import read_json
from holmes.errors import HolmesError
from holmes.media.backbones.base import Image, Matrix, encode_in_batches
from holmes.media.backbones.pretrained import (
    computing_in,
    folder_digest,
    half_precision,
    load_model,
    load_part,
)
from holmes.media.backbones.text import readable_part
from holmes.media.pictures import middle, resized

BATCH = 32  # frames
FRAMES_EACH = 4  # that a thread prepares at a time
FEWEST_TOKENS = 8  # `transformers` makes a tokenizer of a few marks where a folder has none
WITH_MASK = ("clip", "metaclip_2", "xclip", "videoprism")  # SigLIP attends to its padding: it was trained so
VIDEO_RATE = 8.0  # frames per second of models that see motion: a window of eight is a second
VIDEO_SETTINGS = ("video_preprocessor_config.json", "preprocessor_config.json", "processor_config.json")


class ClipBackbone:
    """One joint model of single frames. Rows have length 1."""

    joint = True
    rate = 2.0
    window = 1

    def __init__(self, name: str, folder: Path, threads: int | None = None, device: str = "auto") -> None:
        self.name = name
        self.digest = folder_digest(folder)
        self._processor = self._load_processor(folder)
        self._threads = ThreadPoolExecutor(threads or None)
        self._tokenizer = load_part("AutoTokenizer", folder)
        self._model = load_model(folder, threads, device)
        self.device = self._model.device
        config = self._model.config
        text = config.text_config
        check_vocabulary(self._tokenizer, text.vocab_size, name)
        self._longest: int = text.max_position_embeddings
        self.width = joint_width(config)
        self.side: int = getattr(config.vision_config, "image_size", 256)
        self.precision = half_precision(self.device, self._model)
        self._text_inputs = ["input_ids"] + ["attention_mask"] * (config.model_type in WITH_MASK)

    def frames(self, images: Sequence[Image]) -> Matrix:
        batch = max(BATCH // self.window, 1) * self.window
        return encode_in_batches(images, batch, self.width, self._encode)

    def sentences(self, sentences: Sequence[str]) -> Matrix:
        import torch

        rows = [np.zeros((0, self.width), np.float32)]
        for batch in self._tokenized(sentences):
            with torch.inference_mode():
                rows.append(_unit(_pooled(self._model.get_text_features(**batch))))
        return np.concatenate(rows)

    def tokens(self, sentences: Sequence[str]) -> list[Matrix]:
        """Each token's state through the projection that the whole sentence goes through."""
        import torch

        text_model = self._model.text_model
        project: Any = getattr(self._model, "text_projection", None)
        if project is None:
            project = getattr(text_model, "head", _unchanged)
        found: list[Matrix] = []
        for batch in self._tokenized(sentences):
            ids_BT = batch["input_ids"].cpu().numpy()
            with torch.inference_mode():
                states = project(text_model(**batch).last_hidden_state)
            states_BTD = states.float().cpu().numpy()
            for states_TD, ids_T in zip(states_BTD, ids_BT, strict=True):
                found.append(states_TD[: self._count(ids_T)])
        return found

    def readable(self, sentence: str) -> str:
        """The beginning of a sentence that the model reads; further words are cut off."""
        return readable_part(self._tokenizer, sentence, self._longest)

    def _load_processor(self, folder: Path) -> Any:
        """What turns frames into the pixels that the model takes."""
        # The Pillow code gives the pixels the models were trained with, and needs no torchvision.
        return load_part("AutoImageProcessor", folder, backend="pil")

    def _encode(self, images: Sequence[Image]) -> Matrix:
        import torch

        pixels = self._pixels(images)
        with torch.inference_mode(), computing_in(self.precision, self.device):
            return _unit(_pooled(self._features(pixels)))

    def _pixels(self, images: Sequence[Image]) -> dict[str, Any]:
        """What the model takes, on its device. Several threads prepare: a GPU sees faster than one can."""
        import torch

        def prepared(some: Sequence[Image]) -> Any:
            return self._processor(images=[middle(image) for image in some], return_tensors="pt")

        parts = [images[start : start + FRAMES_EACH] for start in range(0, len(images), FRAMES_EACH)]
        found = list(self._threads.map(prepared, parts))
        return {name: torch.cat([part[name] for part in found]).to(self.device) for name in found[0]}

    def _features(self, pixels: dict[str, Any]) -> Any:
        return self._model.get_image_features(**pixels)

    def _count(self, ids_T: np.ndarray) -> int:
        """How many tokens belong to the sentence: what follows the first end mark is padding."""
        ends = np.flatnonzero(ids_T == self._tokenizer.eos_token_id)
        return int(ends[0]) + 1 if len(ends) else len(ids_T)

    def _tokenized(self, sentences: Sequence[str]) -> Iterator[Any]:
        """Padded to the longest the model knows: SigLIP was trained so, and the others do not mind."""
        for start in range(0, len(sentences), BATCH):
            batch = self._tokenizer(
                list(sentences[start : start + BATCH]),
                padding="max_length",
                truncation=True,
                max_length=self._longest,
                return_tensors="pt",
            )
            yield {name: batch[name].to(self.device) for name in self._text_inputs}


class XClip(ClipBackbone):
    """X-CLIP: a row for a window of frames. Its sentences are read without regard to a video."""

    rate = VIDEO_RATE

    def __init__(self, name: str, folder: Path, threads: int | None = None, device: str = "auto") -> None:
        super().__init__(name, folder, threads, device)
        self.window = int(self._model.config.vision_config.num_frames)

    def _features(self, pixels: dict[str, Any]) -> Any:
        frames = pixels["pixel_values"]
        return self._model.get_video_features(frames.view(-1, self.window, *frames.shape[1:]))


class VideoPrism(ClipBackbone):
    """VideoPrism with its text encoder: a row for a window of frames."""

    rate = VIDEO_RATE

    def __init__(self, name: str, folder: Path, threads: int | None = None, device: str = "auto") -> None:
        super().__init__(name, folder, threads, device)
        vision = self._model.config.vision_config
        self.window, size = int(vision.num_frames), vision.image_size
        self.side = int(size if isinstance(size, int) else max(size))

    def _load_processor(self, folder: Path) -> Any:
        return VideoPixels(folder)

    def _features(self, pixels: dict[str, Any]) -> Any:
        frames = pixels["pixel_values"]
        found = self._model.get_video_features(frames.view(-1, self.window, *frames.shape[1:]))
        return _pooled(found).flatten(1)  # one vector for each window

    def _count(self, ids_T: np.ndarray) -> int:
        return max(1, int((ids_T != self._tokenizer.pad_token_id).sum()))  # it has no end mark


class VideoPixels:
    """Frames to pixels as a folder's video processor says; `transformers` would need torchvision for it."""

    def __init__(self, folder: Path) -> None:
        wanted: dict[str, Any] = {}
        for file in VIDEO_SETTINGS:
            read = read_json(folder / file) if (folder / file).exists() else {}
            wanted = {**(read.get("video_processor") or read), **wanted} if isinstance(read, dict) else wanted
        if not wanted:
            raise HolmesError(f"{folder} has no {VIDEO_SETTINGS[0]}; copy it there from the model's page.")
        size = wanted.get("size") or {}
        side = size.get("shortest_edge", 288)
        self.size = int(size.get("width", side)), int(size.get("height", side))
        self.factor = float(wanted.get("rescale_factor", 1 / 255)) if wanted.get("do_rescale", True) else 1.0
        normal = wanted.get("do_normalize", False)
        self.mean = wanted.get("image_mean", [0.0] * 3) if normal else [0.0] * 3
        self.deviation = wanted.get("image_std", [1.0] * 3) if normal else [1.0] * 3

    def __call__(self, images: Sequence[Image], return_tensors: str = "pt") -> dict[str, Any]:
        import torch

        pixels = torch.from_numpy(np.stack([resized(image, self.size) for image in images])).float()
        normal = (pixels * self.factor - torch.tensor(self.mean)) / torch.tensor(self.deviation)
        return {"pixel_values": normal.permute(0, 3, 1, 2)}


KINDS = {  # model_type of a folder → its class
    "clip": ClipBackbone,
    "siglip": ClipBackbone,
    "siglip2": ClipBackbone,
    "metaclip_2": ClipBackbone,
    "xclip": XClip,
    "videoprism": VideoPrism,
}


def joint_width(config: Any) -> int:
    """The width of the space that frames and sentences share."""
    text = config.text_config
    found = getattr(config, "projection_dim", None) or getattr(text, "projection_size", None)
    return int(found or text.hidden_size)


def check_vocabulary(tokenizer: Any, known: int, name: str) -> None:
    """Refuse a tokenizer that has more tokens than the model, or hardly any."""
    if not FEWEST_TOKENS <= len(tokenizer) <= known:
        raise HolmesError(
            f"the tokenizer of '{name}' has {len(tokenizer):,} tokens and the model knows {known:,}; put the "
            "model's own tokenizer into its folder."
        )


def _unchanged(states: Any) -> Any:
    return states


def _pooled(output: Any) -> Any:
    """The projected features; older versions of the library return them bare."""
    return getattr(output, "pooler_output", output)


def _unit(features_BD: Any) -> Matrix:
    rows: Matrix = features_BD.float().cpu().numpy()
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows
