"""The inner loops of search: the best frame and the best clip of every part of a video, for every probe.

The scan multiplies codes in int8 and adds up in int32, without rounding. On a CPU few probes go through
NumKong's kernels, which are as fast as the memory, many through torch's. `gpu_kernel.py` has those of a GPU.

R probes, S parts, P rows of a part (frames, then clips), N rows of all parts, or chosen pairs of a query and
a part, T probes of a query, D width
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

try:
    import numkong
except ImportError:  # then torch multiplies few probes too, more slowly
    numkong = None  # type: ignore[assignment]

FEW = 16  # probes up to which NumKong is faster than torch on a CPU


Best = Callable[[Tensor, int], tuple[Tensor, Tensor]]


def best_codes(probes_RD: Tensor) -> Best:
    """A function of codes, S × P × D, and the number of clips: max over frames and max over clips of
    ⟨probe, row⟩, each R × S, int32."""
    if probes_RD.device.type != "cpu":
        return partial(_best_in_float, probes_RD.float())
    if numkong is not None and len(probes_RD) <= FEW:
        return partial(_best_of_few, numkong.dots_pack(probes_RD.numpy()))
    return partial(_best_of_many, probes_RD.T)


def _best_of_few(packed: Any, codes_SPD: Tensor, clips: int) -> tuple[Tensor, Tensor]:
    similarity_NR = numkong.dots_packed(codes_SPD.flatten(0, 1).numpy(), packed)
    return _best_rows(torch.from_numpy(np.asarray(similarity_NR)), codes_SPD, clips)


def _best_of_many(probes_DR: Tensor, codes_SPD: Tensor, clips: int) -> tuple[Tensor, Tensor]:
    return _best_rows(torch._int_mm(codes_SPD.flatten(0, 1), probes_DR), codes_SPD, clips)


def _best_in_float(probes_RD: Tensor, codes_SPD: Tensor, clips: int) -> tuple[Tensor, Tensor]:
    """For devices without an integer product; whole numbers up to 2^24 are exact in float32."""
    return _best_rows(codes_SPD.flatten(0, 1).float() @ probes_RD.T, codes_SPD, clips)


def _best_rows(similarity_NR: Tensor, codes_SPD: Tensor, clips: int) -> tuple[Tensor, Tensor]:
    similarity_SPR = similarity_NR.view(*codes_SPD.shape[:2], -1)
    return similarity_SPR[:, :-clips].amax(1).T, similarity_SPR[:, -clips:].amax(1).T


def best_of_pairs(
    probes_QTD: Tensor,
    query_N: Tensor,
    rows_SPD: Tensor,
    part_N: Tensor,
    clips: int,
    dtype: torch.dtype = torch.float64,
) -> tuple[Tensor, Tensor]:
    """The best frame and the best clip of one part for all probes of one query, each N × T."""
    rows_NPD = rows_SPD.index_select(0, part_N).float().to(dtype)  # by way of float32: eight times as fast
    similarity_NTP = probes_QTD.index_select(0, query_N).to(dtype) @ rows_NPD.transpose(1, 2)
    return similarity_NTP[..., :-clips].amax(-1), similarity_NTP[..., -clips:].amax(-1)
