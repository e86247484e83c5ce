"""Extraction on a Ray cluster: each video is a task, repeated elsewhere if its node dies.

Videos and the feature folder lie where all nodes reach them under the same path. A task reads one video,
encodes it and writes its file, whole or not at all, as a worker process of one machine does; so the files are
the same, and running it again does what is left.

Ray places the tasks and tries them again. It does not end a task that makes no progress, nor say in one line
why one failed.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import holmes
from holmes.cluster.connect import check_version, connect, import_ray, nodes_alive, our_error, reason_of
from holmes.errors import HolmesError
from holmes.media.backbones import VisualBackbone, load_visual
from holmes.media.encode_video import Outcome, Sign, extract_video, outcome_of
from holmes.media.extraction import Executor, Work
from holmes.media.feature_folder import FeatureFolder, VideoFeatures, video_id
from holmes.media.pool import TIMEOUT

RETRIES = 2  # of a video whose worker or node died
CPUS = 0.95  # CPUs of a node that a task reserves: a core, less what shards on that node have reserved
PER_CORE = 2  # tasks under way, so that no core waits for this process


def executor_at(address: str) -> Executor:
    """An executor for `holmes.media.extraction`, on the cluster at `address`."""
    connect(address)
    return _outcomes


def _outcomes(work: Work) -> Iterator[Outcome]:
    ray = import_ray()
    share, slots = _slots()
    task = ray.remote(extract_one).options(
        num_cpus=CPUS, num_gpus=share, max_retries=RETRIES, retry_exceptions=False
    )
    setup = (os.path.abspath(work.folder.path), work.backbone, work.fast, holmes.__version__)
    waiting, busy = iter(work.sources), dict[Any, Path]()
    try:
        while True:
            for source in waiting:
                busy[task.remote(os.path.abspath(source), *setup)] = source
                if len(busy) >= slots:
                    break
            if not busy:
                return
            done, _ = ray.wait(list(busy), num_returns=1)
            for answer in done:
                yield _outcome(ray, answer, busy.pop(answer))
    finally:  # if the caller stops listening, the work stops
        for answer in busy:
            ray.cancel(answer, force=True)


def _slots() -> tuple[float, int]:
    """How much of a GPU a task takes, where nodes have GPUs, and how many tasks to have under way."""
    nodes = nodes_alive()
    with_gpu = [node for node in nodes if node.get("GPU", 0) and node.get("CPU", 0)]
    per_core = max((node["GPU"] / node["CPU"] for node in with_gpu), default=0.0)
    share = min(1.0, int(per_core * 1e4) / 1e4)
    cores = sum(node.get("CPU", 0) for node in (with_gpu if share else nodes))
    if not cores:
        raise HolmesError("no node of the cluster has a CPU to extract with; add nodes.")
    return share, max(2, int(PER_CORE * cores))


def _outcome(ray: Any, answer: Any, source: Path) -> Outcome:
    try:
        outcome: Outcome = ray.get(answer)
        return replace(outcome, source=source)
    except ray.exceptions.RayTaskError as error:
        if (ours := our_error(error)) is not None:
            raise HolmesError(str(ours)) from None
        return Outcome(source, failure=reason_of(error))
    except ray.exceptions.OutOfMemoryError:
        return Outcome(source, failure=f"there was not enough memory for it, {RETRIES + 1} times")
    except ray.exceptions.WorkerCrashedError:
        words = f"the decoder or the encoder crashed or made no progress, {RETRIES + 1} times"
        return Outcome(source, failure=words)
    except ray.exceptions.RayError as error:
        return Outcome(source, failure=f"its nodes died, {RETRIES + 1} times ({type(error).__name__})")


def extract_one(source: str, folder: str, backbone: str, fast: bool, version: str) -> Outcome:
    """What a node does for one video."""
    check_version(version)
    if not os.path.isdir(folder):
        raise HolmesError(
            f"{folder} is not there on node {os.uname().nodename}; use a folder all nodes share."
        )
    features, encoder = FeatureFolder.open(folder), _encoder(backbone)
    if features.backbone.digest != encoder.digest:
        raise HolmesError(
            f"node {os.uname().nodename} has another '{backbone}' ({encoder.digest[:12]}, not "
            f"{features.backbone.digest[:12]}); install the same weights there."
        )
    if features.is_current(Path(source)):  # an earlier try got as far as writing it
        return Outcome(Path(source), note=features[video_id(Path(source))].note)

    def work(path: Path) -> VideoFeatures:
        with _Watch() as watch:
            return extract_video(path, features, encoder, report=watch.sign, fast=fast)

    return outcome_of(Path(source), work)


@lru_cache(1)
def _encoder(name: str) -> VisualBackbone:
    """Loaded once in a worker, which Ray keeps for the next video."""
    return load_visual(name)


class _Watch:
    """End the process if a video makes no progress for long: a stuck decoder reacts to nothing else."""

    def __enter__(self) -> _Watch:
        self._last, self._done = time.monotonic(), threading.Event()
        threading.Thread(target=self._wait, daemon=True).start()
        return self

    def sign(self, sign: Sign) -> None:
        self._last = time.monotonic()

    def _wait(self) -> None:
        while not self._done.wait(1.0):
            if time.monotonic() - self._last > TIMEOUT:
                os._exit(1)

    def __exit__(self, *error: object) -> None:
        self._done.set()
