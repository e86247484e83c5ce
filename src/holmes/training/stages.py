"""Which stage an epoch belongs to."""

from __future__ import annotations

from holmes.records import Stage


def stage_of(epoch: int, warm_up_epochs: int) -> Stage:
    """Stage 1 for the first `warm_up_epochs`, stage 2 from then on."""
    return Stage.WARM_UP if epoch < warm_up_epochs else Stage.CALIBRATED
