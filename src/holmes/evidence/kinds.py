"""What kind of answer a query got, in the four ways a person would put it, from one distribution.

The distribution is the Dirichlet over the videos of the gallery: the probability of each, and the vacuity,
which no evidence supports. Kinds, sentences, numbers and bars all come from it, so none contradicts another:

    precise                one video holds most of the probability and is well ahead, or copies of a moment do
    several fit            a small group holds it together
    too little to go on    no small group holds it
    not here, it seems     there is less evidence than queries with an answer had, and none is precise

Held-out queries decide how much "most" and "less" are (`holmes.evidence.fitting`). These are not the kinds of
training (`QueryKind`), where the right video is known.

Q queries, K candidates (best first)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

SMALL_GROUP = 6  # the most videos that a person would look through
SMALL_SHARE = 8  # and no more than an eighth of the gallery: half of a quarter, which is no small part of it
AHEAD = 1.25  # how many times as probable as the next a video is that stands out
MOST = 0.5  # share of the probability that "most" means, wherever a model is good enough to reach it
CLEAR = 0.75  # share that is most of it whatever a model was taught


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


@dataclass(frozen=True)
class KindRules:
    """The least probability at which each kind is claimed."""

    precise: float = MOST  # of the first video, with its copies
    group: float = MOST  # of a small group together
    here: float = 0.05  # the share of answerable queries that had as little evidence
    sure: float = 0.0  # as `here`, of a precise answer that has less than CLEAR
    small: int = SMALL_GROUP  # the most videos in a small group


def small_group(videos: int) -> int:
    """How many of this many videos are a small group."""
    return min(max(math.ceil(videos / SMALL_SHARE), 2), SMALL_GROUP)


def kinds_of(
    probability_QK: Tensor, here_Q: Tensor, copies_Q: Tensor, rules: KindRules
) -> tuple[Tensor, Tensor]:
    """The kind of each query, and how many of its best candidates the sentence is about.

    `copies_Q` is how many of the first candidates show one and the same moment, the first included.
    """
    held_QK = probability_QK.cumsum(1)
    last = held_QK.shape[1]
    first_Q = held_QK.gather(1, (copies_Q.clamp(max=last) - 1).unsqueeze(1)).squeeze(1)
    together_Q = held_QK[:, min(rules.small, last) - 1]
    size_Q = (held_QK < rules.group).sum(1) + 1
    precise_Q = is_precise(first_Q, here_Q, rules.precise, rules.sure) & stands_out(probability_QK, copies_Q)
    kinds_Q = torch.full_like(copies_Q, AnswerKind.TOO_LITTLE)
    kinds_Q = kinds_Q.masked_fill(together_Q >= rules.group, AnswerKind.SEVERAL_FIT)
    kinds_Q = kinds_Q.masked_fill(here_Q < rules.here, AnswerKind.NOT_HERE)
    kinds_Q = kinds_Q.masked_fill(precise_Q, AnswerKind.PRECISE)
    group_Q = torch.where(kinds_Q == AnswerKind.PRECISE, copies_Q, 0)
    group_Q = torch.where(kinds_Q == AnswerKind.SEVERAL_FIT, size_Q.clamp(min=2, max=max(2, last)), group_Q)
    return kinds_Q, group_Q.clamp(max=last)


def is_precise(first_Q: Tensor, here_Q: Tensor, most: float | Tensor, sure: float) -> Tensor:
    """Whether the first video, with its copies, has most of the probability and evidence enough."""
    return ((first_Q >= most) & (here_Q >= sure)) | (first_Q >= CLEAR)


def stands_out(probability_QK: Tensor, copies_Q: Tensor) -> Tensor:
    """Whether the first video, with its copies, is well ahead of any other."""
    place_K = torch.arange(probability_QK.shape[1], device=probability_QK.device)
    others_QK = probability_QK.masked_fill(place_K < copies_Q.unsqueeze(1), 0)
    return probability_QK[:, 0] >= AHEAD * others_QK.amax(1)
