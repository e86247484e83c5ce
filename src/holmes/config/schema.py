"""Every setting with its type and a line of explanation. Contradictory settings are refused."""

from __future__ import annotations

import math
import types
import typing
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Annotated, Any, Literal, TypeAlias, get_type_hints

from holmes.base.validation import AtMost, Within, build
from holmes.config.names import BUILT_IN_ENCODERS, ENCODER_OF_LOSS, extra_losses, require_known
from holmes.errors import HolmesError, unknown
from holmes.records import CLIPS, FRAMES, TOKENS


def coerce(value: Any, hint: Any, name: str) -> Any:
    """A value, or its text from a command line or JSON, as the type of a setting."""
    origin, options = typing.get_origin(hint), typing.get_args(hint)
    try:
        if origin is Literal:
            if value not in options:
                raise unknown(f"value of {name}", str(value), options)
            return value
        if origin is tuple:
            items = [part for part in value.split(",") if part] if isinstance(value, str) else value
            return tuple(coerce(item, options[0], name) for item in items)
        if origin in (typing.Union, types.UnionType):
            if value is None or value in ("none", "None"):
                return None
            return coerce(value, next(option for option in options if option is not type(None)), name)
        if hint is bool:
            return {"true": True, "false": False}[str(value).lower()]
        if hint is int and float(value) != int(float(value)):
            raise ValueError
        number = int(float(value)) if hint is int else hint(value)
        if hint is float and not math.isfinite(number):
            raise ValueError
        return number
    except (ValueError, TypeError, KeyError, OverflowError):
        raise HolmesError(
            f"setting {name}: '{value}' is not a valid {getattr(hint, '__name__', hint)}."
        ) from None


# Far beyond anything that has been useful, but still within what a machine can bear.
Width = Annotated[int, Within(1, 1 << 16)]
Length = Annotated[int, Within(1, 1024)]  # the masks of the attention grow with its square

GAUSSIAN_WIDTHS = (None, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
INTER_TERMS = ("frame", "clip", "fused")


def require(condition: bool, message: str) -> None:
    if not condition:
        raise HolmesError(message)


@dataclass(frozen=True)
class ModelConfig:
    video_width: Width
    """Width of the visual features; taken from the store when training."""
    text_width: Width
    """Width of the token features; taken from the store when training."""
    width: Width = 384
    """Width of the common space."""
    heads: Annotated[int, AtMost(1024)] = 4
    """Attention heads."""
    dual_query: bool = False
    """Whether frames are scored against weighted tokens instead of the pooled query."""
    gaussian_widths: Annotated[tuple[float | None, ...], AtMost(32)] = GAUSSIAN_WIDTHS
    """One parallel block for each; None is plain attention."""
    mixing_temperature: float = 0.6
    """Softmax temperature between the blocks."""
    dropout: float = 0.2
    """The dropout rate, the same everywhere."""
    frames: Length = FRAMES
    """Positions of the frame branch."""
    clips: Length = CLIPS
    """Positions of the clip branch."""
    tokens: Length = TOKENS
    """Longest query."""
    lorentz_width: Width = 128
    """HLFormer: numbers of a point on the hyperboloid, over all heads."""
    registers: Length = 8
    """DreamPRVR: vectors that join the frames and clips of a video."""
    encoder: str = "mixture"
    """Which model: parallel Gaussian blocks and their mixture, or another one that is known by name."""

    def __post_init__(self) -> None:
        require_known("model.encoder", self.encoder)
        require(
            not self.dual_query or self.encoder not in ("ms_sl", "gmmformer"),
            f"dual_query scores frames against tokens; the encoder '{self.encoder}' has no frames to score.",
        )
        require(self.heads > 0, f"heads must be positive, not {self.heads}.")
        require(self.width % self.heads == 0, f"width {self.width} is not divisible by {self.heads} heads.")
        require(
            self.encoder != "hlformer" or self.lorentz_width % self.heads == 0,
            f"lorentz_width {self.lorentz_width} is not divisible by {self.heads} heads.",
        )
        require(0 <= self.dropout < 1, f"dropout {self.dropout} is outside [0, 1).")
        require(self.mixing_temperature > 0, "mixing_temperature must be positive.")
        require(len(self.gaussian_widths) > 0, "gaussian_widths must name at least one block.")


@dataclass(frozen=True)
class EvidenceConfig:
    inter_temperature: float = 0.05
    """τ between videos."""
    intra_temperature: float = 0.06
    """τ within a video."""
    form: str = "sharp"
    """exp(tanh(s)/τ), or exp(tanh(s/τ)) as printed."""
    beta: float = 0.3
    """β of the adaptive thresholds."""
    thresholds: Literal["absolute", "relative"] = "absolute"
    """What β means: a cosine and a vacuity, as printed; or a share of the correctly matched queries."""
    refine: Literal["batch_median", "candidate_median", "none"] = "batch_median"
    """Which median of ξ separates precise from polysemous; "none" keeps the initial sets."""
    fusion: Literal["uncertainty", "confidence", "frame", "clip"] = "uncertainty"
    """Which branch decides the kind of a query."""
    calibrate: bool = True
    """Whether polysemous queries get softened labels in stage 2."""
    smoothing: float = 0.2
    """γ: how much of the label is shared."""
    inter_terms: Annotated[tuple[str, ...], AtMost(3)] = INTER_TERMS
    """Terms of L_inter."""

    def __post_init__(self) -> None:
        require_known("evidence.form", self.form)
        require(self.inter_temperature > 0 and self.intra_temperature > 0, "temperatures must be positive.")
        require(0 < self.beta < 1, f"beta {self.beta} is outside (0, 1).")
        require(0 <= self.smoothing <= 1, f"smoothing {self.smoothing} is outside [0, 1].")
        require(
            len(self.inter_terms) > 0,
            "inter_terms must name a term; to leave L_inter out, set loss.inter to 0.",
        )
        for term in self.inter_terms:
            if term not in INTER_TERMS:
                raise unknown("inter_terms entry", term, INTER_TERMS)


@dataclass(frozen=True)
class AlignmentConfig:
    kind: str = "flexible"
    """Flexible transport, or one of its alternatives."""
    entropy_weight: float = 0.1
    """ε: smoothness of the plan."""
    dustbin_ratio: float = 0.3
    """The dustbin's score is this quantile of the similarities."""
    iterations: Annotated[int, AtMost(10_000)] = 50
    """Sinkhorn iterations."""

    def __post_init__(self) -> None:
        require_known("alignment.kind", self.kind)
        require(0 < self.dustbin_ratio < 1, f"dustbin_ratio {self.dustbin_ratio} is outside (0, 1).")
        require(self.entropy_weight > 0 and self.iterations > 0, "transport needs ε > 0 and iterations > 0.")


@dataclass(frozen=True)
class LossConfig:
    contrastive_clip: float = 0.02
    """Weight of InfoNCE on clips."""
    contrastive_frame: float = 0.04
    """Weight of InfoNCE on frames."""
    contrastive_cosine: float = 0.0
    """Weight of InfoNCE on the cosines of either branch; 0 leaves it out. Not in the paper."""
    contrastive_temperature: float = 0.07
    """Temperature of InfoNCE on cosines."""
    diversity: float = 0.003
    """Weight of L_div."""
    intra: float = 1e-4
    """Weight of L_intra; 0 leaves it out."""
    inter: float = 0.06
    """Weight of L_inter; 0 leaves it out of the sum."""
    margin: float = 0.2
    """Margin of the triplet loss."""
    hard_pool: Annotated[int, AtMost(1 << 24)] = 20
    """A query's negative is one of this many hardest videos."""
    diversity_margin: float = 0.2
    """δ of L_div."""
    diversity_scale: float = 32.0
    """α of L_div."""
    diversity_form: Literal["pairs", "pooled"] = "pairs"
    """L_div as a sum over pairs, or pooled over the partners of each query as in GMMFormer."""
    extra: Annotated[tuple[str, ...], AtMost(32)] = ()
    """Further terms as `name:weight`: of a baseline, or of your own (docs/extending.md)."""
    text_temperature: float = 0.09
    """Temperature of the term `text_structure`."""

    def __post_init__(self) -> None:
        extra_losses(self.extra)
        require(self.hard_pool > 0, f"hard_pool must be positive, not {self.hard_pool}.")
        require(
            self.contrastive_temperature > 0,
            f"contrastive_temperature must be positive, not {self.contrastive_temperature:g}.",
        )
        require(
            self.text_temperature > 0,
            f"text_temperature must be positive, not {self.text_temperature:g}.",
        )
        contrastive = ("contrastive_clip", "contrastive_frame", "contrastive_cosine")
        for name in (*contrastive, "diversity", "intra", "inter", "margin"):
            require(getattr(self, name) >= 0, f"{name} must not be negative, not {getattr(self, name):g}.")


@dataclass(frozen=True)
class ScoreConfig:
    frame_weight: float = 0.4
    """α_f: the frame branch's share of the final score."""
    clip_weight: float = 0.6
    """α_c: the clip branch's share."""

    def __post_init__(self) -> None:
        total = self.frame_weight + self.clip_weight
        require(abs(total - 1) < 1e-6, f"frame_weight + clip_weight must be 1, not {total:g}.")


@dataclass(frozen=True)
class TrainingConfig:
    epochs: Annotated[int, AtMost(10**6)] = 100
    """Passes over the training videos."""
    warm_up_epochs: Annotated[int, AtMost(10**6)] = 20
    """Epochs of stage 1."""
    batch_videos: Annotated[int, AtMost(1 << 24)] = 128
    """Videos of a batch, over all devices; each brings all its queries."""
    learning_rate: float = 2.5e-4
    """Peak learning rate."""
    lr_warm_up: float = 0.01
    """Share of the steps in which the learning rate rises."""
    weight_decay: float = 0.01
    """Decoupled weight decay; biases and norms are exempt."""
    gradient_norm: float = 1.0
    """Each tensor's gradient is clipped to this norm."""
    patience: Annotated[int, AtMost(10**6)] = 20
    """How many epochs in a row may bring no better SumR; one more stops the run. 0 never stops early."""
    held_out: float = 0.1
    """Share of the training videos that the honest protocol selects on."""

    def __post_init__(self) -> None:
        require(self.epochs > 0, f"epochs must be positive, not {self.epochs}.")
        require(self.batch_videos > 1, f"batch_videos must be at least 2, not {self.batch_videos}.")
        require(self.warm_up_epochs >= 0, f"warm_up_epochs must not be negative, not {self.warm_up_epochs}.")
        require(self.learning_rate >= 0, f"learning_rate must not be negative, not {self.learning_rate:g}.")
        require(0 <= self.lr_warm_up < 1, f"lr_warm_up {self.lr_warm_up} is outside [0, 1).")
        require(self.weight_decay >= 0, f"weight_decay must not be negative, not {self.weight_decay:g}.")
        require(self.gradient_norm > 0, f"gradient_norm must be positive, not {self.gradient_norm:g}.")
        require(self.patience >= 0, f"patience must not be negative, not {self.patience}.")
        require(0 < self.held_out < 1, f"held_out {self.held_out} is outside (0, 1).")


Setting: TypeAlias = bool | int | float | str | tuple[float | None, ...] | tuple[str, ...] | None


@dataclass(frozen=True)
class HolmesConfig:
    """All settings of a run, by section."""

    name: Annotated[str, AtMost(200)]
    model: ModelConfig
    evidence: EvidenceConfig = field(default_factory=EvidenceConfig)
    alignment: AlignmentConfig = field(default_factory=AlignmentConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    score: ScoreConfig = field(default_factory=ScoreConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)

    def __post_init__(self) -> None:
        for name in extra_losses(self.loss.extra):
            needed = ENCODER_OF_LOSS.get(name)
            require(
                needed in (None, self.model.encoder) or self.model.encoder not in BUILT_IN_ENCODERS,
                f"the loss '{name}' needs the encoder '{needed}'; this is '{self.model.encoder}'.",
            )

    def __getattr__(self, name: str) -> Setting:
        """A setting by the name that `with_changes` takes: `config.epochs` is `config.training.epochs`."""
        if name.startswith("_"):  # what copying and pickling ask for
            raise AttributeError(name)
        try:
            section, setting = locate(name.replace("__", "."))
        except HolmesError as error:
            raise AttributeError(str(error)) from None
        value: Setting = getattr(getattr(self, section), setting)
        return value

    def with_changes(self, **changes: object) -> HolmesConfig:
        """A copy with some settings changed.

        A name is that of a field, or `section__field` where two sections have one of that name.

        Example:
            >>> config = holmes.preset("small").with_changes(epochs=30, loss__intra=0)
            >>> config.epochs, config.training.epochs, config.loss.intra
            (30, 30, 0.0)
        """
        return with_changes(self, {name.replace("__", "."): value for name, value in changes.items()})


SECTIONS = ("model", "evidence", "alignment", "loss", "score", "training")


def with_changes(config: HolmesConfig, changes: dict[str, Any], called: str | None = None) -> HolmesConfig:
    """A copy with some settings changed. Names are `section.field`, or `field` alone where it is unique."""
    by_section: dict[str, dict[str, Any]] = {}
    for name, value in changes.items():
        section, setting = locate(name)
        kind = type(getattr(config, section))
        typed = coerce(value, get_type_hints(kind)[setting], name)
        bounded = get_type_hints(kind, include_extras=True)[setting]
        by_section.setdefault(section, {})[setting] = build(bounded, typed, name)
    sections = {key: replace(getattr(config, key), **new) for key, new in by_section.items()}
    return replace(config, name=called or config.name, **sections)


def several_values(name: str, text: str) -> tuple[str, list[Any]]:
    """`section.field` and the values that a text lists: `.1,.2,.3`, or `a,b;c` where values are lists."""
    section, setting = locate(name)
    hint = get_type_hints(get_type_hints(HolmesConfig)[section])[setting]
    separator = ";" if ";" in text or typing.get_origin(hint) is tuple else ","
    values = [coerce(part.strip(), hint, name) for part in text.split(separator)]
    for value in values:
        if values.count(value) > 1:
            raise HolmesError(f"setting {name}: {value} is listed twice.")
    return f"{section}.{setting}", values


def locate(name: str) -> tuple[str, str]:
    """The section and field a name stands for."""
    hints = get_type_hints(HolmesConfig)
    settings = {(section, f.name) for section in SECTIONS for f in fields(hints[section])}
    matches = [pair for pair in settings if name in (pair[1], ".".join(pair))]
    if not matches:
        whole = {".".join(pair) for pair in settings}
        raise unknown("setting", name, whole if "." in name else {pair[1] for pair in settings})
    if len(matches) > 1:
        raise HolmesError(
            f"setting '{name}' is ambiguous; write one of {sorted('.'.join(m) for m in matches)}."
        )
    return matches[0]


def to_dict(config: HolmesConfig) -> dict[str, Any]:
    return asdict(config)


def from_dict(values: dict[str, Any]) -> HolmesConfig:
    """The inverse of `to_dict`, checked field by field."""
    return build(HolmesConfig, values, "config")
