"""The fused scan: interpreted without a GPU, against plain torch; and compiled for one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch

from holmes.index import kernel

needs_triton = pytest.mark.skipif(not kernel.HAS_TRITON, reason="Triton is not installed")

INTERPRETED = """
import torch
from holmes.index.kernel import best_positions, best_positions_fused

torch.manual_seed(0)
for probes, videos, rows, clips, width in [(1, 3, 48, 32, 40), (17, 5, 160, 32, 384), (130, 4, 48, 16, 72)]:
    probes_RD, rows_VPD = torch.randn(probes, width).half(), torch.randn(videos, rows, width).half()
    fused = best_positions_fused(probes_RD, rows_VPD, clips)
    plain = best_positions(probes_RD.double(), rows_VPD.double(), clips)
    for found, expected in zip(fused, plain, strict=True):
        torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-3)
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


@needs_triton
@pytest.mark.parametrize("block", [kernel.FEW_PROBES, kernel.MANY_PROBES], ids=["few", "many"])
def test_it_compiles_for_a_gpu(block: dict[str, int]) -> None:
    """The interpreter accepts more than the compiler does."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    sizes = {name: value for name, value in block.items() if name.isupper()} | {"D": 384, "TILE": kernel.TILE}
    pointers = {"probes": "*fp16", "rows": "*fp16", "best": "*fp32", "R": "i32", "N": "i32"}
    source = ASTSource(kernel.tile_max_kernel, pointers | dict.fromkeys(sizes, "constexpr"), sizes)
    options = {name: value for name, value in block.items() if name.islower()}
    compiled = compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    assert compiled.asm["cubin"] and compiled.metadata.shared <= 227 * 1024
    assert ".local" not in compiled.asm["ptx"], "registers spill"
