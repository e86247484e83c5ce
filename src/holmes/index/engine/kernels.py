"""The inner loops of search on a CPU: the best frame and clip of every part, for every probe.

The scan multiplies codes in int8 and adds up in int32, without rounding. On a CPU, few probes go through
NumKong's kernels, which are as fast as the memory, and many through torch's. `gpu_kernels.py` is for GPUs.

R probes, S parts, P rows of a part (frames, then clips), D width
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

try:
    import numkong
except ImportError:  # then torch multiplies few probes too, more slowly
    numkong = None  # type: ignore[assignment]

FEW = 16  # probes up to which NumKong is faster than torch on a CPU
CACHED, LEAST_ROWS = 2**19, 640  # products written before their maxima are taken, and rows multiplied at once

Products = Callable[[Tensor], Tensor]


def code_products(probes_RD: Tensor) -> Products:
    """A function of codes, S × P × D: ⟨probe, row⟩ of every row, S P × R; whole numbers, of any type."""
    if probes_RD.device.type != "cpu":
        return partial(_in_float, probes_RD.float().T)
    if numkong is not None and len(probes_RD) == 1:
        return partial(_of_one, probes_RD.numpy())
    if numkong is not None and len(probes_RD) <= FEW:
        return partial(_of_few, numkong.dots_pack(probes_RD.numpy()))
    return partial(_of_many, probes_RD.T)


def best_codes(probes_RD: Tensor) -> Callable[[Tensor, int], tuple[Tensor, Tensor]]:
    """A function of codes and the number of clips: max over frames and max over clips, each R × S, float32.

    Whole numbers up to 2^24 are exact in it; the largest products of more than 1,040 numbers are rounded by
    less than a millionth of what they can be.
    """
    products = code_products(probes_RD)
    rows = max(LEAST_ROWS, CACHED // len(probes_RD))

    def best(codes_SPD: Tensor, clips: int) -> tuple[Tensor, Tensor]:
        parts, height = codes_SPD.shape[:2]
        best_2SR = torch.empty((2, parts, len(probes_RD)), device=codes_SPD.device)
        step = max(1, rows // height)
        for at in range(0, parts, step):
            piece_SPD = codes_SPD[at : at + step]
            similarity_SPR = products(piece_SPD).view(len(piece_SPD), height, -1)
            best_2SR[0, at : at + step] = similarity_SPR[:, :-clips].amax(1)
            best_2SR[1, at : at + step] = similarity_SPR[:, -clips:].amax(1)
        frame_RS, clip_RS = best_2SR.transpose(1, 2).unbind(0)
        return frame_RS, clip_RS

    return best


def _of_one(probe_1D: NDArray[np.int8], codes_SPD: Tensor) -> Tensor:
    """The product with one probe: a quarter faster than the packed one."""
    codes_ND = codes_SPD.flatten(0, 1).numpy()
    product_1N = numkong.cdist(probe_1D, codes_ND, "dot", out_dtype="float32")
    return torch.from_numpy(np.asarray(product_1N)).T


def _of_few(packed: Any, codes_SPD: Tensor) -> Tensor:
    return torch.from_numpy(np.asarray(numkong.dots_packed(codes_SPD.flatten(0, 1).numpy(), packed)))


def _of_many(probes_DR: Tensor, codes_SPD: Tensor) -> Tensor:
    return torch._int_mm(codes_SPD.flatten(0, 1), probes_DR)


def _in_float(probes_DR: Tensor, codes_SPD: Tensor) -> Tensor:
    """For devices without an integer product; whole numbers up to 2^24 are exact in float32."""
    return codes_SPD.flatten(0, 1).float() @ probes_DR
