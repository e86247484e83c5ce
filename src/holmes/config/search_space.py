"""The settings that `holmes tune` searches, with their ranges (measured in docs/recipes.md).

The preset's own value is always inside: a range is widened to it, a list of choices gets it added. A weight
that the preset sets to 0 stays 0, so that the search changes settings and not the method.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from holmes.config.schema import GAUSSIAN_WIDTHS, HolmesConfig, locate, with_changes


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`."""

    setting: str
    low: float
    high: float
    log: bool = False
    whole: bool = False
    step: float | None = None  # values are rounded to multiples

    def around(self, value: Any) -> Range:
        return replace(self, low=min(self.low, value), high=max(self.high, value))


@dataclass(frozen=True)
class Choice:
    """One of a few values."""

    setting: str
    values: tuple[Any, ...]

    def around(self, value: Any) -> Choice:
        return self if value in self.values else replace(self, values=(*self.values, value))


Dimension = Range | Choice

SPACE: tuple[Dimension, ...] = (
    Range("model.dropout", 0.1, 0.6, step=0.05),
    Choice("model.width", (128, 256, 384)),
    Choice("model.gaussian_widths", ((None, 4.0), (None, 1.0, 4.0, 16.0), GAUSSIAN_WIDTHS)),
    Range("loss.contrastive_cosine", 0.1, 2.0, log=True),
    Range("training.learning_rate", 1e-4, 1e-3, log=True),
    Choice("training.batch_videos", (16, 32, 64, 128)),
    Range("training.epochs", 20, 80, log=True, whole=True),
)
# Left out, since they did not matter in 60 trials on msrvtt: the weights of both evidential losses, InfoNCE's
# temperature and the pool of hard negatives. The preset's values stay; --set changes them.
# Tried first, after the preset itself: what suited small collections of real footage.
STARTS: tuple[dict[str, Any], ...] = tuple(
    {
        "model.dropout": dropout,
        "loss.contrastive_cosine": weight,
        "training.batch_videos": 32,
        "training.epochs": epochs,
    }
    for dropout, weight, epochs in ((0.5, 1.0, 40), (0.5, 0.5, 60), (0.4, 0.5, 60))
)
# Blocks are those of our encoder; the baselines have their own.
OF_OUR_ENCODER = {"model.gaussian_widths"}


class Suggester(Protocol):
    """What suggests values: a trial of Optuna, or anything with its two functions."""

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float: ...
    def suggest_int(self, name: str, low: int, high: int, *, log: bool = False) -> int: ...
    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any: ...


def space_for(config: HolmesConfig, fixed: Collection[str] = ()) -> tuple[Dimension, ...]:
    """The settings to search from a preset; those that the caller has fixed by name are left out."""
    held = {".".join(locate(name)) for name in fixed}
    found = []
    for dimension in SPACE:
        name, value = dimension.setting, setting_of(config, dimension.setting)
        if name in held or (name in OF_OUR_ENCODER and config.model.encoder != "mixture"):
            continue
        if name.startswith("loss.") and value == 0:
            continue
        found.append(dimension.around(value))
    return tuple(found)


def suggest(trial: Suggester, space: Sequence[Dimension]) -> dict[str, Any]:
    """A value for every setting of the space."""
    found: dict[str, Any] = {}
    for dimension in space:
        name = dimension.setting
        if isinstance(dimension, Choice):
            found[name] = dimension.values[
                labels(dimension).index(trial.suggest_categorical(name, labels(dimension)))
            ]
        elif dimension.whole:
            found[name] = trial.suggest_int(name, int(dimension.low), int(dimension.high), log=dimension.log)
        else:
            value = trial.suggest_float(name, dimension.low, dimension.high, log=dimension.log)
            found[name] = (
                round(round(value / dimension.step) * dimension.step, 9) if dimension.step else value
            )
    return found


def first_trials(config: HolmesConfig, space: Sequence[Dimension]) -> list[dict[str, Any]]:
    """The preset's own values, then those of `STARTS`, as `suggest` names them."""
    own = {each.setting: label(setting_of(config, each.setting)) for each in space}
    searched = [{name: label(value) for name, value in start.items() if name in own} for start in STARTS]
    known = [own, *(own | start for start in searched)]
    return [trial for number, trial in enumerate(known) if trial not in known[:number]]


def labels(dimension: Choice) -> list[Any]:
    return [label(value) for value in dimension.values]


def label(value: Any) -> Any:
    """A list as text: what suggests values takes numbers and text alone."""
    return (
        ",".join("none" if item is None else f"{item:g}" for item in value)
        if isinstance(value, tuple)
        else value
    )


def apply(config: HolmesConfig, changes: dict[str, Any], called: str | None = None) -> HolmesConfig:
    """The settings of a trial: stage 1 keeps its share of the epochs, and no run stops early."""
    changed = with_changes(config, changes, called)
    share = config.training.warm_up_epochs / config.training.epochs
    warm_up = round(share * changed.training.epochs)
    return with_changes(changed, {"training.warm_up_epochs": warm_up, "training.patience": 0})


def setting_of(config: HolmesConfig, setting: str) -> Any:
    section, name = setting.split(".")
    return getattr(getattr(config, section), name)
