"""An epoch: its stage, the learning rates of its steps, its line in the logbook, whether it is still sound.

S steps, N values of a step
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from holmes.config.schema import TrainingConfig
from holmes.records import Stage
from holmes.training.optimizer import linear_schedule


def stage_of(epoch: int, warm_up_epochs: int) -> Stage:
    """Stage 1 for the first `warm_up_epochs`, stage 2 from then on."""
    return Stage.WARM_UP if epoch < warm_up_epochs else Stage.CALIBRATED


def learning_rates(training: TrainingConfig, epoch: int, steps: int) -> Tensor:
    """The learning rate of every step of an epoch."""
    total = steps * training.epochs
    return torch.tensor(
        [
            training.learning_rate * linear_schedule(epoch * steps + step, total, training.lr_warm_up)
            for step in range(steps)
        ]
    )


def epoch_entry(
    epoch: int,
    stage: Stage,
    values_SN: Tensor,
    names: tuple[str, ...],
    learning_rate: float,
    seconds: float,
) -> dict[str, Any]:
    """The means of an epoch's steps: losses, shares of kinds, gradient norm, speed."""
    means = dict(zip(names, values_SN.double().mean(0).tolist(), strict=True))
    kinds = {name.removeprefix("share_"): means.pop(name) for name in names if name.startswith("share_")}
    norm = {
        "mean": means.pop("gradient_norm"),
        "max": values_SN[:, names.index("gradient_norm")].max().item(),
    }
    return {
        "epoch": epoch + 1,
        "stage": stage.value,
        "loss": means,
        "gradient_norm": norm,
        "kinds": kinds,
        "learning_rate": learning_rate,
        "speed": {"train_seconds": seconds, "steps_per_second": len(values_SN) / seconds},
    }


def what_broke(values_SN: Tensor, names: tuple[str, ...], weights: Tensor, epoch: int) -> str | None:
    """What is not finite: the first such part of a loss, or the weights; None if all is well."""
    broken_SN = ~values_SN.isfinite()
    if broken_SN.any():
        step = int(broken_SN.any(1).nonzero()[0])
        parts = [name for name, broken in zip(names, broken_SN[step].tolist(), strict=True) if broken]
        blamed = [name for name in parts if name not in ("total", "gradient_norm")] or parts
        return f"the loss is not finite: {', '.join(blamed)} at epoch {epoch + 1}, step {step + 1}"
    if not bool(weights.isfinite().all()):  # broken by the last update, after which no loss was computed
        return f"the weights are not finite after epoch {epoch + 1}"
    return None
