"""One encoder for many decoders: workers decode and hand their frames over, the process with the GPU encodes.

One model per core would fill the GPU with copies of itself. Frames and rows go through memory that both sides
map; a line on the worker's pipes says when they are there. Several requests are served at once, so that the
frames of one are made ready while the GPU works on another's.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from holmes.errors import HolmesError, in_one_line
from holmes.media.backbones.base import Image, Matrix, VisualBackbone, identify

SHARED_BYTES = 2**29  # bytes of address space for one worker's frames; memory is taken when it is written to
SERVED_AT_ONCE = 4
IN_MEMORY = Path("/dev/shm")  # where this folder exists, its files are memory


def is_shared(encoder: VisualBackbone) -> bool:
    """Whether it works on a GPU, of which there are fewer than cores."""
    return str(getattr(encoder, "device", "cpu")).startswith("cuda")


def describe(encoder: VisualBackbone) -> dict[str, Any]:
    """What a worker must know of an encoder that it does not have."""
    known = identify(encoder)
    return {
        **{name: getattr(known, name) for name in ("name", "digest", "width", "joint")},
        **{name: getattr(encoder, name) for name in ("side", "rate", "window")},
    }


def open_shared_memory() -> IO[bytes]:
    """Memory to share with one worker: a file without a name, which is gone when nobody has it open."""
    file = tempfile.TemporaryFile(dir=IN_MEMORY if IN_MEMORY.is_dir() else None)  # noqa: SIM115
    file.truncate(SHARED_BYTES)
    return file


class SharedMemory:
    """The shared memory, mapped by one side."""

    def __init__(self, descriptor: int) -> None:
        self._map = mmap.mmap(descriptor, SHARED_BYTES)

    def put(self, arrays: Sequence[np.ndarray]) -> list[list[int]]:
        """Arrays one after the other; their shapes, which `images` needs."""
        if sum(array.nbytes for array in arrays) > SHARED_BYTES:
            raise HolmesError("its frames are too large to be encoded together")
        self._map.seek(0)
        for array in arrays:
            self._map.write(np.ascontiguousarray(array).data)
        return [list(array.shape) for array in arrays]

    def images(self, shapes: Sequence[Sequence[int]]) -> list[Image]:
        found, at = [], 0
        for shape in shapes:
            size = int(np.prod(shape))
            found.append(np.frombuffer(self._map, np.uint8, size, at).reshape(shape).copy())
            at += size
        return found

    def rows(self, count: int, width: int) -> Matrix:
        return np.frombuffer(self._map, np.float32, count * width).reshape(count, width).copy()


class RemoteEncoder:
    """The encoder as a worker sees it: `ask` announces frames in shared memory and waits for their rows."""

    def __init__(self, known: dict[str, Any], descriptor: int, ask: Callable[[Any], str]) -> None:
        self.name, self.digest, self.joint = str(known["name"]), str(known["digest"]), bool(known["joint"])
        self.width, self.side, self.window = int(known["width"]), int(known["side"]), int(known["window"])
        self.rate = float(known["rate"])
        self._memory, self._ask = SharedMemory(descriptor), ask

    def frames(self, images: Sequence[Image]) -> Matrix:
        if failure := self._ask(self._memory.put(images)):
            raise HolmesError(failure)
        return self._memory.rows(len(images) // self.window, self.width)


def serve(memory: SharedMemory, shapes: Sequence[Sequence[int]], encoder: VisualBackbone) -> str:
    """Encode what a worker has put into shared memory; return a line about what went wrong, or nothing."""
    try:
        memory.put([encoder.frames(memory.images(shapes)).astype(np.float32)])
        return ""
    except HolmesError as error:
        return str(error)
    except Exception as error:  # the encoders are others' code
        return in_one_line(error)
