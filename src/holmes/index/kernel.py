"""The inner loop of search: the best frame and the best clip of every video, for every probe.

`best_positions` is plain torch and runs anywhere. `best_positions_fused` is one pass over the embeddings on a
GPU: the product of a block stays in registers and only the maximum of each tile of 16 rows is written, a
sixteenth of what plain torch writes and reads again.

R probes, V videos, P rows of a video (frames, then clips), N rows of all videos, D width
"""

from __future__ import annotations

import torch
from torch import Tensor

from holmes.index.segment import TILE
from holmes.similarity import dot_similarity

try:
    import triton
    import triton.language as tl
except ImportError:  # the CPU builds of torch come without it
    triton = None

HAS_TRITON = triton is not None
# Up to 16 probes, the least a tensor core multiplies, the scan is bound by memory; beyond, by arithmetic. Two
# programs fit on a multiprocessor, so that one's maxima are taken while the other multiplies.
FEW_PROBES = {"BLOCK_R": 16, "BLOCK_N": 128, "BLOCK_D": 128, "num_warps": 4, "num_stages": 3}
MANY_PROBES = {"BLOCK_R": 128, "BLOCK_N": 128, "BLOCK_D": 64, "num_warps": 4, "num_stages": 3}


def best_positions(probes_RD: Tensor, rows_VPD: Tensor, clips: int) -> tuple[Tensor, Tensor]:
    """max over frames and max over clips of ⟨probe, row⟩, each R × V."""
    similarity_RVP = dot_similarity(probes_RD, rows_VPD)
    return similarity_RVP[..., :-clips].amax(-1), similarity_RVP[..., -clips:].amax(-1)


def best_positions_of_many(probes_RD: Tensor, rows_VPD: Tensor, clips: int) -> tuple[Tensor, Tensor]:
    """The same with the probes side by side in memory: their maxima are then taken many at a time."""
    similarity_VPR = (rows_VPD.flatten(0, 1) @ probes_RD.T).view(*rows_VPD.shape[:2], len(probes_RD))
    return similarity_VPR[:, :-clips].amax(1).T, similarity_VPR[:, -clips:].amax(1).T


def best_positions_fused(probes_RD: Tensor, rows_VPD: Tensor, clips: int) -> tuple[Tensor, Tensor]:
    """The same through `tile_max`; both counts of rows must be multiples of the tile."""
    videos, rows, _ = rows_VPD.shape
    tiles_RVT = tile_max(probes_RD, rows_VPD.flatten(0, 1)).view(-1, videos, rows // TILE)
    return tiles_RVT[..., : -clips // TILE].amax(-1), tiles_RVT[..., -clips // TILE :].amax(-1)


def tile_max(probes_RD: Tensor, rows_ND: Tensor) -> Tensor:
    """The best row of every 16 consecutive ones: R × N/16, float32 accumulated and written."""
    (probes, width), rows = probes_RD.shape, len(rows_ND)
    best_RT = torch.empty((probes, rows // TILE), device=rows_ND.device, dtype=torch.float32)
    block = FEW_PROBES if probes <= FEW_PROBES["BLOCK_R"] else MANY_PROBES
    blocks = triton.cdiv(probes, block["BLOCK_R"]) * triton.cdiv(rows, block["BLOCK_N"])
    tile_max_kernel[(blocks,)](probes_RD, rows_ND, best_RT, probes, rows, D=width, TILE=TILE, **block)
    return best_RT


if HAS_TRITON:

    @triton.jit
    def tile_max_kernel(
        probes, rows, best, R, N,
        D: tl.constexpr, TILE: tl.constexpr,
        BLOCK_R: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    ):  # fmt: skip
        # Programs that share rows run side by side, so a block of rows is read from memory once.
        blocks_R = tl.cdiv(R, BLOCK_R)
        block_r = tl.program_id(0) % blocks_R
        block_n = (tl.program_id(0) // blocks_R).to(tl.int64)  # a large index has more than 2^31 numbers
        at_R = block_r * BLOCK_R + tl.arange(0, BLOCK_R)
        at_N = block_n * BLOCK_N + tl.arange(0, BLOCK_N)
        at_D = tl.arange(0, BLOCK_D)
        similarity_RN = tl.zeros((BLOCK_R, BLOCK_N), dtype=tl.float32)
        for start in range(0, D, BLOCK_D):
            inside_D = at_D + start < D
            probe_RD = tl.load(
                probes + at_R[:, None] * D + (at_D + start)[None, :],
                mask=(at_R < R)[:, None] & inside_D[None, :],
                other=0.0,
            )
            row_DN = tl.load(
                rows + at_N[None, :] * D + (at_D + start)[:, None],
                mask=(at_N < N)[None, :] & inside_D[:, None],
                other=0.0,
            )
            similarity_RN = tl.dot(probe_RD, row_DN, similarity_RN)
        best_RT = tl.max(tl.reshape(similarity_RN, (BLOCK_R, BLOCK_N // TILE, TILE)), axis=2)
        at_T = block_n * (BLOCK_N // TILE) + tl.arange(0, BLOCK_N // TILE)
        tl.store(
            best + at_R[:, None].to(tl.int64) * (N // TILE) + at_T[None, :],
            best_RT,
            mask=(at_R < R)[:, None] & (at_T < N // TILE)[None, :],
        )
