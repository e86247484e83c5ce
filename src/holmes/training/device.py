"""Whether compiling pays on a device."""

from __future__ import annotations

import torch

# Compiling takes about a minute and saves some ten milliseconds a step.
FEWEST_STEPS_TO_COMPILE = 4000


def should_compile(device: torch.device, steps: int) -> bool:
    """Whether a run on this device is long enough to win back the time compiling takes."""
    return device.type == "cuda" and steps >= FEWEST_STEPS_TO_COMPILE
