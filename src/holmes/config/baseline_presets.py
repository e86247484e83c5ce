"""Other methods of the field with the settings of their releases, to stand beside ours.

MS-SL (Dong et al., 2022) and GMMFormer (Wang et al., 2024) train in one stage; what is stage 2 here brings
them hard negatives, nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holmes.config.schema import HolmesConfig, with_changes

Settings = dict[str, Any]
NO_EVIDENCE: Settings = {"loss.inter": 0.0, "loss.intra": 0.0}

# Encoder and objective: the same on all data sets.
METHODS: dict[str, Settings] = {
    "ms_sl": {
        "model.encoder": "ms_sl",
        "model.gaussian_widths": (None,),
        "loss.diversity": 0.0,
        "loss.contrastive_clip": 0.02,
        "loss.contrastive_frame": 0.04,
        "score.frame_weight": 0.3,
        "score.clip_weight": 0.7,
    },
    "gmmformer": {
        "model.encoder": "gmmformer",
        "model.gaussian_widths": (None, 0.5, 1.0, 5.0),
        "loss.diversity_form": "pooled",
        "score.frame_weight": 0.3,
        "score.clip_weight": 0.7,
    },
}
TITLES = {"ms_sl": "MS-SL", "gmmformer": "GMMFormer"}

# What differs between data sets.
OWN: dict[str, dict[str, Settings]] = {
    "ms_sl": {
        name: {"dropout": 0.1, "learning_rate": 2.5e-4, "patience": 10, "margin": margin}
        for name, margin in (("tvr", 0.1), ("activitynet", 0.2), ("charades", 0.2))
    },
    "gmmformer": {
        "tvr": {"diversity": 1e-3, "patience": 10, "warm_up_epochs": 30},
        "activitynet": {"diversity": 0.015, "dropout": 0.2, "patience": 10},
        "charades": {
            "contrastive_frame": 0.02,
            "diversity": 0.005,
            "diversity_margin": 0.15,
            "dropout": 0.15,
            "learning_rate": 2.5e-4,
            "patience": 10,
            "warm_up_epochs": 100,  # never: no hard negatives
        },
    },
}


def baseline_presets(presets: dict[str, Callable[[], HolmesConfig]]) -> dict[str, Callable[[], HolmesConfig]]:
    """`method_dataset` for every method and data set, on top of our preset of the data set."""

    def made(method: str, data: str) -> Callable[[], HolmesConfig]:
        changes = METHODS[method] | NO_EVIDENCE | OWN[method][data]
        return lambda: with_changes(presets[data](), changes, f"{method}_{data}")

    return {f"{method}_{data}": made(method, data) for method in METHODS for data in OWN[method]}


def for_table(method: str, evidence: bool) -> Settings:
    """The method in place of ours in a table whose rows are all trained alike: on any preset's schedule."""
    diversity = {} if method == "ms_sl" else {"loss.diversity": 0.005}
    return METHODS[method] | diversity | ({} if evidence else NO_EVIDENCE)
