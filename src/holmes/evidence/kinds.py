"""The kind of an answer, from its distribution, by fixed rules.

The distribution gives a probability to each video and to "none of them"; together they are 1. The rules hold
for every model and every size of collection:

    precise                the first video has at least half of it, and twice as much as the next
    several fit            a few videos have half of it together, each at least a quarter of the first's
    not here, it seems     "none of them" is likelier than any video, and has at least 30%
    too little to go on    anything else

Probabilities are compared as they are shown, in whole percents. Copies of one moment count as one video.
These are not the kinds of training (`QueryKind`), where the right video is known. A second question is how
well a video fits, whether or not it is the one that is meant.

Q queries, K candidates (most probable first)
"""

from __future__ import annotations

from enum import IntEnum

import torch
from torch import Tensor

HALF = 0.5  # of the probability: what "most" means
TWICE = 2.0  # how many times as probable as the next a precise answer is
QUARTER = 0.25  # the least share of the first's probability that a member of a group has
SMALL_GROUP = 6  # the most videos that a person would look through
MISSING = 0.3  # the least probability of "none of them" at which it is said
LIKELY = 0.6  # from here on a probability is called likely
FITS, MAY_FIT = 0.5, 0.15  # the least probabilities that a video fits


class AnswerKind(IntEnum):
    """Ordered by how much is left open."""

    PRECISE = 0
    SEVERAL_FIT = 1
    TOO_LITTLE = 2
    NOT_HERE = 3

    @property
    def words(self) -> str:
        return WORDS[self]


WORDS = {
    AnswerKind.PRECISE: "precise",
    AnswerKind.SEVERAL_FIT: "several fit",
    AnswerKind.TOO_LITTLE: "too little to go on",
    AnswerKind.NOT_HERE: "not here, it seems",
}


def kinds_of(
    probability_QK: Tensor, none_Q: Tensor, copies_Q: Tensor, not_here_below: float | None = None
) -> tuple[Tensor, Tensor]:
    """The kind of each query, and how many of its first videos the sentence is about.

    `copies_Q` is how many of the first videos show one and the same moment. With `not_here_below`, "none of
    them" need not have 30%, but the probability that the video is in the collection is less than that.
    """
    last = probability_QK.shape[1]
    copies_Q = copies_Q.clamp(max=last)
    held_QK = as_shown(probability_QK.double().cumsum(1))
    probability_QK, none_Q, here_Q = as_shown(probability_QK), as_shown(none_Q), as_shown(1 - none_Q)
    rank_K = torch.arange(last, device=probability_QK.device)
    next_Q = probability_QK.masked_fill(rank_K < copies_Q.unsqueeze(1), 0).amax(1)
    one_Q = held_QK.gather(1, (copies_Q - 1).unsqueeze(1)).squeeze(1)
    precise_Q = (one_Q >= HALF) & (one_Q >= TWICE * next_Q)
    size_Q = ((held_QK < HALF).sum(1) + 1).clamp(min=2)
    members_Q = (probability_QK >= QUARTER * probability_QK[:, :1]).long().cumprod(1).sum(1)
    several_Q = size_Q <= members_Q.clamp(max=SMALL_GROUP)
    enough_Q = none_Q >= MISSING if not_here_below is None else here_Q < not_here_below
    missing_Q = enough_Q & (none_Q > one_Q)
    kinds_Q = torch.full_like(copies_Q, AnswerKind.TOO_LITTLE)
    kinds_Q = kinds_Q.masked_fill(missing_Q, AnswerKind.NOT_HERE)
    kinds_Q = kinds_Q.masked_fill(several_Q, AnswerKind.SEVERAL_FIT)
    kinds_Q = kinds_Q.masked_fill(precise_Q, AnswerKind.PRECISE)
    group_Q = torch.where(kinds_Q == AnswerKind.PRECISE, copies_Q, 0)
    return kinds_Q, torch.where(kinds_Q == AnswerKind.SEVERAL_FIT, size_Q, group_Q)


def as_shown(probability: Tensor) -> Tensor:
    """Rounded to whole percents."""
    return (100 * probability.double()).round() / 100


def fit_word(probability: float, kind: AnswerKind, meant: bool = False) -> str:
    """How well a video fits, in words; `meant` if the sentence on the kind is about it.

    Of what is not here nothing fits, and where several fit, each of these may. A sentence that says too
    little may be about nothing here: evidence does not tell, so no video is said to fit.
    """
    if kind == AnswerKind.NOT_HERE:
        return "nearest"
    if (probability >= FITS and kind != AnswerKind.TOO_LITTLE) or (meant and kind == AnswerKind.PRECISE):
        return "fits"
    return "may fit" if meant or probability >= MAY_FIT else "nearest"
