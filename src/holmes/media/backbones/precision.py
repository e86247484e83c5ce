"""The precision that frames are computed in: half of float32 where that is faster."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

LARGE = 20_000_000  # parameters from which on half precision pays


def half_precision(device: torch.device, parameters: int) -> torch.dtype | None:
    """float16 on a GPU, bfloat16 on a CPU that multiplies it; None for float32."""
    import torch

    if parameters < LARGE:
        return None
    if device.type == "cuda":
        return torch.float16
    return torch.bfloat16 if _multiplies_bfloat16() else None


@cache
def _multiplies_bfloat16() -> bool:
    """Whether this CPU has instructions for it; without them bfloat16 is slower than float32."""
    import torch

    known = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return bool(known.get("avx512_bf16") or known.get("amx_bf16") or known.get("sve_bf16"))


def computing_in(precision: torch.dtype | None, device: torch.device) -> AbstractContextManager[Any]:
    """A context in which products are computed in that precision; None leaves float32."""
    import torch

    return nullcontext() if precision is None else torch.autocast(device.type, precision)


def parameters_of(model: Any) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
