"""A calibration, fitted on held-out queries, and its file beside the weights or in an index."""

from __future__ import annotations

from dataclasses import MISSING, asdict, dataclass, fields
from typing import Annotated, Any

import torch
from torch import Tensor

from holmes.base.validation import Within, build
from holmes.errors import HolmesError
from holmes.evidence.distribution import Absence, ScoreEvidence
from holmes.records import Scores

EXTRA = "calibration"  # its name among a checkpoint's extras
VERSION = 5
# Before version 3 nothing was learned of missing videos, of how far a query's scores spread, or of what fits;
# before version 4, of the lead of the best, or of how the size of a gallery hides a missing video; before
# version 5, of how a right video shows among few. The first of version 5 tell what fits by log α alone, and
# know nothing of a part's other clips.
READABLE = (1, 2, 3, 4, 5)
Number = Annotated[float, Within(-1e9, 1e9)]
Positive = Annotated[float, Within(1e-9, 1e9)]
Power = Annotated[float, Within(-10, 10)]


@dataclass(frozen=True)
class Calibration:
    """What held-out queries taught about a model's scores."""

    model: str  # digest of the model it belongs to
    candidates: Annotated[int, Within(2, 1 << 20)]  # K
    frame_weight: Number  # weights of the score that ranks
    clip_weight: Number
    temperature: Positive  # τ of the branches' opinions
    score_temperature: Positive  # T₀ and s₀ of the distribution over the gallery
    score_offset: Number
    videos: Annotated[int, Within(2, 1 << 40)]  # of the held-out gallery
    queries: Annotated[int, Within(0, 1 << 40)]
    score_spread: Positive = 1.0  # σ₀ and γ: how T follows the spread of a query's scores
    spread_power: Power = 0.0
    score_lead: Positive = 1.0  # z₀ and δ: how T follows the lead of the best
    lead_power: Power = 0.0
    absence_shift: Number = 0.0  # a, b, m, ρ and R: what little evidence says of a missing video
    absence_slope: Annotated[float, Within(0, 1e6)] = 0.0
    absence_middle: Number = 0.0
    absence_size_power: Power = 0.0
    absence_outweighs: Annotated[float, Within(0, 1e9)] = 0.0
    # λ: what the other clips of a long video's part add to its evidence, as a share of the mean of all parts
    part_rest: Annotated[float, Within(0, 100)] = 0.0
    # log-odds that a video fits which is not the one that is meant:
    # fit_shift + fit_slope · log α + fit_behind · (log α - log α of the best)
    fit_shift: Number = -20.0
    fit_slope: Number = 0.0
    fit_behind: Number = 0.0

    @property
    def evidence(self) -> ScoreEvidence:
        return ScoreEvidence(
            temperature=self.score_temperature,
            offset=self.score_offset,
            spread=self.score_spread,
            spread_power=self.spread_power,
            lead=self.score_lead,
            lead_power=self.lead_power,
        )

    @property
    def absence(self) -> Absence:
        return Absence(
            shift=self.absence_shift,
            slope=self.absence_slope,
            middle=self.absence_middle,
            size_power=self.absence_size_power,
            outweighs=self.absence_outweighs,
            videos=self.videos,
        )

    def fits(self, log_alpha_QK: Tensor, probability_QK: Tensor) -> Tensor:
        """The probability that each video fits: it is the one, or it is not and fits all the same."""
        behind_QK = log_alpha_QK - log_alpha_QK.amax(1, keepdim=True)
        other_QK = torch.sigmoid(self.fit_shift + self.fit_slope * log_alpha_QK + self.fit_behind * behind_QK)
        return probability_QK + (1 - probability_QK) * other_QK

    def score(self, scores: Scores) -> Tensor:
        """The score that ranks videos."""
        return scores.combined(self.frame_weight, self.clip_weight)

    def to_dict(self) -> dict[str, Any]:
        return {"version": VERSION, **asdict(self)}


def read_calibration(values: Any, model: str) -> Calibration | None:
    """The stored form read back; None if there is none. Another model's is refused."""
    if values is None:
        return None
    needed = {field.name for field in fields(Calibration) if field.default is MISSING}
    if not isinstance(values, dict) or values.get("version") not in READABLE or needed - values.keys():
        raise HolmesError(
            "the calibration has a format that this version of Holmes does not know; train again."
        )
    if values["model"] != model:
        raise HolmesError(
            f"the calibration belongs to another model ({str(values['model'])[:12]}, not {model[:12]}); "
            "its probabilities would be wrong: train this one again, or restore the weights."
        )
    known = {field.name for field in fields(Calibration)}
    try:
        return build(
            Calibration, {name: value for name, value in values.items() if name in known}, "calibration"
        )
    except HolmesError as error:
        raise HolmesError(f"the calibration is damaged: {str(error)[:-1]}; train again.") from None
