"""The GPU kernels, run without a GPU by Triton's interpreter, against their plain twins."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CHECK = Path(__file__).parents[1] / "support" / "kernels_interpreted.py"


def test_kernels_equal_their_twins() -> None:
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(CHECK)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("ok") == 5, done.stdout
