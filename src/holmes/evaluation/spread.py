"""Figures over seeds: mean and deviation."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

Spread = dict[str, float | None]  # "mean", "deviation": None for a single run, and where known "low", "high"


def spread(runs: Sequence[dict[str, float]]) -> dict[str, Spread]:
    """Each figure's mean and sample deviation over runs."""
    values = {name: [run[name] for run in runs] for name in runs[0]}
    return {
        name: {
            "mean": statistics.fmean(some),
            "deviation": statistics.stdev(some) if len(some) > 1 else None,
        }
        for name, some in values.items()
    }
