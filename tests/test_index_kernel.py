"""The fused scan: interpreted without a GPU, against plain torch; and compiled for one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from holmes.index import kernel

needs_triton = pytest.mark.skipif(not kernel.HAS_TRITON, reason="Triton is not installed")

INTERPRETED = """
import torch
from holmes.index.kernel import best_of_pairs, best_of_pairs_fused, best_positions, weighted_best_fused

torch.manual_seed(0)
for probes, videos, rows, clips, width in [(1, 3, 48, 32, 40), (17, 130, 160, 32, 24), (130, 4, 48, 16, 72)]:
    probes_RD, rows_VPD = torch.randn(probes, width).half(), torch.randn(videos, rows, width).half()
    frame_weight_R, clip_weight_R = torch.rand(probes), torch.rand(probes)
    fused_RV = weighted_best_fused(probes_RD, rows_VPD, clips, frame_weight_R, clip_weight_R)
    frame_RV, clip_RV = best_positions(probes_RD.double(), rows_VPD.double(), clips)
    expected_RV = frame_weight_R[:, None] * frame_RV + clip_weight_R[:, None] * clip_RV
    torch.testing.assert_close(fused_RV.double(), expected_RV, rtol=1e-4, atol=1e-3)

    probes_QTD, query_N, video_N = torch.randn(5, 3, width), torch.tensor([4, 0, 2]), torch.tensor([2, 0, 2])
    similarity = torch.einsum("ntd,npd->ntp", probes_QTD[query_N].double(), rows_VPD[video_N].double())
    expected = similarity[..., :-clips].amax(-1), similarity[..., -clips:].amax(-1)
    for best in (best_of_pairs, best_of_pairs_fused):
        for found, slow in zip(best(probes_QTD, query_N, rows_VPD, video_N, clips), expected, strict=True):
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


@pytest.mark.parametrize("best", [kernel.best_positions, kernel.best_positions_of_many])
def test_plain_equals_a_loop(best: Callable[..., tuple[torch.Tensor, torch.Tensor]]) -> None:
    probes_RD, rows_VPD = torch.randn(3, 8), torch.randn(4, 20, 8)
    frame_RV, clip_RV = best(probes_RD, rows_VPD, clips=5)
    for r in range(3):
        for v in range(4):
            similarity = [float(probes_RD[r] @ rows_VPD[v, p]) for p in range(20)]
            assert float(frame_RV[r, v]) == pytest.approx(max(similarity[:15]), abs=1e-5)
            assert float(clip_RV[r, v]) == pytest.approx(max(similarity[15:]), abs=1e-5)


def assert_compiles_for_a_gpu(
    function: Any, arguments: dict[str, str], sizes: dict[str, int], **options: int
) -> None:
    """The interpreter accepts more than the compiler does."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    source = ASTSource(function, arguments | dict.fromkeys(sizes, "constexpr"), sizes)
    compiled = compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    assert compiled.asm["cubin"] and compiled.metadata.shared <= 227 * 1024
    assert ".local" not in compiled.asm["ptx"], "registers spill"


@needs_triton
@pytest.mark.parametrize("width", [256, 384])
@pytest.mark.parametrize("block", [kernel.FEW_PROBES, kernel.MANY_PROBES], ids=["few", "many"])
def test_the_scan_compiles_for_a_gpu(block: dict[str, int], width: int) -> None:
    sizes = {name: value for name, value in block.items() if name.isupper()}
    sizes |= {"D": width, "TILE": kernel.TILE}
    arguments = {"probes": "*fp16", "rows": "*fp16", "best": "*fp32", "R": "i32", "N": "i32"}
    options = {name: value for name, value in block.items() if name.islower()}
    assert_compiles_for_a_gpu(kernel.tile_max_kernel, arguments, sizes, **options)


@needs_triton
@pytest.mark.parametrize("width,block", [(256, 256), (384, 512)])
def test_what_follows_the_scan_compiles_for_a_gpu(width: int, block: int) -> None:
    arguments = dict.fromkeys(["best", "frame_weight", "clip_weight", "score"], "*fp32") | {"S": "i32"}
    sizes = {"T": 10, "CLIP_T": 2, "BLOCK_T": 16, "BLOCK_S": kernel.BLOCK_S}
    assert_compiles_for_a_gpu(kernel.weighted_best_kernel, arguments, sizes)
    arguments = {"probes": "*fp32", "query": "*i64", "rows": "*fp16", "part": "*i64"}
    arguments |= {"best_frame": "*fp64", "best_clip": "*fp64", "T": "i32"}
    sizes = {"P": 160, "CLIPS": 32, "D": width, "BLOCK_P": kernel.TILE, "BLOCK_D": block}
    assert_compiles_for_a_gpu(kernel.best_of_pairs_kernel, arguments, sizes)
