"""What a judge is told of queries whose answer nobody knows.

Q queries, K candidates (best first)
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from holmes.evidence.confidence import Background
from holmes.records import Scores


@dataclass(frozen=True)
class Case:
    """Queries, by the scores of their best candidates in a gallery of `videos`.

    In an index with long videos candidates are parts of videos and the gallery is one of parts, but the
    judgement is about videos, in the order of their best parts.
    """

    scores: Scores  # of the candidates, Q × K
    videos: int
    all_scores: Background | None = None  # of the whole gallery; guessed from the candidates if not known
    video_QK: Tensor | None = None  # whose part each candidate is, where they are parts
    video_parts_QK: Tensor | None = None  # how many parts of that video were compared
    copies_Q: Tensor | None = None  # how many of the first videos show the very same moment, where any do
    # Which queries are a mere word or two, where any are: they have little evidence wherever it is, so none
    # of them is said not to be here.
    terse_Q: Tensor | None = None
    # The floor that was asked for instead of the judge's own: a query is said not to be here if a smaller
    # share of answerable queries had as little evidence.
    here_floor: float | None = None
