"""The settings behind the published numbers, one function for each data set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from holmes.base.files import read_json, write_json
from holmes.config.baseline_presets import baseline_changes
from holmes.config.schema import (
    EvidenceConfig,
    HolmesConfig,
    LossConfig,
    ModelConfig,
    ScoreConfig,
    TrainingConfig,
    from_dict,
    to_dict,
    with_changes,
)
from holmes.errors import HolmesError, unknown


def activitynet() -> HolmesConfig:
    """ActivityNet Captions: I3D and RoBERTa features."""
    return HolmesConfig(
        name="activitynet",
        model=ModelConfig(video_width=1024, text_width=1024, mixing_temperature=0.6, dropout=0.31),
        evidence=EvidenceConfig(inter_temperature=0.04, intra_temperature=0.08),
        loss=LossConfig(intra=1e-4),
        training=TrainingConfig(learning_rate=2.5e-4, patience=10),
    )


def charades() -> HolmesConfig:
    """Charades-STA: I3D and RoBERTa features."""
    return HolmesConfig(
        name="charades",
        model=ModelConfig(video_width=1024, text_width=1024, mixing_temperature=0.6, dropout=0.25),
        evidence=EvidenceConfig(inter_temperature=0.08, intra_temperature=0.08),
        loss=LossConfig(intra=9e-4),
        training=TrainingConfig(learning_rate=2e-4),
    )


def tvr() -> HolmesConfig:
    """TV show Retrieval: ResNet152 + I3D and RoBERTa features."""
    return HolmesConfig(
        name="tvr",
        model=ModelConfig(video_width=3072, text_width=768, mixing_temperature=0.09, dropout=0.2),
        evidence=EvidenceConfig(inter_temperature=0.05, intra_temperature=0.06),
        loss=LossConfig(
            contrastive_clip=0.05,
            contrastive_frame=0.04,
            diversity=8e-5,
            intra=0.8,
            inter=0.2,
            margin=0.1,
            diversity_margin=0.15,
        ),
        training=TrainingConfig(learning_rate=3e-4),
    )


def tvr_dual() -> HolmesConfig:
    """TV show Retrieval with token-level frame scoring: the released 198.6."""
    base = tvr()
    return replace(
        base,
        name="tvr_dual",
        model=replace(base.model, dual_query=True),
        evidence=replace(base.evidence, inter_temperature=0.2, intra_temperature=0.04),
        loss=replace(base.loss, intra=0.1, inter=0.01),
        score=ScoreConfig(frame_weight=0.5, clip_weight=0.5),
        training=replace(base.training, epochs=150),
    )


def small() -> HolmesConfig:
    """A light model for small collections and for trying things out on a CPU."""
    base = tvr()
    return replace(
        base,
        name="small",
        model=replace(base.model, width=96, gaussian_widths=(None, 1.0, 4.0, 16.0), mixing_temperature=0.6),
        training=replace(base.training, epochs=30, warm_up_epochs=10, batch_videos=64, learning_rate=1e-3),
    )


Preset = Callable[[], HolmesConfig]
PRESETS: dict[str, Preset] = {
    "activitynet": activitynet,
    "charades": charades,
    "tvr": tvr,
    "tvr_dual": tvr_dual,
    "small": small,
}
# What was shown to make a better model than the published one (docs/recipes.md).
PLUS = {"loss.contrastive_cosine": 0.25, "loss.contrastive_temperature": 0.07}
CLIP_WIDTHS = {"clip_b32": 512, "clip_l14": 768}  # of frames and of sentences
CLIP_TITLES = {"clip_b32": "CLIP-B/32", "clip_l14": "CLIP-L/14"}


def changed(name: str, base: Preset, changes: dict[str, Any]) -> Preset:
    """A preset made of another one."""
    return lambda: with_changes(base(), changes, name)


def of_width(width: int) -> dict[str, Any]:
    """For features of a joint model, which has frames and sentences of one width."""
    return {"model.video_width": width, "model.text_width": width}


# For features of CLIP the field keeps a data set's settings and changes the widths. Videos of one's own take
# ActivityNet's settings: its videos are the most general ones.
VARIANTS = [(f"{name}_plus", base, PLUS) for name, base in PRESETS.items()]
VARIANTS += [
    (f"{name}_{model}", PRESETS[name], of_width(width))
    for name in ("activitynet", "charades", "tvr")
    for model, width in CLIP_WIDTHS.items()
]
VARIANTS += [
    (name, activitynet, PLUS | of_width(width)) for name, width in (CLIP_WIDTHS | {"siglip2": 768}).items()
]
VARIANTS += [(f"{method}_{data}", PRESETS[data], changes) for method, data, changes in baseline_changes()]
PRESETS |= {name: changed(name, base, changes) for name, base, changes in VARIANTS}


def preset(name: str) -> HolmesConfig:
    """The settings behind published numbers, by the name of their data set.

    A name that ends in `.json` is a file of settings, such as the `best.json` that `holmes tune` writes.

    Example:
        >>> holmes.preset("activitynet").learning_rate
        0.00025
    """
    if name.endswith(".json"):
        return read_settings(Path(name))
    if name not in PRESETS:
        raise unknown("preset", name, PRESETS)
    return PRESETS[name]()


SETTINGS_FORMAT, SETTINGS_VERSION = "holmes-settings", 1


def save_settings(path: Path, config: HolmesConfig) -> None:
    """Write settings as a file that `preset` reads and people can edit."""
    body = {"format": SETTINGS_FORMAT, "version": SETTINGS_VERSION, "config": to_dict(config)}
    write_json(path, body)


def read_settings(path: Path) -> HolmesConfig:
    body = read_json(path)
    if (
        not isinstance(body, dict)
        or body.get("format") != SETTINGS_FORMAT
        or not isinstance(body.get("config"), dict)
    ):
        raise HolmesError(f"{path} contains no settings (its format is not '{SETTINGS_FORMAT}').")
    if body.get("version") != SETTINGS_VERSION:
        raise HolmesError(
            f"{path} contains settings of version {str(body.get('version'))[:20]}; this version of Holmes "
            f"reads version {SETTINGS_VERSION}."
        )
    try:
        return from_dict(body["config"])
    except HolmesError as error:
        raise HolmesError(f"{path}: {error}") from None
