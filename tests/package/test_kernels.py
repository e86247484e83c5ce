"""The GPU kernels without a GPU: interpreted against their plain twins, and compiled for one."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch

from compiled_kernels import SHARED_BYTES, compile_for_a_gpu
from holmes.encoders import attention_kernel, block_kernels, mixture_kernels
from holmes.training import optimizer_kernel, similarity_kernel
from holmes.training.kernel_compiler import compiling_only
from holmes.transport import sinkhorn_kernel

SUPPORT = Path(__file__).parents[1] / "support"


@pytest.mark.parametrize(
    ("script", "checks"), [("kernels_interpreted.py", 5), ("step_kernels_interpreted.py", 6)]
)
def test_kernels_equal_their_twins(script: str, checks: int) -> None:
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(SUPPORT / script)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("ok") == checks, done.stdout


FLOATS, HALVES, COUNTS = "*fp32", "*bf16", "*i32"
POINTERS = {
    **dict.fromkeys(["gradient", "change", "residual", "change_gradient", "residual_gradient"], HALVES),
    **dict.fromkeys(["input", "output", "input_gradient", "projected", "context"], HALVES),
    **dict.fromkeys(["projected_gradient"], HALVES),
    **dict.fromkeys(["change_bias", "weight", "bias", "sums", "weights", "bias_gradient"], FLOATS),
    **dict.fromkeys(["dot", "scale", "best", "share", "scale_sums"], FLOATS),
    **dict.fromkeys(["values", "gradients", "first", "second", "decay"], FLOATS),
    **dict.fromkeys(["norms", "squares", "learning_rate", "scores", "log_source", "log_target"], FLOATS),
    **dict.fromkeys(["first_column", "plan"], FLOATS),
    **dict.fromkeys(["seed", "key", "size", "tensor"], COUNTS),
    **dict.fromkeys(["R", "G", "Q", "V", "N", "threshold"], "i32"),
    "mask": "*i1",
    "start": "*i64",
}
ATTENTION = {"G": 8, "L": 128, "H": 4, "E": 96, "TILE_L": 128, "TILE_E": 128, "SCALE": 0.1, "DROPS": True}
ATTENTION |= {"PADDED": -10000.0}
NORM = {"D": 384, "TILE_R": 1, "TILE_D": 512, "TINY": 1e-5, "HAS_RESIDUAL": True, "HAS_BIAS": True}
NORM |= {"DROPS_BEFORE": True, "DROPS_AFTER": False, "SHARED": False, "STEPS": 64, "GIVES_CHANGE": True}
NORM |= {"mean": FLOATS}
FIRST_NORM = NORM | {"SHARED": True, "HAS_BIAS": False, "change_bias": None}
FEATURES = FIRST_NORM | {"D": 3072, "TILE_R": 1, "TILE_D": 4096, "SHARED": False}
FEATURES |= {"HAS_RESIDUAL": False, "DROPS_BEFORE": False, "DROPS_AFTER": True, "GIVES_CHANGE": False}
FEATURES |= dict.fromkeys(["residual", "residual_gradient", "change_gradient"])
RELU = {"D": 1536, "TILE_R": 16, "TILE_D": 256, "DROPS": True, "STEPS": 4}
SCORES = {"P": 128, "TILE_Q": 32, "TILE_P": 128, "share": HALVES}
SUM = {"G": 8, "D": 384, "TILE_R": 1, "TILE_D": 512, "gradient": HALVES, "blocks": HALVES, "weights": FLOATS}
SUM |= {"output": HALVES, "weight_gradient": FLOATS, "block_gradient": HALVES}
TOKEN = {"L": 128, "D": 384, "H": 4, "TILE_L": 128, "TILE_D": 128, "TILE_H": 16, "SCALE": 0.1, "DROPS": True}
TOKEN |= {"PADDED": -10000.0, "blocks": HALVES, "folded": HALVES, "mean": HALVES, "mean_gradient": HALVES}
TOKEN |= {"attention": FLOATS, "mass": FLOATS, "mass_gradient": FLOATS, "folded_gradient": FLOATS}
TOKEN |= {"block_gradient": HALVES}
UPDATE = {"UNIT": 4, "CHUNK": optimizer_kernel.CHUNK, "TILE": 1024, "NORM": 1.0, "TINY": 1e-6}
UPDATE |= {"BETA_FIRST": 0.9, "BETA_SECOND": 0.999}
SINKHORN = {"N": 32, "M": 28, "TILE_N": 32, "TILE_M": 32, "ITERATIONS": 50}
KERNELS = [
    (attention_kernel, "forward_kernel", ATTENTION, 8),
    (attention_kernel, "backward_kernel", ATTENTION, 8),
    (block_kernels, "norm_forward_kernel", NORM, 1),
    (block_kernels, "norm_backward_kernel", NORM, 1),
    (block_kernels, "norm_forward_kernel", FIRST_NORM, 1),
    (block_kernels, "norm_backward_kernel", FIRST_NORM, 1),
    (block_kernels, "norm_forward_kernel", FEATURES, 8),
    (block_kernels, "norm_backward_kernel", FEATURES, 8),
    (block_kernels, "relu_forward_kernel", RELU, 4),
    (block_kernels, "relu_backward_kernel", RELU, 4),
    (mixture_kernels, "sum_forward_kernel", SUM, 1),
    (mixture_kernels, "sum_backward_kernel", SUM, 1),
    (mixture_kernels, "token_forward_kernel", TOKEN, 8),
    (mixture_kernels, "token_backward_kernel", TOKEN, 8),
    (similarity_kernel, "best_kernel", SCORES, 4),
    (similarity_kernel, "share_kernel", SCORES, 4),
    (optimizer_kernel, "squares_kernel", UPDATE, 4),
    (optimizer_kernel, "norms_kernel", UPDATE | {"first": COUNTS}, 4),
    (optimizer_kernel, "update_kernel", UPDATE, 8),
    (sinkhorn_kernel, "sinkhorn_kernel", SINKHORN, 4),
]


@pytest.mark.skipif(not block_kernels.HAS_TRITON, reason="Triton is not installed")
@pytest.mark.parametrize(("module", "name", "sizes", "warps"), KERNELS)
def test_a_kernel_of_the_step_compiles_for_a_gpu(
    module: Any, name: str, sizes: dict[str, Any], warps: int
) -> None:
    """At the sizes of the field's data sets: the interpreter accepts more than the compiler does."""
    kernel = getattr(module, name)
    names = inspect.signature(kernel.fn).parameters
    types = {each: POINTERS[each] for each in names if each not in sizes}
    types |= {each: value for each, value in sizes.items() if isinstance(value, str)}
    found = compile_for_a_gpu(kernel, types, sizes, num_warps=warps)
    print(f"{name}: {found.registers} registers, {found.stack} bytes of stack, {found.shared} shared")
    assert found.shared <= SHARED_BYTES
    # The gradient of attention holds more tables of 128 × 128 than a program has registers.
    assert found.stack <= (640 if name == "backward_kernel" else 0), "registers spill"


def test_every_kernel_of_the_step_is_compiled_here() -> None:
    modules = (
        attention_kernel,
        block_kernels,
        mixture_kernels,
        similarity_kernel,
        optimizer_kernel,
        sinkhorn_kernel,
    )
    kernels = {(module, name) for module in modules for name in vars(module) if name.endswith("_kernel")}
    assert kernels == {(module, name) for module, name, *_ in KERNELS}


@pytest.mark.skipif(not block_kernels.HAS_TRITON, reason="Triton is not installed")
def test_kernels_are_compiled_once_for_each_kind_and_not_launched() -> None:
    from triton.runtime.jit import JITFunction

    asked = []

    def launched(kernel: Any, *args: Any, grid: Any, warmup: bool, **sizes: Any) -> None:
        asked.append((kernel.fn.__name__, args[0].dtype, warmup))

    values, counts = torch.zeros(16), torch.zeros(1, dtype=torch.int32)
    with (
        patch.object(JITFunction, "run", launched),
        patch("torch.cuda.set_device"),
        compiling_only(torch.device("cuda")),
    ):
        for gradients in (values, values.clone(), values.double()):
            optimizer_kernel.squares_kernel[(1,)](gradients, counts, counts, values, UNIT=4, CHUNK=16)
        optimizer_kernel.norms_kernel[(1,)](values, counts, values, TILE=1024)
    assert sorted(asked, key=str) == [
        ("norms_kernel", torch.float32, True),
        ("squares_kernel", torch.float32, True),
        ("squares_kernel", torch.float64, True),
    ]
