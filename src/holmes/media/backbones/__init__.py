"""The encoders, and how they are found by name.

lite2                       EfficientNet-Lite2 frames (1280), needs no download
"""

from __future__ import annotations

from holmes.errors import unknown
from holmes.media.backbones.base import (
    Identity,
    JointBackbone,
    TextBackbone,
    VisualBackbone,
    identify,
)

__all__ = [
    "DEFAULT",
    "Identity",
    "JointBackbone",
    "TextBackbone",
    "VisualBackbone",
    "identify",
    "load_visual",
]

DEFAULT = "lite2"


def load_visual(name: str, threads: int | None = None) -> VisualBackbone:
    """The frame encoder of that name."""
    if name == "lite2":
        from holmes.media.backbones.lite2 import Lite2

        return Lite2(threads)
    raise unknown("frame encoder", name, ["lite2"])
