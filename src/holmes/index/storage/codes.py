"""Int8 codes of embeddings, and a bound on the error of their similarities.

Rows and queries are rotated by one orthogonal matrix, which spreads what they hold evenly over their
numbers, and rounded to multiples of a scale: one for each part of a video, one for each query. What is kept
beside the codes is ρ = ‖v - ṽ‖, the largest of a part's frames and that of its clips. For a query q of
length 1, rounded to q̃,

    |q·v - q̃·ṽ| ≤ |q̃·(v - ṽ)| + |(q - q̃)·v| ≤ ‖q̃‖ ρ_v + ρ_q ‖v‖

D width, N rows, R probes, S parts of a video, P rows of a part
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

LARGEST = 127  # codes lie between minus this and this
LONGEST_ROW = 1.001  # stored rows have unit length up to the rounding of float16
SLACK = 4e-6  # of float32: the rotation, the scaled sums and the grid of exact scores
SCALE, FRAME_ERROR, CLIP_ERROR = range(3)  # the columns of a part's numbers


@dataclass(frozen=True)
class ProbeCodes:
    """Queries as codes: coarse ones for the scan, and fine ones for the remainder."""

    codes_R2D: Tensor  # int8
    scale_R2: Tensor
    error_R2: Tensor  # ρ_q of the coarse codes alone, and of both together

    def __getitem__(self, at_R: Tensor | slice) -> ProbeCodes:
        return ProbeCodes(*(value[at_R] for value in vars(self).values()))


@lru_cache
def rotation(width: int) -> NDArray[np.float64]:
    """Random signs, then a Hadamard matrix with, for a width of odd factor m, a reflection of m numbers.

    Every machine makes the same one: no entry depends on the order of a sum.
    """
    odd = width // (width & -width)
    signs_D = np.where(np.random.PCG64(width).random_raw(width) >> np.uint64(63), 1.0, -1.0)
    mixed = np.eye(odd) - 2 / odd if odd > 1 else np.ones((1, 1))
    while len(mixed) < width:
        mixed = np.block([[mixed, mixed], [mixed, -mixed]])
    rotated_DD: NDArray[np.float64] = mixed * signs_D / np.sqrt(width // odd)
    return rotated_DD


def encode_parts(rows_SPD: NDArray[np.float16], clips: int) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """The codes of a video's parts, and the three numbers of each."""
    rotated_SPD = rows_SPD.astype(np.float32) @ rotation(rows_SPD.shape[2]).T.astype(np.float32)
    largest_S11 = np.abs(rotated_SPD).max(axis=(1, 2), keepdims=True)
    scale_S11 = np.maximum(largest_S11, np.finfo(np.float32).tiny) / np.float32(LARGEST)
    codes_SPD = np.rint(rotated_SPD / scale_S11)
    error_SP = np.linalg.norm(rotated_SPD - scale_S11 * codes_SPD, axis=2) + np.float32(SLACK)
    of_frames_S, of_clips_S = error_SP[:, :-clips].max(axis=1), error_SP[:, -clips:].max(axis=1)
    numbers_S3 = np.stack([scale_S11[:, 0, 0], of_frames_S, of_clips_S], axis=1)
    return codes_SPD.astype(np.int8), numbers_S3.astype(np.float32)


def encode_probes(rows_RD: Tensor) -> ProbeCodes:
    """Queries on their device; in float64, so that one is the same alone and in a batch."""
    turn_DD = torch.from_numpy(rotation(rows_RD.shape[1])).to(rows_RD.device)
    rotated_RD = rows_RD.double() @ turn_DD.T
    coarse_RD, scale_R1 = _rounded(rotated_RD)
    left_RD = rotated_RD - scale_R1 * coarse_RD
    fine_RD, fine_scale_R1 = _rounded(left_RD)
    rest_R2D = torch.stack([left_RD, left_RD - fine_scale_R1 * fine_RD], 1)
    return ProbeCodes(
        torch.stack([coarse_RD, fine_RD], 1).to(torch.int8),
        torch.cat([scale_R1, fine_scale_R1], 1).float(),
        rest_R2D.norm(dim=2).float() + SLACK,
    )


def _rounded(numbers_RD: Tensor) -> tuple[Tensor, Tensor]:
    """Whole numbers, and the scale of each row."""
    scale_R1 = numbers_RD.abs().amax(1, keepdim=True).clamp(min=1e-30) / LARGEST
    return (numbers_RD / scale_R1).round(), scale_R1
