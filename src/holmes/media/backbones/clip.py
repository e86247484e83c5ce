"""CLIP, SigLIP and SigLIP 2: frames and sentences in one space, through `transformers`.

Shapes: B items of a batch, T tokens, D width of the joint space.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from holmes.errors import HolmesError
from holmes.media.backbones.base import Image, Matrix, encode_in_batches
from holmes.media.backbones.pretrained import folder_digest, load_model, load_part
from holmes.media.backbones.text import readable_part
from holmes.media.pictures import middle

BATCH = 32
FEWEST_TOKENS = 8  # `transformers` makes a tokenizer of a few marks where a folder has none


class ClipBackbone:
    """One joint model. Rows have length 1."""

    joint = True
    rate = 2.0
    window = 1

    def __init__(self, name: str, folder: Path, threads: int | None = None, device: str = "auto") -> None:
        self.name = name
        self.digest = folder_digest(folder)
        # The Pillow code gives the pixels the models were trained with, and needs no torchvision.
        self._processor = load_part("AutoImageProcessor", folder, backend="pil")
        self._tokenizer = load_part("AutoTokenizer", folder)
        self._model = load_model(folder, threads, device)
        self.device = self._model.device
        text = self._model.config.text_config
        check_vocabulary(self._tokenizer, text.vocab_size, name)
        self._longest: int = text.max_position_embeddings
        self.width: int = getattr(self._model.config, "projection_dim", None) or text.projection_size
        self.side: int = getattr(self._model.config.vision_config, "image_size", 256)
        # SigLIP attends to its padding: it was trained without a mask.
        self._text_inputs = ["input_ids"] + ["attention_mask"] * (self._model.config.model_type == "clip")

    def frames(self, images: Sequence[Image]) -> Matrix:
        return encode_in_batches(images, BATCH, self.width, self._encode)

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

        project = getattr(self._model, "text_projection", None) or self._model.text_model.head
        found: list[Matrix] = []
        for batch in self._tokenized(sentences):
            with torch.inference_mode():
                states_BTD = project(self._model.text_model(**batch).last_hidden_state).float().cpu().numpy()
            # What follows the first end mark is padding.
            ids_BT = batch["input_ids"].cpu().numpy()
            end = self._tokenizer.eos_token_id
            for states_TD, ids_T in zip(states_BTD, ids_BT, strict=True):
                ends = np.flatnonzero(ids_T == end)
                found.append(states_TD[: ends[0] + 1 if len(ends) else len(ids_T)])
        return found

    def _encode(self, images: Sequence[Image]) -> Matrix:
        import torch

        pixels = self._processor(images=[middle(image) for image in images], return_tensors="pt")
        with torch.inference_mode():
            return _unit(_pooled(self._model.get_image_features(**pixels.to(self._model.device))))

    def readable(self, sentence: str) -> str:
        """The beginning of a sentence that the model reads; further words are cut off."""
        return readable_part(self._tokenizer, sentence, self._longest)

    def _tokenized(self, sentences: Sequence[str]) -> Iterator[Any]:
        """Padded to the longest the model knows: SigLIP was trained so, and CLIP does not mind."""
        for start in range(0, len(sentences), BATCH):
            batch = self._tokenizer(
                list(sentences[start : start + BATCH]),
                padding="max_length",
                truncation=True,
                max_length=self._longest,
                return_tensors="pt",
            )
            yield {name: batch[name].to(self._model.device) for name in self._text_inputs}


def check_vocabulary(tokenizer: Any, known: int, name: str) -> None:
    """Refuse a tokenizer that has more tokens than the model, or hardly any."""
    if not FEWEST_TOKENS <= len(tokenizer) <= known:
        raise HolmesError(
            f"the tokenizer of '{name}' has {len(tokenizer):,} tokens and the model knows {known:,}; put the "
            "model's own tokenizer into its folder."
        )


def _pooled(output: Any) -> Any:
    """The projected features; older versions of the library return them bare."""
    return getattr(output, "pooler_output", output)


def _unit(features_BD: Any) -> Matrix:
    rows: Matrix = features_BD.float().cpu().numpy()
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows
