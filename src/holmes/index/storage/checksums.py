"""A checksum per stored row, so that a search detects damage in what it reads.

    checksum(row) = Σ wᵢ · rowᵢ  (mod 2^64)

The row is read as whole numbers of 8 bytes (4 or 2 where its length needs it), and every wᵢ is odd: a change
of one number always changes the sum, any other change with all but certainty. It finds damage, not forgery;
the SHA-256 of every file, which `holmes index check` compares, finds both.

N rows, W numbers of a row
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

NUMBERS = ((8, torch.int64), (4, torch.int32), (2, torch.int16))


@lru_cache
def _layout(size: int) -> tuple[torch.dtype, Tensor]:
    """The numbers that a row of so many bytes is read as, and their weights, the same on every machine."""
    width, number = next((width, number) for width, number in NUMBERS if size % width == 0)
    raw_W = np.random.PCG64(size // width).random_raw(size // width)
    return number, torch.from_numpy((raw_W | np.uint64(1)).view(np.int64))


def checksums(rows_NX: Tensor) -> Tensor:
    """The checksum of every row: N numbers, int64."""
    number, weights_W = _layout(rows_NX.shape[1] * rows_NX.element_size())
    numbers_NW = rows_NX.contiguous().view(number)
    if rows_NX.is_cuda:  # which has no product of whole numbers
        return (numbers_NW * weights_W.to(rows_NX.device)).sum(1)
    return torch.mv(numbers_NW.long(), weights_W)
