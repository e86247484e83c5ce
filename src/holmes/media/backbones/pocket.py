"""The pocket model: Lite2 frames and MiniLM sentences in one space, by small trained heads.

It ships with Holmes, so that people can search their own videos without captions and without a download. The
weights and their model card lie in `holmes/media/pocket`; `tools/train_pocket.py` makes them. A frame is
described by its principal components and by what Lite2's classifier sees in it, as a mean of class-name
sentences.

Shapes: M members, N rows, P principal components, K classes, S width of sentences; I inputs, H hidden numbers
and W outputs of a member.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from holmes.base.files import read_json, sha256_file
from holmes.errors import HolmesError
from holmes.media.backbones.base import Image, Matrix
from holmes.media.backbones.lite2 import SIDE, Lite2, weights_path
from holmes.media.backbones.pretrained import folder_digest
from holmes.media.backbones.text import TransformersText, load_minilm, minilm_folder

WEIGHTS = Path(__file__).parents[1] / "pocket" / "pocket.safetensors"
CALIBRATION = "calibration.json"  # beside the weights
SCALE = ".scale"  # ends the names of the factors of rows that are kept as bytes
# Opening words of a sentence that do not describe the scene.
FRAME = re.compile(r"(there (is|are)|(a |the |this )?(video|clip|film)s? (of|with|showing)|this is)\s+", re.I)
ARTICLE = re.compile(r"(a|an|the|some)\s+", re.I)
NORM_TINY = 1e-5
READ_AT_ONCE = 8  # sentences through the heads
NAME_SCALE = 10.0  # brings class-name sentences, of length 1, to the size of normalised components


class Pocket:
    """Frames and sentences to rows of length 1; their dot product is the cosine."""

    name = "pocket"
    joint = True
    side = scaled_side = SIDE
    rate = 2.0
    window = 1

    def __init__(self, threads: int | None = None, path: Path = WEIGHTS, device: str = "auto") -> None:
        self._threads, self._path, self._device = threads, path, device
        self._weights = read_weights(path)
        self.width = self._weights["projection"].shape[1]
        parts = (sha256_file(path), sha256_file(weights_path()), folder_digest(minilm_folder()))
        self.digest = hashlib.sha256(" ".join(parts).encode()).hexdigest()

    def frames(self, images: Sequence[Image]) -> Matrix:
        centred: Matrix = self._lite2.frames(images) - self._weights["pca.mean"]
        return self.see(centred @ self._weights["pca.basis"])

    def sentences(self, sentences: Sequence[str]) -> Matrix:
        return self.read(self._minilm.sentences(sentences))

    def readable(self, sentence: str) -> str:
        """The beginning of a sentence that the model reads; further words are cut off."""
        return self._minilm.readable(sentence)

    @staticmethod
    def neutral_forms(sentence: str) -> list[str]:
        """A sentence as people may word it; the mean of these does not depend on which one they chose."""
        core = core_of(sentence)
        return [core, f"a {core}", f"there is a {core}", f"a video of a {core}"]

    def tokens(self, sentences: Sequence[str]) -> list[Matrix]:
        """Each token by itself, as if it were a sentence."""
        return [self.read(states) for states in self._minilm.tokens(sentences)]

    def see(self, components_NP: Matrix) -> Matrix:
        """Principal components of Lite2 features into the joint space."""
        return self._heads("visual", components_NP, self._named(components_NP))

    def read(self, sentences_NS: Matrix) -> Matrix:
        """MiniLM vectors into the joint space.

        Always so many rows at once: a product of more or fewer may be summed in another order, and a sentence
        shall have the same vector alone and among others.
        """
        count = len(sentences_NS)
        padded_NS = np.pad(sentences_NS, ((0, -count % READ_AT_ONCE), (0, 0)), constant_values=1.0)
        starts = range(0, len(padded_NS), READ_AT_ONCE)
        read = [self._heads("text", padded_NS[start : start + READ_AT_ONCE]) for start in starts]
        return np.concatenate([np.zeros((0, self.width), np.float32), *read])[:count]

    @cached_property
    def calibration(self) -> dict[str, Any] | None:
        """Its calibration; None where that was made for other weights or encoders."""
        file = self._path.with_name(CALIBRATION)
        kept = read_json(file) if file.exists() else {}
        return kept if kept.get("model") == self.digest else None

    @cached_property
    def _lite2(self) -> Lite2:
        """Loaded on first use: a search encodes no frames."""
        return Lite2(self._threads)

    @cached_property
    def _minilm(self) -> TransformersText:
        """Loaded on first use: extraction needs no sentences, and no torch."""
        return load_minilm(self._threads, self._device)

    def _named(self, components_NP: Matrix) -> Matrix:
        """What the classifier sees in each frame, as the mean sentence of the class names, N × S."""
        logits_NK = components_NP @ self._weights["classes.weight"] + self._weights["classes.bias"]
        odds_NK = np.exp(logits_NK - logits_NK.max(axis=1, keepdims=True))
        named: Matrix = (odds_NK / odds_NK.sum(axis=1, keepdims=True)) @ self._weights["classes.names"]
        return named * np.float32(NAME_SCALE)

    def _heads(self, side: str, rows: Matrix, extra: Matrix | None = None) -> Matrix:
        """All members at once, each of length 1, set side by side and projected."""
        layer = {
            name.removeprefix(f"{side}."): tensor
            for name, tensor in self._weights.items()
            if name.startswith(f"{side}.")
        }
        centred = rows - rows.mean(axis=1, keepdims=True)
        normal = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + NORM_TINY)
        inputs_MNI = normal * layer["norm.weight"] + layer["norm.bias"]
        if extra is not None:
            every = np.broadcast_to(extra, (len(inputs_MNI), *extra.shape))
            inputs_MNI = np.concatenate([inputs_MNI, every], axis=2)
        hidden_MNH = np.maximum(inputs_MNI @ layer["hidden.weight"] + layer["hidden.bias"], 0)
        output_MNW = hidden_MNH @ layer["out.weight"] + inputs_MNI @ layer["skip.weight"] + layer["out.bias"]
        joined = np.concatenate(list(_unit(output_MNW)), axis=1)
        return _unit(joined @ self._weights["projection"])


def core_of(sentence: str) -> str:
    """A sentence without what only says that something is shown, and without its first article."""
    return _after(ARTICLE, _after(FRAME, sentence.strip())) or sentence


def _after(beginning: re.Pattern[str], sentence: str) -> str:
    found = beginning.match(sentence)
    return sentence[found.end() :] if found else sentence


def _unit(rows: Matrix) -> Matrix:
    unit: Matrix = rows / np.linalg.norm(rows, axis=-1, keepdims=True)
    return unit


def read_weights(path: Path) -> dict[str, Matrix]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        kept = {name: tensor.astype(np.float32) for name, tensor in load_file(path).items()}
    except (SafetensorError, OSError) as error:
        raise HolmesError(
            f"the pocket model's weights cannot be read ({error}); install Holmes again."
        ) from None
    scales = {name: kept.pop(name + SCALE) for name in list(kept) if name + SCALE in kept}
    return kept | {name: kept[name] * scale for name, scale in scales.items()}
