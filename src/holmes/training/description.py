"""The first lines a person sees of a run: what is trained, on what, and how."""

from __future__ import annotations

import torch
from torch import nn

from holmes.config.schema import HolmesConfig
from holmes.data.bank import FeatureBank
from holmes.data.store import Split
from holmes.parallel import World


def describe(
    config: HolmesConfig,
    bank: FeatureBank,
    fit: Split,
    model: nn.Module,
    device: torch.device,
    world: World,
    how: str,
) -> str:
    """The lines; `how` says how the step is run, such as "compiled"."""
    parameters = sum(parameter.numel() for parameter in model.parameters())
    lines = [
        f"{config.name} on {bank.store.path.name}: {len(fit.videos):,} videos, "
        f"{len(fit.queries):,} queries, {parameters:,} parameters",
        f"{device}{' × ' + str(world.size) if world.size > 1 else ''}, "
        f"{'bf16 encoders' if device.type == 'cuda' else 'float32'}, "
        f"{how}; {bank.says}",
    ]
    if config.training.epochs <= config.training.warm_up_epochs:
        lines.append(
            f"stage 2 is not reached: {config.training.epochs} epochs, of which stage 1 takes "
            f"{config.training.warm_up_epochs} (warm_up_epochs)"
        )
    return "\n".join(lines)
