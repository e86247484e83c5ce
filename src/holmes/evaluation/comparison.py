"""Compare systems: their figures, paired differences, and the queries that differ most.

S seeds, Q queries
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holmes.evaluation.intervals import Ranks, draw_videos, paired_differences, recall_intervals

Groups = Mapping[str, Mapping[str, NDArray[np.bool_]]]  # breakdown → group → its queries


@dataclass(frozen=True)
class System:
    """One setting: the ranks of the right videos, one row per seed, and those of the best fitting ones."""

    name: str
    rank_SQ: Ranks
    fitting_SQ: Ranks | None = None


def compare_systems(systems: list[System], video_Q: NDArray[np.int64], groups: Groups) -> dict[str, Any]:
    """Every system's figures with intervals, and each further system's paired differences to the first."""
    draws = draw_videos(video_Q)
    first = systems[0]

    def figures(rank_SQ: Ranks, member_Q: NDArray[np.bool_] | None = None) -> dict[str, Any]:
        return {name: value.to_json() for name, value in recall_intervals(rank_SQ, draws, member_Q).items()}

    def differences(
        number: int, member_Q: NDArray[np.bool_] | None = None, fitting: bool = False
    ) -> dict[str, Any] | None:
        ours_SQ, theirs_SQ = (
            system.fitting_SQ if fitting else system.rank_SQ for system in (systems[number], first)
        )
        if number == 0 or ours_SQ is None or theirs_SQ is None:
            return None
        found = paired_differences(ours_SQ, theirs_SQ, draws, member_Q, systems=(number, 0))
        return {name: value.to_json() for name, value in found.items()}

    return {
        "format": "holmes-comparison",
        "version": 1,
        "queries": len(video_Q),
        "systems": [
            {
                "name": system.name,
                "seeds": len(system.rank_SQ),
                "metrics": figures(system.rank_SQ),
                "metrics_fitting": None if system.fitting_SQ is None else figures(system.fitting_SQ),
                "difference": differences(number),
                "difference_fitting": differences(number, fitting=True),
                "won_and_lost": won_and_lost(system, first) if number else None,
                "by": {
                    breakdown: {
                        group: {
                            "queries": int(member_Q.sum()),
                            "metrics": figures(system.rank_SQ, member_Q),
                            "metrics_fitting": None
                            if system.fitting_SQ is None
                            else figures(system.fitting_SQ, member_Q),
                            "difference": differences(number, member_Q),
                            "difference_fitting": differences(number, member_Q, fitting=True),
                        }
                        for group, member_Q in members.items()
                    }
                    for breakdown, members in groups.items()
                },
            }
            for number, system in enumerate(systems)
        ],
    }


def won_and_lost(ours: System, theirs: System) -> dict[str, dict[str, float]]:
    """At each cutoff the share of queries, in percent, that only one finds; averaged over pairs of seeds."""
    found = {}
    for cutoff in (1, 5, 10):
        ours_Q = (ours.rank_SQ <= cutoff).mean(0)
        theirs_Q = (theirs.rank_SQ <= cutoff).mean(0)
        found[f"R@{cutoff}"] = {
            "won": 100 * float((ours_Q * (1 - theirs_Q)).mean()),
            "lost": 100 * float(((1 - ours_Q) * theirs_Q).mean()),
            "both": 100 * float((ours_Q * theirs_Q).mean()),
            "neither": 100 * float(((1 - ours_Q) * (1 - theirs_Q)).mean()),
        }
    return found


def decided_queries(ours: System, theirs: System, most: int) -> tuple[list[int], list[int]]:
    """The queries that ours gains and loses most, by the mean over seeds of log rank, clearest first."""
    gain_Q = np.log(theirs.rank_SQ).mean(0) - np.log(ours.rank_SQ).mean(0)
    order = np.argsort(-gain_Q, kind="stable")
    won = [int(query) for query in order[:most] if gain_Q[query] > 0]
    lost = [int(query) for query in order[::-1][:most] if gain_Q[query] < 0]
    return won, lost
