"""The protocols: which split selects the best epoch, and which splits test and calibrate."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from holmes.data.store import Split, Store
from holmes.errors import HolmesError, unknown
from holmes.records import QueryKind

FEWEST_OF_A_KIND = 20


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
    """The splits to train on, to select on, to report once at the end, and to learn confidence on."""

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
        return Splits(fit=train, select=test, report=test, calibrate=val_disjoint_from_test(store))
    fit, held = train.hold_out(held_out, seed)
    val = val_with_known_kinds(store)
    return Splits(fit=fit, select=held, report=test, calibrate=held if val is None else val)


def calibration_split(store: Store, protocol: Protocol, held_out: float, seed: int) -> Split | None:
    """The honest protocol's held-out videos, or a val split whose kinds of query are known; otherwise a val
    split that shares none with test, if any.
    """
    if protocol is Protocol.PUBLISHED:  # for stores without a train split too
        return val_disjoint_from_test(store)
    return choose_splits(store, protocol, held_out, seed).calibrate


def val_disjoint_from_test(store: Store) -> Split | None:
    if "val" not in store.splits or "test" not in store.splits:
        return None
    val = store.split("val")
    return None if np.isin(val.videos, store.split("test").videos).any() else val


def val_with_known_kinds(store: Store) -> Split | None:
    """A val split that shares no video with train or test and has enough queries of every kind.

    How many videos fit a query is counted within its split: the kinds of held-out training videos are those
    of the whole split, those of val hold for the very gallery that is asked.
    """
    val = val_disjoint_from_test(store)
    if val is None or np.isin(val.videos, store.split("train").videos).any():
        return None
    known_Q = store.kinds_Q[val.queries]
    enough = all((known_Q == kind).sum() >= FEWEST_OF_A_KIND for kind in QueryKind)
    return val if enough else None
