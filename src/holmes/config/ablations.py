"""The paper's ablation table and parameter sweeps as named deltas on a preset."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from holmes.config.baseline_presets import METHODS, NO_EVIDENCE, TITLES, for_table
from holmes.config.schema import HolmesConfig, with_changes
from holmes.errors import unknown


@dataclass(frozen=True)
class Ablation:
    """A row of the table: what it is called and what it changes."""

    row: int
    title: str
    changes: dict[str, Any] = field(default_factory=dict)
    folder: str = ""  # of its runs; by default what it changes

    def apply(self, config: HolmesConfig) -> HolmesConfig:
        return with_changes(config, self.changes)


FULL = Ablation(0, "Holmes")

SCALES = (
    Ablation(1, "Frame-scale only", {"evidence.inter_terms": ("frame",)}),
    Ablation(2, "Clip-scale only", {"evidence.inter_terms": ("clip",)}),
    Ablation(3, "w/o aggregation scale", {"evidence.inter_terms": ("frame", "clip")}),
)
FUSION = (
    Ablation(5, "Trust frame-scale", {"evidence.fusion": "frame"}),
    Ablation(6, "Trust clip-scale", {"evidence.fusion": "clip"}),
    Ablation(7, "w/ confidence dominance", {"evidence.fusion": "confidence"}),
)
CALIBRATION = (
    Ablation(8, "w/o calibration", {"evidence.calibrate": False}),
    Ablation(9, "initial polysemous set only", {"evidence.refine": "none"}),
)
INTRA = (Ablation(10, "w/o L_intra", {"loss.intra": 0.0}),)
TRANSPORT = (
    Ablation(11, "w/ softmax", {"alignment.kind": "softmax"}),
    Ablation(12, "w/ OT", {"alignment.kind": "plain"}),
)

# Other methods in place of ours, trained alike: encoder and objective, without and with evidence.
BASELINES = (
    *(
        Ablation(
            -3 - 2 * number - evidence,
            TITLES[method] + " + evidence" * evidence,
            for_table(method, evidence),
            method + "+evidence" * evidence,
        )
        for number, method in enumerate(METHODS)
        for evidence in (False, True)
    ),
    Ablation(-1, "base objective (L_sim + L_div)", NO_EVIDENCE),
)

TABLES: dict[str, tuple[Ablation, ...]] = {
    "scales": SCALES,
    "fusion": FUSION,
    "calibration": CALIBRATION,
    "intra": INTRA,
    "transport": TRANSPORT,
    "baselines": BASELINES,
}
PAPER = ("scales", "fusion", "calibration", "intra", "transport")  # the blocks of the paper's table
TABLE_TITLES = {
    "scales": "Efficacy of multi-scale inter-video evidential learning",
    "fusion": "Efficacy of various partition fusion strategies",
    "calibration": "Efficacy of query label calibration",
    "intra": "Efficacy of intra-video evidential learning",
    "transport": "Efficacy of flexible optimal transport",
    "baselines": "Baselines, without and with evidence",
}

# Not a row of the table: the objective everything is measured against.
BASE_OBJECTIVE = BASELINES[-1]

# Ours: what multiple-instance learning alone would supervise.
BEST_CLIP = Ablation(-2, "w/ best clip only", {"alignment.kind": "best_clip"})

SWEEPS: dict[str, tuple[str, tuple[float, ...]]] = {
    "tau": ("evidence.inter_temperature", (0.02, 0.04, 0.06, 0.08, 0.1, 0.2, 0.5)),
    "beta": ("evidence.beta", (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)),
    "dustbin": ("alignment.dustbin_ratio", (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)),
}


def table(name: str) -> tuple[Ablation, ...]:
    """The rows of one block of the table, or of all blocks."""
    if name == "all":
        return tuple(row for block in PAPER for row in TABLES[block])
    if name not in TABLES:
        raise unknown("ablation table", name, {*TABLES, "all"})
    return TABLES[name]


def sweep(parameter: str) -> tuple[str, tuple[float, ...]]:
    """The setting behind a parameter of the paper, and the values to try."""
    if parameter not in SWEEPS:
        raise unknown("sweep parameter", parameter, SWEEPS)
    return SWEEPS[parameter]
