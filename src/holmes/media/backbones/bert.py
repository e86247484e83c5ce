"""BERT's text encoder in plain torch, and its tokenizer.

`transformers` computes the same, but importing it takes several seconds: most of what a search would cost.
Models of another form than the plain one (other activations, relative positions, no tokenizer.json) are left
to it.

Shapes: B sentences, T tokens, H heads, E width of one head, D = H · E.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from holmes.base.devices import device_named
from holmes.base.files import read_json
from holmes.errors import HolmesError

WEIGHTS, TOKENIZER, CONFIG = "model.safetensors", "tokenizer.json", "config.json"
PLAIN = {"model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute"}
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
            padding = int(config.get("pad_token_id") or 0)
            self._tokenizer.enable_padding(pad_id=padding)
            self.states(["a first sentence, so that a missing weight is noticed now"])
        except Exception as error:  # others' code, and a file that may hold anything
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            raise HolmesError(f"{folder} cannot be loaded as a model ({reason}).") from None

    def states(self, sentences: Sequence[str]) -> tuple[Tensor, Tensor]:
        """States, B × T × D, and which of them are tokens of the sentences, B × T."""
        encoded = self._tokenizer.encode_batch(list(sentences))
        ids_BT, types_BT, mask_BT = (
            torch.tensor([getattr(sentence, name) for sentence in encoded], device=self.device)
            for name in ("ids", "type_ids", "attention_mask")
        )
        with torch.inference_mode():
            return self._encode(ids_BT, types_BT, mask_BT.bool()), mask_BT.bool()

    def readable(self, sentence: str) -> str:
        """The beginning of a sentence that its longest input holds; all of most sentences."""
        found = self._tokenizer.encode(sentence)
        return sentence[: max(end for _, end in found.offsets)] if found.overflowing else sentence

    def _encode(self, ids_BT: Tensor, types_BT: Tensor, mask_BT: Tensor) -> Tensor:
        words, types, places = (
            self._weights[f"embeddings.{what}_embeddings.weight"]
            for what in ("word", "token_type", "position")
        )
        embedded_BTD = words[ids_BT] + types[types_BT] + places[: ids_BT.shape[1]]
        states_BTD = self._norm(embedded_BTD, "embeddings.LayerNorm")
        for number in range(self.layers):
            layer = f"encoder.layer.{number}"
            context_BTD = self._attend(states_BTD, mask_BT, f"{layer}.attention.self")
            context_BTD = self._linear(context_BTD, f"{layer}.attention.output.dense")
            states_BTD = self._norm(states_BTD + context_BTD, f"{layer}.attention.output.LayerNorm")
            hidden = F.gelu(self._linear(states_BTD, f"{layer}.intermediate.dense"))
            states_BTD = states_BTD + self._linear(hidden, f"{layer}.output.dense")
            states_BTD = self._norm(states_BTD, f"{layer}.output.LayerNorm")
        return states_BTD

    def _attend(self, states_BTD: Tensor, mask_BT: Tensor, name: str) -> Tensor:
        shape = states_BTD.shape[:2]
        query, key, value = (
            self._linear(states_BTD, f"{name}.{what}").view(*shape, self.heads, -1).transpose(1, 2)
            for what in ("query", "key", "value")
        )  # each B × H × T × E
        context = F.scaled_dot_product_attention(query, key, value, mask_BT[:, None, None, :])
        return context.transpose(1, 2).flatten(-2)

    def _linear(self, inputs: Tensor, name: str) -> Tensor:
        return F.linear(inputs, self._weights[f"{name}.weight"], self._weights[f"{name}.bias"])

    def _norm(self, states_BTD: Tensor, name: str) -> Tensor:
        weight, bias = self._weights[f"{name}.weight"], self._weights[f"{name}.bias"]
        return F.layer_norm(states_BTD, (self.width,), weight, bias, self._tiny)


def _read(path: Path, device: torch.device) -> Mapping[str, Tensor]:
    """The weights in float32, by the names they have without the prefix of a larger model."""
    from safetensors.torch import load_file

    kept: dict[str, Any] = {}
    for name, tensor in load_file(path).items():
        plain = name.removeprefix("bert.").replace("LayerNorm.gamma", "LayerNorm.weight")
        plain = plain.replace("LayerNorm.beta", "LayerNorm.bias")
        kept[plain] = tensor.to(device, torch.float32) if tensor.is_floating_point() else tensor
    return kept
