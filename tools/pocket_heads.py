"""The trained part of the pocket model: members of small heads, side by side, and how they are stored.

All members run at once, and each has its own weights. Their outputs together are reduced by a
projection that keeps dot products.

Shapes: M members, N rows, P principal components, S width of sentences, W width of a member, D of the joint
space, K classes.
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from pocket_data import Items
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from holmes.base.files import atomic_file
from holmes.media.backbones.lite2 import weights_path
from holmes.media.backbones.pocket import NAME_SCALE, SCALE

IN_BYTES = ("visual.", "text.", "classes.")  # kept as one byte per weight


class Classes:
    """Lite2's classifier on principal components, and the sentences of its classes' names."""

    def __init__(self, mean: Tensor, basis: Tensor, names_KS: Tensor) -> None:
        state = torch.load(weights_path(), map_location="cpu", weights_only=True)
        self.weight_PK = (state["_fc.weight"] @ basis).T.contiguous()
        self.bias_K = state["_fc.bias"] + state["_fc.weight"] @ mean
        self.names_KS = names_KS

    def named(self, components_NP: Tensor) -> Tensor:
        odds_NK: Tensor = (components_NP @ self.weight_PK + self.bias_K).softmax(-1)
        return odds_NK @ self.names_KS

    def pictured(self, length: float) -> Tensor:
        """What the classifier takes for the purest picture of each class, K × P, as long as real pictures."""
        return F.normalize(self.weight_PK.T, dim=-1) * length


class Heads(nn.Module):
    """LayerNorm, a hidden layer, and a shortcut past it: N rows to M × N × W, of length 1."""

    def __init__(
        self, members: int, inputs: int, extra: int, hidden: int, width: int, dropout: float
    ) -> None:
        super().__init__()
        self.norm = _affine(torch.ones(members, 1, inputs), torch.zeros(members, 1, inputs))
        self.hidden = _affine(*_uniform(members, inputs + extra, hidden))
        self.out = _affine(*_uniform(members, hidden, width))
        self.skip = _affine(_uniform(members, inputs + extra, width)[0])
        self.dropout = nn.Dropout(dropout)

    def forward(self, rows: Tensor, extra: Tensor | None = None) -> Tensor:
        inputs = F.layer_norm(rows, rows.shape[-1:]) * self.norm["weight"] + self.norm["bias"]
        if extra is not None:
            inputs = torch.cat([inputs, extra.expand(len(inputs), -1, -1)], dim=-1)
        inputs = self.dropout(inputs)
        hidden = self.dropout(torch.baddbmm(self.hidden["bias"], inputs, self.hidden["weight"]).relu())
        output = torch.baddbmm(self.out["bias"], hidden, self.out["weight"]) + inputs @ self.skip["weight"]
        return F.normalize(output.float(), dim=-1)


class PocketHeads(nn.Module):
    projection: Tensor

    def __init__(self, visual: Heads, text: Heads, classes: Classes) -> None:
        super().__init__()
        self.visual, self.text, self.classes = visual, text, classes
        members = visual.norm["weight"].shape[0]
        self.log_scale = nn.Parameter(torch.full((members, 1, 1), 3.0))
        self.register_buffer("projection", torch.eye(members * visual.out["weight"].shape[-1]))

    def named(self, components_NP: Tensor) -> Tensor:
        return self.classes.named(components_NP) * NAME_SCALE

    def see(self, components_NP: Tensor) -> Tensor:
        return self._together(self.visual(components_NP, self.named(components_NP)))

    def read(self, sentences_NS: Tensor) -> Tensor:
        return self._together(self.text(sentences_NS))

    def _together(self, rows_MNW: Tensor) -> Tensor:
        return F.normalize(rows_MNW.transpose(0, 1).flatten(1) @ self.projection, dim=-1)

    @torch.no_grad()
    def project(self, sets: list[Items], width: int) -> None:
        """Keep the directions that frames and sentences of these sets mostly point in."""
        rows = [side for items in sets for side in (self.see(items.frames), self.read(items.sentences))]
        energy = sum((rows_ND.T @ rows_ND).double() / len(rows_ND) for rows_ND in rows)
        self.projection = torch.linalg.eigh(energy).eigenvectors[:, -width:].float().contiguous()


def save(path: Path, heads: PocketHeads, classes: Classes, mean: Tensor, basis: Tensor) -> None:
    """float16, and where most of the weights are, one byte per weight with a scale per column."""
    tensors = {
        "pca.mean": mean,
        "pca.basis": basis,
        "classes.weight": classes.weight_PK,
        "classes.bias": classes.bias_K,
        "classes.names": classes.names_KS,
        **{name: tensor for name, tensor in heads.state_dict().items() if name != "log_scale"},
    }
    kept = {}
    for name, tensor in tensors.items():
        if name.startswith(IN_BYTES) and tensor.dim() > 1 and tensor.shape[-2] > 1:
            scale = tensor.abs().amax(-2, keepdim=True).clamp(min=1e-8) / 127
            kept[name] = (tensor / scale).round().to(torch.int8)
            kept[name + SCALE] = scale
        else:
            kept[name] = tensor.half().contiguous()
    with atomic_file(path) as file:
        file.write(save_tensors(kept))


def _affine(weight: Tensor, bias: Tensor | None = None) -> nn.ParameterDict:
    return nn.ParameterDict({"weight": weight} if bias is None else {"weight": weight, "bias": bias})


def _uniform(members: int, inputs: int, outputs: int) -> tuple[Tensor, Tensor]:
    """As `nn.Linear` begins, for every member."""
    bound = inputs**-0.5
    return (
        torch.empty(members, inputs, outputs).uniform_(-bound, bound),
        torch.empty(members, 1, outputs).uniform_(-bound, bound),
    )
