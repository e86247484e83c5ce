"""Which device to use, and whether compiling pays there."""

from __future__ import annotations

import os
import re

import torch

from holmes.errors import HolmesError
from holmes.memory import keep_freed_memory


def choose_device(name: str = "auto") -> torch.device:
    """The named device, made ready for work, or the GPU of this process where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if not re.fullmatch(r"cpu|cuda(:\d{1,3})?", name):
        raise HolmesError(f"unknown device '{name}'; use auto, cpu, cuda or cuda:N.")
    device = torch.device(name)
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise HolmesError(f"device '{name}' was asked for, but torch sees no GPU; use --device cpu.")
        index = int(os.environ.get("LOCAL_RANK", "0")) if device.index is None else device.index
        if index >= torch.cuda.device_count():
            raise HolmesError(f"device cuda:{index} does not exist; torch sees {torch.cuda.device_count()}.")
        torch.cuda.set_device(index)
        device = torch.device("cuda", index)
    else:
        keep_freed_memory()
    return device


# Compiling takes about a minute and saves some ten milliseconds a step.
FEWEST_STEPS_TO_COMPILE = 4000


def should_compile(device: torch.device, steps: int) -> bool:
    """Whether a run on this device is long enough to win back the time compiling takes."""
    return device.type == "cuda" and steps >= FEWEST_STEPS_TO_COMPILE
