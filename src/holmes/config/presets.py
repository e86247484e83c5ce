"""The settings behind the published numbers, one function for each data set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from holmes.base.files import read_json, write_json
from holmes.config.baseline_presets import baseline_presets
from holmes.config.schema import (
    EvidenceConfig,
    HolmesConfig,
    LossConfig,
    ModelConfig,
    ScoreConfig,
    TrainingConfig,
    from_dict,
    to_dict,
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


def plus(base: Callable[[], HolmesConfig]) -> Callable[[], HolmesConfig]:
    """A preset with what was shown to make a better model than the published one (docs/recipes.md)."""

    def improved() -> HolmesConfig:
        config = base()
        return replace(
            config,
            name=f"{config.name}_plus",
            loss=replace(config.loss, contrastive_cosine=0.25, contrastive_temperature=0.07),
        )

    improved.__doc__ = f"{base.__doc__} Better than published."
    return improved


CLIP_WIDTHS = {"clip_b32": 512, "clip_l14": 768}  # of frames and of sentences
CLIP_TITLES = {"clip_b32": "CLIP-B/32", "clip_l14": "CLIP-L/14"}


def with_clip(base: Callable[[], HolmesConfig], model: str) -> Callable[[], HolmesConfig]:
    """A data set's preset for features of a CLIP model, which no release has settings for."""

    def clip() -> HolmesConfig:
        config, width = base(), CLIP_WIDTHS[model]
        widths = replace(config.model, video_width=width, text_width=width)
        return replace(config, name=f"{config.name}_{model}", model=widths)

    clip.__doc__ = f"{(base.__doc__ or '').partition(':')[0]}: {CLIP_TITLES[model]} features."
    return clip


PRESETS: dict[str, Callable[[], HolmesConfig]] = {
    "activitynet": activitynet,
    "charades": charades,
    "tvr": tvr,
    "tvr_dual": tvr_dual,
    "small": small,
}
PLUS_PRESETS = {f"{name}_plus": plus(base) for name, base in PRESETS.items()}
CLIP_PRESETS = {
    f"{name}_{model}": with_clip(PRESETS[name], model)
    for name in ("activitynet", "charades", "tvr")
    for model in CLIP_WIDTHS
}
# For videos of one's own, extracted with a joint model: the field keeps a data set's settings and changes the
# widths. ActivityNet's videos are the most general ones.
JOINT_MODELS = {"clip_b32": ("CLIP-B/32", 512), "clip_l14": ("CLIP-L/14", 768), "siglip2": ("SigLIP 2", 768)}


def on_joint_model(name: str) -> Callable[[], HolmesConfig]:
    """The preset of your own videos for features of a joint model; better than published, as `plus`."""
    title, width = JOINT_MODELS[name]

    def joint() -> HolmesConfig:
        config = plus(activitynet)()
        widths = replace(config.model, video_width=width, text_width=width)
        return replace(config, name=name, model=widths)

    joint.__doc__ = f"Your own videos: {title} features."
    return joint


PRESETS |= baseline_presets(PRESETS)
PRESETS |= {name: on_joint_model(name) for name in JOINT_MODELS}
PRESETS |= CLIP_PRESETS
PRESETS |= PLUS_PRESETS


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
