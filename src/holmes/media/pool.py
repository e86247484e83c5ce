"""Worker processes that extract videos: one that crashes fails its video, and another continues.

Where the encoder uses a GPU, workers only decode. The process with the GPU encodes their frames, which go
through shared memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from holmes.base import processes
from holmes.base.processes import Child, Listener, Parent
from holmes.media.backbones import VisualBackbone, load_visual
from holmes.media.encode_video import Outcome, Sign, extract_video, outcome_of
from holmes.media.feature_folder import FeatureFolder, VideoFeatures
from holmes.media.shared_encoder import (
    SERVED_AT_ONCE,
    RemoteEncoder,
    SharedMemory,
    describe,
    open_shared_memory,
    serve,
)

# For NumPy's small products. Its threads wait by spinning, and would take the cores from the other workers.
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
TIMEOUT = 600.0  # seconds without a sign of life before a worker counts as stuck


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
            encoding.submit(lambda: reply(serve(memory, shapes, encoder)))

        known = {"encoder": describe(encoder), "memory": file.fileno()}
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
