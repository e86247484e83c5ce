"""BERT's text encoder in plain torch, and its tokenizer.

`transformers` computes the same, but importing it takes several seconds: most of what a search would cost.
Models of another form than the plain one (other activations, relative positions, no tokenizer.json) are left
to it.

The tokens of sentences of all lengths go through the layers as rows of one matrix, and only attention sees
whose they are. There is no padding: it would take time, and would change the last digits of a sentence's
states with the others that are encoded at once.

Shapes: N tokens of all sentences, B sentences of equal length, T tokens of one, H heads, E width of one head,
D = H · E.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from holmes.base.devices import device_named
from holmes.base.files import read_json
from holmes.errors import HolmesError, in_one_line
from holmes.media.backbones.base import Index, by_length

WEIGHTS, TOKENIZER, CONFIG = "model.safetensors", "tokenizer.json", "config.json"
PLAIN = {"model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute"}
BATCH = 64  # sentences
FEWEST_TOKENS = 16  # products of fewer rows are computed in another way, with other last digits
USUAL = {"hidden_act": "gelu", "position_embedding_type": "absolute"}  # where a folder does not say


def is_plain_bert(folder: Path) -> bool:
    """Whether the model in `folder` is one that this file computes."""
    if not all((folder / file).exists() for file in (WEIGHTS, TOKENIZER, CONFIG)):
        return False
    config = read_json(folder / CONFIG)
    if not isinstance(config, dict) or config.get("is_decoder") or config.get("add_cross_attention"):
        return False
    return all((USUAL | config).get(name) == value for name, value in PLAIN.items())


class Bert:
    """Sentences to the token states of the last layer."""

    def __init__(self, folder: Path, longest: int, device: str = "auto") -> None:
        from tokenizers import Tokenizer

        config = read_json(folder / CONFIG)
        self.device = device_named(device)
        try:
            self.width, self.heads = int(config["hidden_size"]), int(config["num_attention_heads"])
            self.layers, self._tiny = int(config["num_hidden_layers"]), float(config["layer_norm_eps"])
            self._weights = _read(folder / WEIGHTS, self.device)
            self._tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
            positions = len(self._weights["embeddings.position_embeddings.weight"])
            self._tokenizer.enable_truncation(min(longest, positions))
            self._tokenizer.no_padding()
            list(self.states(["a first sentence, so that a missing weight is noticed now"]))
        except Exception as error:  # others' code, and a file that may hold anything
            reason = in_one_line(error)
            raise HolmesError(f"{folder} cannot be loaded as a model ({reason}).") from None

    def states(self, sentences: Sequence[str]) -> Iterator[tuple[Index, Tensor]]:
        """Sentences of equal length: where they stand, and the states of their tokens, B × T × D."""
        ids = [found.ids for found in self._tokenizer.encode_batch(list(sentences))]
        order = np.concatenate([np.zeros(0, np.int64), *by_length(ids)])
        for start in range(0, len(order), BATCH):
            index = order[start : start + BATCH]
            groups = [index[alike] for alike in by_length([ids[i] for i in index])]
            yield from zip(groups, self._encode([[ids[i] for i in group] for group in groups]), strict=True)

    def readable(self, sentence: str) -> str:
        """The beginning of a sentence that its longest input holds; all of most sentences."""
        found = self._tokenizer.encode(sentence)
        return sentence[: max(end for _, end in found.offsets)] if found.overflowing else sentence

    def _encode(self, groups: list[list[list[int]]]) -> list[Tensor]:
        """The states of sentences, given by their tokens, in groups of equal length."""
        count, tokens = len(groups), [token for group in groups for ids in group for token in ids]
        copies = -(-FEWEST_TOKENS // max(1, len(tokens)))
        groups, ids_N = groups * copies, torch.tensor(tokens * copies, device=self.device)
        shapes = [(len(group), len(group[0])) for group in groups]
        position_N = torch.cat([torch.arange(T, device=self.device).repeat(B) for B, T in shapes])
        words, types, positions = (
            self._weights[f"embeddings.{what}_embeddings.weight"]
            for what in ("word", "token_type", "position")
        )
        with torch.inference_mode():
            states_ND = self._norm(words[ids_N] + types[0] + positions[position_N], "embeddings.LayerNorm")
            for number in range(self.layers):
                layer = f"encoder.layer.{number}"
                context_ND = self._attend(states_ND, shapes, f"{layer}.attention.self")
                context_ND = self._linear(context_ND, f"{layer}.attention.output.dense")
                states_ND = self._norm(states_ND + context_ND, f"{layer}.attention.output.LayerNorm")
                hidden = F.gelu(self._linear(states_ND, f"{layer}.intermediate.dense"))
                states_ND = states_ND + self._linear(hidden, f"{layer}.output.dense")
                states_ND = self._norm(states_ND, f"{layer}.output.LayerNorm")
        parts = states_ND.split([B * T for B, T in shapes])
        return [part.unflatten(0, shape) for part, shape in zip(parts[:count], shapes, strict=False)]

    def _attend(self, states_ND: Tensor, shapes: list[tuple[int, int]], name: str) -> Tensor:
        """Every token attends to the tokens of its own sentence."""
        sizes = [B * T for B, T in shapes]
        projected = (
            self._linear(states_ND, f"{name}.{what}").split(sizes) for what in ("query", "key", "value")
        )
        context = []
        for *parts, shape in zip(*projected, shapes, strict=True):
            heads = (part.view(*shape, self.heads, -1).transpose(1, 2) for part in parts)  # B × H × T × E
            context.append(F.scaled_dot_product_attention(*heads).transpose(1, 2).reshape(-1, self.width))
        return torch.cat(context)

    def _linear(self, inputs: Tensor, name: str) -> Tensor:
        return F.linear(inputs, self._weights[f"{name}.weight"], self._weights[f"{name}.bias"])

    def _norm(self, states_ND: Tensor, name: str) -> Tensor:
        weight, bias = self._weights[f"{name}.weight"], self._weights[f"{name}.bias"]
        return F.layer_norm(states_ND, (self.width,), weight, bias, self._tiny)


def _read(path: Path, device: torch.device) -> Mapping[str, Tensor]:
    """The weights in float32, by the names they have without the prefix of a larger model."""
    from safetensors.torch import load_file

    kept: dict[str, Any] = {}
    for name, tensor in load_file(path).items():
        plain = name.removeprefix("bert.").replace("LayerNorm.gamma", "LayerNorm.weight")
        plain = plain.replace("LayerNorm.beta", "LayerNorm.bias")
        kept[plain] = tensor.to(device, torch.float32) if tensor.is_floating_point() else tensor
    return kept
