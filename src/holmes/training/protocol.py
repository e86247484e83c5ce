"""How a run selects its best epoch: as the field does, or honestly."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

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
    """What to train on, what to select on, what to report once at the end, what to learn confidence on."""

    fit: Split
    select: Split
    report: Split
    calibrate: Split | None = None  # never the split that is reported; None where no videos were held out


def choose_splits(
    store: Store, protocol: Protocol, held_out: float, seed: int, report: str = "test"
) -> Splits:
    for name in ("train", report):
        if name not in store.splits:
            raise HolmesError(f"{store.path} has no split '{name}'; it has {', '.join(store.splits)}.")
    train, test = store.split("train"), store.split(report)
    if protocol is Protocol.PUBLISHED:
        return Splits(fit=train, select=test, report=test, calibrate=val_apart_from_test(store))
    fit, held = train.hold_out(held_out, seed)
    return Splits(fit=fit, select=held, report=test, calibrate=held)


def calibration_split(store: Store, protocol: Protocol, held_out: float, seed: int) -> Split | None:
    """The honest protocol's held-out videos; otherwise a val split that shares none with test, if any."""
    if protocol is Protocol.PUBLISHED:  # for stores without a train split too
        return val_apart_from_test(store)
    return choose_splits(store, protocol, held_out, seed).calibrate


def val_apart_from_test(store: Store) -> Split | None:
    if "val" not in store.splits or "test" not in store.splits:
        return None
    val = store.split("val")
    return None if np.isin(val.videos, store.split("test").videos).any() else val
