"""Worker processes for extraction: a crash fails only its video, and another worker continues.

Where the encoder uses a GPU, workers only decode: one model per core would fill the GPU with copies. The
process with the GPU encodes their frames. Frames and rows go through memory that both sides map; a line on
the worker's pipes says when they are there. Several requests are served at once, so that the frames of one
are made ready while the GPU works on another's.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from holmes.base import processes
from holmes.base.processes import Child, Listener, Parent
from holmes.errors import HolmesError, in_one_line
from holmes.media.backbones import load_visual
from holmes.media.backbones.base import Image, Matrix, VisualBackbone, identify
from holmes.media.encode_video import Outcome, Sign, extract_video, outcome_of
from holmes.media.feature_folder import FeatureFolder, VideoFeatures

# For NumPy's small products. Its threads wait by spinning, and would take the cores from the other workers.
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
TIMEOUT = 600.0  # seconds without a sign of life before a worker counts as stuck
SHARED_BYTES = 2**29  # bytes of address space for one worker's frames; memory is taken when it is written to
SERVED_AT_ONCE = 4
IN_MEMORY = Path("/dev/shm")  # where this folder exists, its files are memory


def extract_in_workers(
    setup: dict[str, Any],
    sources: list[Path],
    workers: int,
    report: Callable[[Sign], None] = lambda sign: None,
    shared: VisualBackbone | None = None,
    *,
    target: str = "holmes.media.pool:extraction_worker",
    timeout: float = TIMEOUT,
) -> Iterator[Outcome]:
    """What became of each source, in the order they finish. Workers send frames to a `shared` encoder."""
    with ThreadPoolExecutor(SERVED_AT_ONCE) as encoding:
        start: Callable[[Listener], Child] = partial(Child, target, setup=setup, environment=ONE_THREAD)
        if shared is not None:
            start = partial(_start_decoder, target, setup, shared, encoding)
        jobs = processes.run_jobs(
            start,
            ((source, str(source)) for source in sources),
            workers,
            report=lambda source, value: report(Sign(source, **value)),
            timeout=timeout,
        )
        with closing(jobs):  # workers end before what answers them
            for finished in jobs:
                if finished.ending is not None and finished.ending.signal:
                    crash = f"the decoder or the encoder crashed ({finished.ending.signal})"
                    yield Outcome(finished.job, crash)
                elif finished.failure:
                    yield Outcome(finished.job, finished.failure)
                else:
                    yield Outcome(finished.job, **finished.result)


def _start_decoder(
    target: str,
    setup: dict[str, Any],
    encoder: VisualBackbone,
    encoding: ThreadPoolExecutor,
    listener: Listener,
) -> Child:
    with open_shared_memory() as file:
        memory = SharedMemory(file.fileno())

        def answer(shapes: Any, reply: Callable[[Any], None]) -> None:
            encoding.submit(lambda: reply(encode_shared(memory, shapes, encoder)))

        known = {"encoder": facts_of(encoder), "memory": file.fileno()}
        return Child(
            target,
            listener,
            setup | known,
            environment=ONE_THREAD,
            files=(file.fileno(),),
            answer=answer,
        )


def extraction_worker(
    parent: Parent,
    folder: str,
    backbone: str,
    threads: int,
    fast: bool,
    device: str,
    encoder: dict[str, Any] | None = None,
    memory: int | None = None,
) -> Callable[[str], dict[str, Any]]:
    """What extracts one video in a worker: its path → its `Outcome` but for the path."""
    features = FeatureFolder.open(folder)
    if encoder is not None and memory is not None:
        loaded: VisualBackbone = RemoteEncoder(encoder, memory, parent.request)
    else:
        loaded = load_visual(backbone, threads=threads, device=device)

    def report(sign: Sign) -> None:
        parent.report({"seconds": sign.seconds, "share": sign.share} if sign.seconds else {})

    def extract(source: Path) -> VideoFeatures:
        return extract_video(source, features, loaded, threads, report=report, fast=fast)

    def work(source: str) -> dict[str, Any]:
        outcome = asdict(outcome_of(Path(source), extract))
        del outcome["source"]
        return outcome

    return work


def is_shared(encoder: VisualBackbone) -> bool:
    """Whether it works on a GPU, of which there are fewer than cores."""
    return str(getattr(encoder, "device", "cpu")).startswith("cuda")


def facts_of(encoder: VisualBackbone) -> dict[str, Any]:
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


def encode_shared(memory: SharedMemory, shapes: Sequence[Sequence[int]], encoder: VisualBackbone) -> str:
    """Encode what a worker has put into shared memory; return a line about what went wrong, or nothing."""
    try:
        memory.put([encoder.frames(memory.images(shapes)).astype(np.float32)])
        return ""
    except HolmesError as error:
        return str(error)
    except Exception as error:  # the encoders are others' code
        return in_one_line(error)
