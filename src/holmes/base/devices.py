"""Choose the device, and keep freed memory for the next step."""

from __future__ import annotations

import ctypes
import os
import re
from contextlib import suppress

import torch

from holmes.errors import HolmesError

# Options of glibc's mallopt; elsewhere there is nothing to set.
TRIM_THRESHOLD, MMAP_MAX, ARENA_MAX = -1, -4, -8


def keep_freed_memory() -> None:
    """From now on, in this process, all memory is in one pool and nothing is given back."""
    with suppress(OSError, AttributeError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(ARENA_MAX, 1)
        mallopt(MMAP_MAX, 0)
        mallopt(TRIM_THRESHOLD, -1)


def device_named(name: str = "auto") -> torch.device:
    """The device of that name; auto is the GPU where there is one. Refuses what is not here."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if not re.fullmatch(r"cpu|cuda(:\d{1,3})?", name):
        raise HolmesError(f"unknown device '{name}'; use auto, cpu, cuda or cuda:N.")
    device = torch.device(name)
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise HolmesError(f"device '{name}' was asked for, but torch sees no GPU; use --device cpu.")
        if device.index is not None and device.index >= torch.cuda.device_count():
            raise HolmesError(f"device {name} does not exist; torch sees {torch.cuda.device_count()}.")
    return device


def choose_device(name: str = "auto") -> torch.device:
    """The named device, made ready for training, or the GPU of this process where there is one."""
    device = device_named(name)
    if device.type == "cuda":
        index = int(os.environ.get("LOCAL_RANK", "0")) if device.index is None else device.index
        device = device_named(f"cuda:{index}")
        torch.cuda.set_device(device)
    else:
        keep_freed_memory()
    return device
