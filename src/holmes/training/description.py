"""The first lines a person sees of a run: what is trained, on what, and how."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holmes.training.run import Run


def describe(run: Run, compiled: bool, recorded: bool) -> str:
    config, fit, device, world = run.config, run.splits.fit, run.device, run.world
    parameters = sum(parameter.numel() for parameter in run.model.parameters())
    lines = [
        f"{config.name} on {run.bank.store.path.name}: {len(fit.videos):,} videos, "
        f"{len(fit.queries):,} queries, {parameters:,} parameters",
        f"{device}{' × ' + str(world.size) if world.size > 1 else ''}, "
        f"{'bf16 encoders' if device.type == 'cuda' else 'float32'}, "
        f"{'compiled' if compiled else 'not compiled'}{', recorded' * recorded}; {run.bank.says}",
    ]
    if config.training.epochs <= config.training.warm_up_epochs:
        lines.append(
            f"stage 2 is not reached: {config.training.epochs} epochs, of which stage 1 takes "
            f"{config.training.warm_up_epochs} (warm_up_epochs)"
        )
    return "\n".join(lines)
