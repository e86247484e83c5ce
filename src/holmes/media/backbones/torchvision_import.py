"""Make torchvision importable where its compiled operators do not fit the installed torch.

A torchvision built for CUDA beside a torch for CPUs cannot load its operators, and then fails while it is
imported: `transformers`, timm and open_clip fail with it. The encoders use none of these operators, so their
names are declared and the import succeeds.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
REGISTERED_AT_IMPORT = ("nms", "qnms")
_declared: list[Any] = []  # a library that is garbage collected takes its declarations with it


def make_torchvision_importable() -> None:
    """Declare torchvision's operators if it is installed and they cannot be loaded."""
    if "torchvision" in sys.modules or _declared:
        return
    found = importlib.util.find_spec("torchvision")
    folders = found.submodule_search_locations if found is not None else None
    if not folders:
        return
    import torch

    try:
        torch.ops.load_library(str(next(Path(folders[0]).glob("_C*.so"))))
    except (OSError, StopIteration):
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in REGISTERED_AT_IMPORT:
            library.define(name + SIGNATURE)
        _declared.append(library)
