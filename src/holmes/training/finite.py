"""Whether a run is still sound, by an epoch's numbers and weights.

S steps, N named numbers of a step
"""

from __future__ import annotations

from torch import Tensor


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
