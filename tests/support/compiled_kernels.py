"""What a Triton kernel needs of a GPU, found by compiling it for one: no GPU is needed."""

from __future__ import annotations

import inspect
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SHARED_BYTES = 227 * 1024  # of one program


@dataclass(frozen=True)
class Resources:
    registers: int  # of one thread
    stack: int  # bytes of one thread that registers did not hold
    shared: int  # bytes of one program
    instructions: str  # PTX


def compile_for_a_gpu(kernel: Any, types: dict[str, str], sizes: dict[str, Any], **options: int) -> Resources:
    """Compile for an H200. `types` are those of the arguments by name; all others are in `sizes`."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    names = list(inspect.signature(kernel.fn).parameters)
    signature = {name: types.get(name, "constexpr") for name in names}
    constants = {name: sizes[name] for name in names if name not in types}
    # As at a launch: pointers are aligned to 16 bytes.
    aligned = {
        (number,): [["tt.divisibility", 16]] for number, name in enumerate(names) if "*" in signature[name]
    }
    source = ASTSource(kernel, signature, constants, aligned)
    compiled = compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:
        cubin.write(compiled.asm["cubin"])
        cubin.flush()
        tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
        said = subprocess.check_output([tool, "--dump-resource-usage", cubin.name], text=True)
    used = dict(re.findall(r"(REG|STACK):(\d+)", said))
    return Resources(int(used["REG"]), int(used["STACK"]), compiled.metadata.shared, compiled.asm["ptx"])
