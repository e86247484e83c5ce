"""Presets of the baselines, with the settings of their releases.

They train in one stage: our stage 2 only brings them hard negatives.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Settings = dict[str, Any]
NO_EVIDENCE: Settings = {"loss.inter": 0.0, "loss.intra": 0.0}
TITLES = {
    "ms_sl": "MS-SL",
    "gmmformer": "GMMFormer",
    "gmmformer_v2": "GMMFormerV2",
    "hlformer": "HLFormer",
    "dreamprvr": "DreamPRVR",
}
DATA_SETS = ("tvr", "activitynet", "charades")

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
    "gmmformer_v2": {
        "model.encoder": "gmmformer_v2",
        "model.gaussian_widths": (None, 0.5, 1.0, 5.0, 10.0, 3.0, 0.1, 8.0),
        "loss.extra": ("matching:0.1",),
        "score.frame_weight": 0.3,
        "score.clip_weight": 0.7,
    },
    "hlformer": {
        "model.encoder": "hlformer",
        "model.gaussian_widths": (None, 2.0, 4.0, 8.0),
        "loss.extra": ("entailment:0.001",),
        "score.frame_weight": 0.3,
        "score.clip_weight": 0.7,
    },
    "dreamprvr": {
        "model.encoder": "dreamprvr",
        "model.gaussian_widths": (None, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0),
        "model.registers": 4,
        "loss.extra": ("text_structure:0.01", "register_kl:0.0001", "denoising:0.001"),
        "loss.text_temperature": 0.08,
        "score.frame_weight": 0.4,
        "score.clip_weight": 0.6,
    },
}

# What differs between data sets, and from our preset of the data set.
OWN: dict[str, dict[str, Settings]] = {
    "ms_sl": {
        "tvr": {"dropout": 0.1, "learning_rate": 2.5e-4, "patience": 10, "margin": 0.1},
        "activitynet": {"dropout": 0.1, "learning_rate": 2.5e-4, "patience": 10, "margin": 0.2},
        "charades": {
            "dropout": 0.1,
            "learning_rate": 2.5e-4,
            "patience": 10,
            "margin": 0.2,
            "score.frame_weight": 0.5,
            "score.clip_weight": 0.5,
        },
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
    "gmmformer_v2": {
        "tvr": {"loss.extra": ("matching:0.09",), "patience": 10},
        "activitynet": {"loss.extra": ("matching:0.11",), "patience": 10},
        "charades": {"patience": 10},
    },
    "hlformer": {data: {"patience": 10} for data in DATA_SETS},
    "dreamprvr": {
        "tvr": {
            "registers": 8,
            "text_temperature": 0.09,
            "score.frame_weight": 0.5,
            "score.clip_weight": 0.5,
            "epochs": 150,
            "patience": 20,
        },
        "activitynet": {"patience": 10},
        "charades": {
            "registers": 6,
            "text_temperature": 0.01,
            "loss.extra": ("text_structure:0.002", "register_kl:0.0001", "denoising:0.001"),
            "patience": 10,
        },
    },
}


def baseline_changes() -> Iterator[tuple[str, str, Settings]]:
    """Every method on every data set, and what it changes in our preset of the data set."""
    for method, of_data in OWN.items():
        for data, own in of_data.items():
            yield method, data, METHODS[method] | NO_EVIDENCE | own


def for_table(method: str, evidence: bool) -> Settings:
    """The method in place of ours in a table whose rows are all trained alike: on any preset's schedule."""
    diversity = {"loss.diversity": 0.005} if method == "gmmformer" else {}
    return METHODS[method] | diversity | ({} if evidence else NO_EVIDENCE)
