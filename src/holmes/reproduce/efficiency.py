"""Efficiency as the paper's table defines it, measured on this device.

Inference: encoding the test videos. Retrieval: encoding all test queries, scoring and ranking.
"""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from holmes.base.devices import choose_device
from holmes.base.manifests import FileFormat
from holmes.data.bank import FeatureBank
from holmes.data.store import Store
from holmes.encoders.checkpoint import BEST, load_checkpoint
from holmes.encoders.precision import encoder_precision
from holmes.evaluation.recall import rank_of_owner
from holmes.evaluation.scoring import (
    QUERY_CHUNK,
    VIDEO_CHUNK,
    Encoded,
    chunks,
    joined,
    score_all,
    unit_queries,
    unit_videos,
)
from holmes.records import VideoEmbedding
from holmes.reproduce.estimate import timed
from holmes.training.logbook import read_metrics

FORMAT = FileFormat("holmes-efficiency", 1, "measured times", "remove the file")
FILE = "efficiency.json"


@dataclass(frozen=True)
class Times:
    """One method on one device; milliseconds, and millions of parameters."""

    device: str
    train_ms: float
    parameters: float
    inference_ms: float
    retrieval_ms: float


def device_name(asked: str) -> str:
    """What a device is called, such as NVIDIA H200."""
    device = choose_device(asked)
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def measure(run: Path, store: Store, device_asked: str) -> Times:
    """The times of a finished timed run; measured once and kept in its folder."""
    device = choose_device(device_asked)
    named = device_name(device_asked)
    if (run / FILE).exists() and (kept := FORMAT.read(run / FILE, Times)).device == named:
        return kept
    checkpoint = load_checkpoint(run / BEST, str(device))
    model, score = checkpoint.model.eval(), checkpoint.config.score
    split = store.split("test")
    bank = FeatureBank.of_splits(store, device, [split])
    owner_Q = torch.from_numpy(split.owner).to(device)

    def encode_videos() -> VideoEmbedding:
        parts = [
            unit_videos(model.encode_videos(*bank.videos(index)))
            for index in chunks(split.videos, model.videos_at_once or VIDEO_CHUNK)
        ]
        videos: VideoEmbedding = joined(parts, len(split.videos))
        return videos

    def retrieve() -> None:
        parts = [
            unit_queries(model.encode_queries(*bank.queries(index)))
            for index in chunks(split.queries, QUERY_CHUNK)
        ]
        queries = joined(parts, len(split.queries))
        asked = Encoded(known, queries, owner_Q, model.config.clips, model.guided)
        rank_of_owner(score_all(asked).combined(score.frame_weight, score.clip_weight), owner_Q)

    with torch.inference_mode(), encoder_precision(device):
        inference = timed(encode_videos, device)
        known = encode_videos()
        retrieval = timed(retrieve, device)
    epochs = [entry["speed"]["train_seconds"] for entry in read_metrics(run)]
    times = Times(
        named,
        1000 * statistics.median(epochs[1:] or epochs),
        sum(parameter.numel() for parameter in model.parameters()) / 1e6,
        1000 * inference,
        1000 * retrieval,
    )
    FORMAT.write(run / FILE, asdict(times))
    return times
