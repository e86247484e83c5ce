"""What held-out queries taught about a model's scores, stored beside its weights or in an index."""

from __future__ import annotations

import math
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Annotated, Any

from torch import Tensor

from holmes.base.validation import Within, build
from holmes.errors import HolmesError
from holmes.evidence.distribution import OddsCorrection, ScoreEvidence
from holmes.evidence.kinds import CLEAR, KindRules, small_group
from holmes.records import Scores

EXTRA = "calibration"  # its name among a checkpoint's extras
VERSION = 2
READABLE = (1, 2)  # version 1 has the vacuity that one found query in twenty exceeded, and no floors
ONE_IN_TWENTY = 1.645  # deviations above the mean
Number = Annotated[float, Within(-1e9, 1e9)]
Positive = Annotated[float, Within(1e-9, 1e9)]


@dataclass(frozen=True)
class Calibration:
    """What held-out queries taught about a model's scores."""

    model: str  # digest of the model it belongs to
    candidates: Annotated[int, Within(2, 1 << 20)]  # K
    frame_weight: Number  # weights of the score that ranks
    clip_weight: Number
    temperature: Positive  # τ of the branches' opinions
    score_temperature: Positive  # T and s₀ of the opinion on the gallery
    score_offset: Number
    videos: Annotated[int, Within(2, 1 << 40)]  # of the held-out gallery
    queries: Annotated[int, Within(0, 1 << 40)]
    odds_shift: Number = 0.0  # the correction of the first hit's log-odds
    odds_slope: Positive = 1.0
    vacuity_middle: Number = 0.0  # mean and deviation of the log of the vacuity of held-out queries that
    vacuity_spread: Positive = 1.0  # found their video, in a gallery of `videos`
    precise_floor: Number = KindRules.precise
    group_floor: Number = KindRules.group
    here_floor: Number = KindRules.here
    sure_floor: Number = KindRules.sure
    rough: bool = False  # guessed from the collection itself, without a single right answer

    @property
    def evidence(self) -> ScoreEvidence:
        return ScoreEvidence(self.score_temperature, self.score_offset)

    @property
    def correction(self) -> OddsCorrection:
        return OddsCorrection(self.odds_shift, self.odds_slope, self.videos)

    def rules(self, videos: int) -> KindRules:
        """The floors in a gallery of this many videos.

        A half is a half everywhere. A lower floor says how far a weak model gets in a gallery of the held-out
        size; in another one its odds are shared with more videos, or fewer. No floor is so high that what is
        said would be at odds with the probabilities beside it.
        """
        share = (self.videos - 1) / max(videos - 1, 1)

        def here(floor: float) -> float:
            odds = share * floor / (1 - floor) if floor < KindRules.precise else math.inf
            return floor if odds == math.inf else min(KindRules.precise, odds / (1 + odds))

        return KindRules(
            precise=min(here(self.precise_floor), CLEAR),
            group=min(here(self.group_floor), CLEAR),
            here=self.here_floor,
            sure=self.sure_floor,
            small=small_group(videos),
        )

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
    numbers = {name: value for name, value in values.items() if name in known}
    ceiling = values.get("vacuity_ceiling")
    if values["version"] == 1 and isinstance(ceiling, int | float) and ceiling > 0:
        numbers["vacuity_middle"] = math.log(ceiling) - ONE_IN_TWENTY
    try:
        return build(Calibration, numbers, "calibration")
    except HolmesError as error:
        raise HolmesError(f"the calibration is damaged: {str(error)[:-1]}; train again.") from None
