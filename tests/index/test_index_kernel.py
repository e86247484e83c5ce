"""The fused scan: interpreted without a GPU, against plain torch; and compiled for one."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

from compiled_kernels import SHARED_BYTES, compile_for_a_gpu
from holmes.index.engine import gpu_kernels as gpu_kernel
from holmes.index.engine import kernels as kernel

needs_triton = pytest.mark.skipif(not gpu_kernel.HAS_TRITON, reason="Triton is not installed")

INTERPRETED = """
import torch
from holmes.index.engine.gpu_kernels import best_of_pairs_fused, weighted_best_fused

torch.manual_seed(0)
for probes, parts, rows, clips, width in [(1, 3, 48, 32, 40), (17, 130, 160, 32, 24), (130, 4, 48, 16, 72)]:
    probes_RD = torch.randint(-127, 128, (probes, width), dtype=torch.int8)
    codes_SPD = torch.randint(-127, 128, (parts, rows, width), dtype=torch.int8)
    frame_weight_R, clip_weight_R = torch.rand(probes), torch.rand(probes)
    fused_RS = weighted_best_fused(probes_RD, codes_SPD, clips, frame_weight_R, clip_weight_R)
    similarity_RSP = torch.einsum("rd,spd->rsp", probes_RD.double(), codes_SPD.double())
    frame_RS, clip_RS = similarity_RSP[..., :-clips].amax(-1), similarity_RSP[..., -clips:].amax(-1)
    expected_RS = frame_weight_R[:, None] * frame_RS + clip_weight_R[:, None] * clip_RS
    torch.testing.assert_close(fused_RS.double(), expected_RS, rtol=1e-6, atol=1e-3)

    rows_SPD = torch.randn(parts, rows, width).half()
    probes_QTD, query_N, part_N = torch.randn(5, 3, width), torch.tensor([4, 0, 2]), torch.tensor([2, 0, 2])
    similarity = torch.einsum("ntd,npd->ntp", probes_QTD[query_N].double(), rows_SPD[part_N].double())
    expected = similarity[..., :-clips].amax(-1), similarity[..., -clips:].amax(-1)
    fused = best_of_pairs_fused(probes_QTD, query_N, rows_SPD, part_N, clips)
    for found, slow in zip(fused, expected, strict=True):
        torch.testing.assert_close(found, slow, rtol=1e-12, atol=1e-12)
    print("ok")
"""


@needs_triton
def test_fused_equals_plain() -> None:
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", INTERPRETED], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.count("ok") == 3, done.stderr[-2000:]


@pytest.mark.parametrize("probes", [1, 3, kernel.FEW, kernel.FEW + 1, 70])
@pytest.mark.parametrize("library", [True, False], ids=["numkong", "torch"])
def test_the_best_codes_equal_a_loop(probes: int, library: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if library:
        assert kernel.numkong is not None, "a dependency of the tests"
    else:
        monkeypatch.setattr(kernel, "numkong", None)
    rng = np.random.default_rng(probes)
    probes_RD = rng.integers(-127, 128, (probes, 24), dtype=np.int8)
    codes_SPD = rng.integers(-127, 128, (4, 20, 24), dtype=np.int8)
    codes_SPD[0] = 127  # the largest sums there are
    probes_RD[0] = -127
    frame_RS, clip_RS = kernel.best_codes(torch.from_numpy(probes_RD))(torch.from_numpy(codes_SPD), 5)
    for r in range(probes):
        for s in range(4):
            similarity = [
                sum(int(a) * int(b) for a, b in zip(probes_RD[r], row, strict=True)) for row in codes_SPD[s]
            ]
            assert (frame_RS[r, s], clip_RS[r, s]) == (max(similarity[:15]), max(similarity[15:]))


def assert_compiles_for_a_gpu(
    function: Any, arguments: dict[str, str], sizes: dict[str, int], **options: int
) -> None:
    """The interpreter accepts more than the compiler does."""
    found = compile_for_a_gpu(function, arguments, sizes, **options)
    assert found.shared <= SHARED_BYTES
    assert found.stack == 0, "registers spill"


@needs_triton
@pytest.mark.parametrize("width", [256, 384])
@pytest.mark.parametrize("block", [gpu_kernel.FEW_PROBES, gpu_kernel.MANY_PROBES], ids=["few", "many"])
def test_the_scan_compiles_for_a_gpu(block: dict[str, int], width: int) -> None:
    sizes = {name: value for name, value in block.items() if name.isupper()}
    sizes |= {"D": width, "TILE": gpu_kernel.TILE}
    arguments = {"probes": "*i8", "rows": "*i8", "best": "*i32", "R": "i32", "N": "i32"}
    options = {name: value for name, value in block.items() if name.islower()}
    assert_compiles_for_a_gpu(gpu_kernel.tile_max_kernel, arguments, sizes, **options)


@needs_triton
@pytest.mark.parametrize("width,block", [(256, 256), (384, 512)])
def test_what_follows_the_scan_compiles_for_a_gpu(width: int, block: int) -> None:
    arguments = {"best": "*i32", "S": "i32"}
    arguments |= dict.fromkeys(["frame_weight", "clip_weight", "score"], "*fp32")
    sizes = {"T": 10, "CLIP_T": 2, "BLOCK_T": 16, "BLOCK_S": gpu_kernel.BLOCK_S}
    assert_compiles_for_a_gpu(gpu_kernel.weighted_best_kernel, arguments, sizes)
    arguments = {"probes": "*fp32", "query": "*i64", "rows": "*fp16", "part": "*i64"}
    arguments |= {"best_frame": "*fp64", "best_clip": "*fp64", "T": "i32"}
    sizes = {"P": 160, "CLIPS": 32, "D": width, "BLOCK_P": gpu_kernel.TILE, "BLOCK_D": block}
    assert_compiles_for_a_gpu(gpu_kernel.best_of_pairs_kernel, arguments, sizes)
