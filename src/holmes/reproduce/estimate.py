"""Estimate the time of an epoch on this device, from a few passes on random features."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from holmes.base.devices import choose_device
from holmes.config.schema import HolmesConfig
from holmes.encoders.build import build_model
from holmes.encoders.precision import encoder_precision
from holmes.reproduce.published import COLLECTIONS
from holmes.training.logbook import read_metrics

VIDEOS = {"cuda": 128, "cpu": 2}  # in a measured batch
TRIES = {"cuda": 3, "cpu": 1}


def epoch_seconds(config: HolmesConfig, collection: str, device_name: str) -> float:
    """An epoch with its evaluation at the field's sizes, without the losses: encoders take most of it."""
    about, device = COLLECTIONS[collection], choose_device(device_name)
    settings = replace(config.model, video_width=about.video_width, text_width=about.text_width)
    model = build_model(settings).to(device).train()
    sizes, (videos, queries) = about.sizes, about.sizes["train"]
    batch = VIDEOS[device.type]
    asked = max(1, round(batch * queries / videos))
    frames = torch.randn(batch, settings.frames, about.video_width, device=device)
    clips = torch.randn(batch, settings.clips, about.video_width, device=device)
    tokens = torch.randn(asked, settings.tokens, about.text_width, device=device)
    full = torch.full((batch,), min(settings.frames, about.mean_rows), device=device)
    words = torch.full((asked,), settings.tokens, device=device)

    def forward() -> torch.Tensor:
        with encoder_precision(device):
            video = model.encode_videos(frames, full, clips)
            query = model.encode_queries(tokens, words)
        total = video.frames_VFD.float().mean() + video.clips_VCD.float().mean()
        return total + query.query_QD.float().mean()

    def learn() -> None:
        forward().backward()
        model.zero_grad()

    trained = timed(learn, device) * videos / batch
    with torch.inference_mode():
        evaluated = timed(forward, device) * sizes["test"][0] / batch
    return trained + evaluated


def timed(work: Callable[[], object], device: torch.device) -> float:
    """The fastest of a few tries, in seconds, after one that warms up."""
    best = float("inf")
    for attempt in range(TRIES[device.type] + 1):
        start = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        if attempt:
            best = min(best, time.perf_counter() - start)
    return best


def measured_seconds(folder: Path) -> float | None:
    """The mean epoch of a run that has begun, evaluation included; None where there is none yet."""
    entries = read_metrics(folder)
    spent = [
        entry["speed"]["train_seconds"] + entry["speed"].get("evaluate_seconds", 0.0) for entry in entries
    ]
    return sum(spent) / len(spent) if spent else None


def in_words(seconds: float) -> str:
    """45 s, 12 min, 3.4 h, 2.1 days."""
    for unit, size in (("days", 86_400), ("h", 3_600)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"
