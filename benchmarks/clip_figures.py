"""Figures of sentences about clips: means with intervals over clips, overlaps, and calibration."""

from __future__ import annotations

import numpy as np


def per_sentence(found: dict[str, np.ndarray]) -> np.ndarray:
    """Whether the film came first, sorted by clip; a clip's sentences come in one order everywhere."""
    order = np.argsort(found["clip"], kind="stable")
    return found["first"][order]


def overlap(one: tuple[float, float], other: tuple[float, float]) -> float:
    common = min(one[1], other[1]) - max(one[0], other[0])
    return max(0.0, common) / (max(one[1], other[1]) - min(one[0], other[0]))


def calibration_error(sure: np.ndarray, right: np.ndarray, bins: int = 10) -> float:
    """The mean distance between how sure the answers of a bin were and how often they were right."""
    order = np.array_split(np.argsort(sure), min(bins, len(sure)))
    return float(sum(len(part) * abs(sure[part].mean() - right[part].mean()) for part in order) / len(sure))
