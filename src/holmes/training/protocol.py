"""How a run selects its best epoch: as the field does, or honestly."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from holmes.data.store import Split, Store
from holmes.errors import HolmesError, unknown


class Protocol(StrEnum):
    """`published` selects on the evaluation split itself, `honest` on a held-out part of train."""

    PUBLISHED = "published"
    HONEST = "honest"


def parse_protocol(name: Protocol | str) -> Protocol:
    if name not in list(Protocol):
        raise unknown("protocol", str(name), [protocol.value for protocol in Protocol])
    return Protocol(name)


@dataclass(frozen=True)
class Splits:
    """What to train on, what to select on, and what to report once at the end."""

    fit: Split
    select: Split
    report: Split


def choose_splits(
    store: Store, protocol: Protocol, held_out: float, seed: int, report: str = "test"
) -> Splits:
    for name in ("train", report):
        if name not in store.splits:
            raise HolmesError(f"{store.path} has no split '{name}'; it has {', '.join(store.splits)}.")
    train, test = store.split("train"), store.split(report)
    if protocol is Protocol.PUBLISHED:
        return Splits(fit=train, select=test, report=test)
    fit, held = train.hold_out(held_out, seed)
    return Splits(fit=fit, select=held, report=test)
