"""The child process that decodes videos for a server, started by `holmes.serve.decoding`.

A hostile video can crash or exhaust this process, not the server: its memory and what it may write are
bounded, and it ends when the server does.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holmes.base.processes import Parent, bound_resources
from holmes.errors import HolmesError

PICTURE_LIMIT = 80_000  # bytes of a picture
SENT_PIXELS = 20_000_000  # of a picture that a client sends, in a body of 64 KiB: more would only take time
PIECE = 1 << 18  # bytes of a video that are sent together


def start(parent: Parent) -> Callable[[dict[str, Any]], Any]:
    """What does one job: a picture, a plan, frames, or a video, whose pieces are reported."""
    bound_resources()

    def work(job: dict[str, Any]) -> Any:
        try:
            return decode(parent, **job)
        except (OSError, MemoryError) as error:
            raise HolmesError(str(error) or "it takes too much memory") from None

    return work


def decode(parent: Parent, task: str, path: str, **how: Any) -> Any:
    from holmes.media.cutting import FilmClip, write_clip, write_reel
    from holmes.media.pictures import thumbnail
    from holmes.media.playable import Plan, fragmented_mp4, plan_conversion
    from holmes.media.reader import VideoReader
    from holmes.media.source_frames import read_source

    file = Path(path)
    if task == "upload":
        from holmes.media.picture_file import decode_picture
        from holmes.media.picture_file import in_text as as_text

        return as_text(decode_picture(base64.b64decode(how["content"]), most=SENT_PIXELS))
    if task == "picture":
        width: int = how["width"]
        picture = VideoReader(file, 1.0, largest_side=width).at(how["time"])
        return in_text(thumbnail(picture, width, width, limit=PICTURE_LIMIT))
    if task == "cut":
        chosen = [FilmClip(Path(path), start, end, tuple(title)) for path, start, end, title in how["clips"]]
        out = ReportedFile(parent)
        if how["reel"]:
            write_reel(chosen, out, pieces=True)
        else:
            write_clip(chosen[0], out, exact=how["exact"], pieces=True)
        out.send()
        return None
    if task == "frames":
        return read_source(file, [(start, end) for start, end in how["moments"]]).to_dict()
    if task == "plan":
        plan = plan_conversion(file, how["start"])
        return [plan.copied, plan.start]
    for piece in fragmented_mp4(file, Plan(how["copied"], how["start"])):
        parent.report(in_text(piece))
    return None


class ReportedFile(io.RawIOBase):
    """Where a muxer writes: what is full is reported to the server, and never changed again."""

    def __init__(self, parent: Parent) -> None:
        self._parent, self._waiting = parent, bytearray()

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def write(self, data: Any) -> int:
        self._waiting += data
        if len(self._waiting) >= PIECE:
            self.send()
        return len(data)

    def send(self) -> None:
        if self._waiting:
            self._parent.report(in_text(bytes(self._waiting)))
            self._waiting.clear()


def in_text(content: bytes) -> str:
    return base64.b64encode(content).decode()
