"""The inner loops of search on a GPU, in Triton. Imported only when needed.

`weighted_best_fused` reads the codes once. Products stay in registers; only the maximum of each tile of 16
rows is written, a sixteenth of what plain torch writes. A second pass turns a part's tiles into its score.
`best_of_pairs_fused` scores chosen parts exactly, reading their rows in place.

R probes, S parts, P rows of a part (frames, then clips), N rows of all parts, or chosen pairs of a query and
a part, T tiles of a part, or probes of a query, D width
"""

from __future__ import annotations

import torch
from torch import Tensor

from holmes.index.storage.segments import TILE

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
BLOCK_S = 128  # parts whose tiles one program turns into scores


def weighted_best_fused(
    probes_RD: Tensor, codes_SPD: Tensor, clips: int, frame_weight_R: Tensor, clip_weight_R: Tensor
) -> Tensor:
    """frame weight · best frame + clip weight · best clip, R × S; rows come in multiples of TILE."""
    parts, tiles = len(codes_SPD), codes_SPD.shape[1] // TILE
    best_RT = tile_max(probes_RD, codes_SPD.flatten(0, 1))
    score_RS = torch.empty((len(probes_RD), parts), device=codes_SPD.device, dtype=torch.float32)
    weighted_best_kernel[(triton.cdiv(parts, BLOCK_S), len(probes_RD))](
        best_RT, frame_weight_R, clip_weight_R, score_RS, parts,
        T=tiles, CLIP_T=clips // TILE, BLOCK_T=triton.next_power_of_2(tiles), BLOCK_S=BLOCK_S,
    )  # fmt: skip
    return score_RS


def best_of_pairs_fused(
    probes_QTD: Tensor, query_N: Tensor, rows_SPD: Tensor, part_N: Tensor, clips: int
) -> tuple[Tensor, Tensor]:
    """`best_of_pairs`, each row read once from where it lies."""
    (_, probes, width), rows = probes_QTD.shape, rows_SPD.shape[1]
    frame_NT, clip_NT = torch.empty(
        (2, len(part_N), probes), device=rows_SPD.device, dtype=torch.float64
    ).unbind(0)
    best_of_pairs_kernel[(len(part_N),)](
        probes_QTD, query_N, rows_SPD, part_N, frame_NT, clip_NT, probes,
        P=rows, CLIPS=clips, D=width, BLOCK_P=TILE, BLOCK_D=triton.next_power_of_2(width),
    )  # fmt: skip
    return frame_NT, clip_NT


def tile_max(probes_RD: Tensor, rows_ND: Tensor) -> Tensor:
    """The best row of every 16 consecutive ones: R × N/16, int32."""
    (probes, width), rows = probes_RD.shape, len(rows_ND)
    best_RT = torch.empty((probes, rows // TILE), device=rows_ND.device, dtype=torch.int32)
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
        similarity_RN = tl.zeros((BLOCK_R, BLOCK_N), dtype=tl.int32)
        for start in range(0, D, BLOCK_D):
            inside_D = at_D + start < D
            probe_RD = tl.load(
                probes + at_R[:, None] * D + (at_D + start)[None, :],
                mask=(at_R < R)[:, None] & inside_D[None, :],
                other=0,
            )
            row_DN = tl.load(
                rows + at_N[None, :] * D + (at_D + start)[:, None],
                mask=(at_N < N)[None, :] & inside_D[:, None],
                other=0,
            )
            similarity_RN = tl.dot(probe_RD, row_DN, similarity_RN, out_dtype=tl.int32)
        best_RT = tl.max(tl.reshape(similarity_RN, (BLOCK_R, BLOCK_N // TILE, TILE)), axis=2)
        at_T = block_n * (BLOCK_N // TILE) + tl.arange(0, BLOCK_N // TILE)
        tl.store(
            best + at_R[:, None].to(tl.int64) * (N // TILE) + at_T[None, :],
            best_RT,
            mask=(at_R < R)[:, None] & (at_T < N // TILE)[None, :],
        )

    @triton.jit
    def weighted_best_kernel(
        best, frame_weight, clip_weight, score, S,
        T: tl.constexpr, CLIP_T: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr,
    ):  # fmt: skip
        probe = tl.program_id(1).to(tl.int64)
        at_S = tl.program_id(0) * BLOCK_S + tl.arange(0, BLOCK_S)
        at_T = tl.arange(0, BLOCK_T)
        inside_ST = (at_S < S)[:, None] & (at_T < T)[None, :]
        lowest = -(2**31)
        tile_ST = tl.load(
            best + probe * S * T + at_S[:, None] * T + at_T[None, :], mask=inside_ST, other=lowest
        )
        of_clips_T = at_T >= T - CLIP_T
        frame_S = tl.max(tl.where(of_clips_T[None, :], lowest, tile_ST), axis=1).to(tl.float32)
        clip_S = tl.max(tl.where(of_clips_T[None, :], tile_ST, lowest), axis=1).to(tl.float32)
        weighted_S = tl.load(frame_weight + probe) * frame_S + tl.load(clip_weight + probe) * clip_S
        tl.store(score + probe * S + at_S, weighted_S, mask=at_S < S)

    @triton.jit
    def best_of_pairs_kernel(
        probes, query, rows, part, best_frame, best_clip, T,
        P: tl.constexpr, CLIPS: tl.constexpr, D: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_D: tl.constexpr,
    ):  # fmt: skip
        pair = tl.program_id(0).to(tl.int64)
        first_probe = tl.load(query + pair) * T
        first_row = tl.load(part + pair) * P
        at_P, at_D = tl.arange(0, BLOCK_P), tl.arange(0, BLOCK_D)
        for t in range(T):
            probe_D = tl.load(probes + (first_probe + t) * D + at_D, mask=at_D < D, other=0.0)
            frame_P = tl.full((BLOCK_P,), float("-inf"), tl.float64)
            clip_P = tl.full((BLOCK_P,), float("-inf"), tl.float64)
            for start in range(0, P, BLOCK_P):
                row_PD = tl.load(
                    rows + (first_row + start + at_P)[:, None] * D + at_D[None, :],
                    mask=(at_D < D)[None, :],
                    other=0.0,
                )
                similarity_P = tl.sum(row_PD.to(tl.float64) * probe_D[None, :].to(tl.float64), axis=1)
                of_clips = start + at_P >= P - CLIPS
                frame_P = tl.maximum(frame_P, tl.where(of_clips, float("-inf"), similarity_P))
                clip_P = tl.maximum(clip_P, tl.where(of_clips, similarity_P, float("-inf")))
            tl.store(best_frame + pair * T + t, tl.max(frame_P, axis=0))
            tl.store(best_clip + pair * T + t, tl.max(clip_P, axis=0))
