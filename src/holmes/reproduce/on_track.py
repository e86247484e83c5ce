"""Compare a run with the published run of the same preset, epoch by epoch.

Two runs of one setting differ: a run may be two epochs ahead or behind, and SumR moves between epochs. A run
that is outside of both allowances for two epochs in a row has left the published one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holmes.reproduce.published import Curve, curves
from holmes.training.protocol import Protocol

AHEAD = 2  # epochs that a run may be ahead or behind
SPREAD = 3.5  # SumR; one epoch of a published run is at most 1.7 away from the mean of its neighbours
LOSS_FACTOR = 1.5
IN_A_ROW = 2
USUAL_CAUSES = {
    "below": "features of another width or normalisation, features and captions of different videos, val and "
    "test swapped",
    "above": "missing test videos (a smaller gallery), val and test swapped, test videos in train",
}


@dataclass(frozen=True)
class Standing:
    """An epoch beside the published one."""

    epoch: int
    SumR: float | None  # None for the honest protocol, which evaluates on other videos
    loss: float
    published_SumR: float
    published_loss: float
    low: float  # SumR that other seeds explain
    high: float
    side: (
        str | None
    )  # "below" or "above" what seeds explain, by SumR or, for the honest protocol, by the loss

    def brief(self) -> str:
        if self.SumR is None:
            return f"loss {self.loss:.3f}, published {self.published_loss:.3f}"
        return f"published {self.published_SumR:.1f}"


def explained(curve: Curve, epoch: int) -> tuple[float, float]:
    """The SumR, lowest and highest, that another seed explains after this epoch."""
    near = nearby(curve, epoch)
    return min(curve.SumR[near]) - SPREAD, max(curve.SumR[near]) + SPREAD


def nearby(curve: Curve, epoch: int) -> slice:
    at = min(epoch, len(curve.SumR)) - 1
    return slice(max(0, at - AHEAD), at + AHEAD + 1)


def standing(curve: Curve, protocol: Protocol, entry: Mapping[str, Any]) -> Standing:
    """One entry of `metrics.jsonl` beside the published run; later epochs meet its last one."""
    epoch = int(entry["epoch"])
    at = min(epoch, len(curve.SumR)) - 1
    near, (low, high) = nearby(curve, epoch), explained(curve, epoch)
    loss = float(entry["loss"]["total"])
    found = float(entry["select"]["SumR"]) if protocol is Protocol.PUBLISHED else None
    if found is not None:
        side = "below" if found < low else "above" if found > high else None
    else:
        least, most = min(curve.loss[near]) / LOSS_FACTOR, max(curve.loss[near]) * LOSS_FACTOR
        side = "below" if loss > most else "above" if loss < least else None
    return Standing(epoch, found, loss, curve.SumR[at], curve.loss[at], low, high, side)


def standings(preset: str, protocol: Protocol, entries: Sequence[Mapping[str, Any]]) -> list[Standing]:
    """All epochs beside the published run of this preset; none where nothing is published."""
    curve = curves().get(preset)
    return [] if curve is None else [standing(curve, protocol, entry) for entry in entries]


def left_at(found: Sequence[Standing]) -> Standing | None:
    """The epoch at which a run has left the published one: the second of two in a row on the same side."""
    for last in range(IN_A_ROW - 1, len(found)):
        sides = {each.side for each in found[last - IN_A_ROW + 1 : last + 1]}
        if len(sides) == 1 and None not in sides:
            return found[last]
    return None


def off_track_message(
    name: str, at: Standing, settings: Sequence[str] = (), remarks: Sequence[str] = ()
) -> str:
    """The run, the epoch, both figures, and likely causes: what is known to differ comes first."""
    if at.SumR is None:
        figures = f"loss {at.loss:.3f}, published {at.published_loss:.3f}"
    else:
        figures = (
            f"SumR {at.SumR:.1f}, published {at.published_SumR:.1f} (expected range {at.low:.1f} to "
            f"{at.high:.1f})"
        )
    causes = [f"settings changed with --set ({', '.join(settings)})"] if settings else []
    causes += [*remarks, USUAL_CAUSES[at.side or "below"]]
    return (
        f"{name} left the published run at epoch {at.epoch}: {figures}. Likely causes: {'; '.join(causes)}."
    )


class Watch:
    """Follows one run; says once when it leaves the published one."""

    def __init__(self, preset: str, protocol: Protocol) -> None:
        self.curve, self.protocol = curves().get(preset), protocol
        self.found: list[Standing] = []
        self.said = False

    def note(self, entry: Mapping[str, Any]) -> tuple[Standing | None, bool]:
        """This epoch's standing, and whether it is now that the run has left the published one."""
        if self.curve is None:
            return None, False
        here = standing(self.curve, self.protocol, entry)
        self.found.append(here)
        leaves = not self.said and left_at(self.found) is not None
        self.said = self.said or leaves
        return here, leaves
