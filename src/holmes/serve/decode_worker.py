"""Decoding of videos for a server, in a child process that `holmes.serve.decoding` starts.

A hostile video can crash or exhaust this process, not the server: its memory and what it may write are
bounded, and it ends when the server does.
"""

from __future__ import annotations

import base64
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holmes.base.processes import Parent
from holmes.errors import HolmesError

MEMORY = 4 << 30  # bytes of address space
WRITTEN = 1 << 20  # bytes of its largest file, which is its error output
PICTURE_LIMIT = 80_000  # bytes of a picture


def start(parent: Parent) -> Callable[[dict[str, Any]], Any]:
    """What does one job: a picture, a plan, frames, or a conversion, whose pieces are reported."""
    for limit, value in (("AS", MEMORY), ("FSIZE", WRITTEN), ("CORE", 0)):
        resource.setrlimit(getattr(resource, f"RLIMIT_{limit}"), (value, value))

    def work(job: dict[str, Any]) -> Any:
        try:
            return decode(parent, **job)
        except (OSError, MemoryError) as error:
            raise HolmesError(str(error) or "it takes too much memory") from None

    return work


def decode(parent: Parent, task: str, path: str, **how: Any) -> Any:
    from holmes.media.pictures import thumbnail
    from holmes.media.playable import Plan, fragmented_mp4, plan_conversion
    from holmes.media.reader import VideoReader
    from holmes.media.source_frames import read_source

    file = Path(path)
    if task == "picture":
        width: int = how["width"]
        picture = VideoReader(file, 1.0, largest_side=width).at(how["time"])
        return in_text(thumbnail(picture, width, width, limit=PICTURE_LIMIT))
    if task == "frames":
        return read_source(file, [(start, end) for start, end in how["moments"]]).to_dict()
    if task == "plan":
        plan = plan_conversion(file, how["start"])
        return [plan.copied, plan.start]
    for piece in fragmented_mp4(file, Plan(how["copied"], how["start"])):
        parent.report(in_text(piece))
    return None


def in_text(content: bytes) -> str:
    return base64.b64encode(content).decode()
