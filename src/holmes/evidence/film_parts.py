"""Merge candidates that are parts of the same video, by adding their Dirichlet concentrations.

Q queries, K candidates (best first)
"""

from __future__ import annotations

import torch
from torch import Tensor


def first_of_each(video_QK: Tensor) -> Tensor:
    """Where a video appears for the first time in its row."""
    earlier_QKK = (video_QK.unsqueeze(2) == video_QK.unsqueeze(1)).tril(-1)
    return ~earlier_QKK.any(2)


def rank_of_video(video_QK: Tensor) -> Tensor:
    """Each candidate's video as its rank among the videos, in the order of their first candidates."""
    first_QK = (video_QK.unsqueeze(2) == video_QK.unsqueeze(1)).int().argmax(2)
    return (first_of_each(video_QK).cumsum(1) - 1).gather(1, first_QK)


def count_videos(video_QK: Tensor) -> Tensor:
    return first_of_each(video_QK).sum(1)


def sum_by_video(value_QK: Tensor, video_QK: Tensor | None) -> Tensor:
    """The sum over each video's candidates, Q × K, then zeros; without `video_QK` each is its own video."""
    if video_QK is None or not video_QK.shape[1]:
        return value_QK
    return torch.zeros_like(value_QK).scatter_add(1, rank_of_video(video_QK), value_QK)


def best_by_video(value_QK: Tensor, video_QK: Tensor | None) -> Tensor:
    """The value of each video's first candidate; after a row's last video its lowest value is repeated."""
    if video_QK is None or not video_QK.shape[1]:
        return value_QK
    rank_QK = rank_of_video(video_QK)
    return value_QK[:, -1:].repeat(1, value_QK.shape[1]).scatter_reduce(1, rank_QK, value_QK, "amax")
