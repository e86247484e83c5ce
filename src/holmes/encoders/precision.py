"""The floating-point precision of the encoders. Evidence and losses always use float32."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch


def encoder_precision(device: torch.device) -> AbstractContextManager[Any]:
    """bf16 for the encoders on a GPU, float32 elsewhere."""
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")
